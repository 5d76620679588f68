//! Carries requests to a program over its standard input and output: one message a line, many requests at a time.
//!
//! One task for each program reads what it writes and hands answers to who waits for them. An answer that nobody waits for, because it
//! is late, comes twice or has an id of nobody, is passed over.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fleet::{
    outcome::ToolFailure,
    said,
    taken_back::TakenBack,
    wire::{code::Code, message::Message},
};
use secrecy::SecretString;
use tokio::{
    io::AsyncWriteExt,
    net::unix::pipe,
    sync::{Mutex as AsyncMutex, oneshot, watch},
    time::timeout,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{
    answer::before_anything,
    came::Came,
    cut::AttemptEnd,
    hear::Hear,
    message::{self, Incoming, Request},
    skim::Skim,
};
use crate::executors::{
    process::{
        GuardCommand,
        server::{Served, ServingProgram},
    },
    resources::lacks_resources,
};

/// The most bytes around an answer.
const ENVELOPE_MAX: usize = 64 * 1024;
/// The most bytes of a line that are kept: of an answer as large as a manifest allows.
const LINE_MAX: usize = fleet::manifest::Manifest::OUTPUT_LIMIT_MAX + ENVELOPE_MAX;
/// The most bytes of a line that are read to know what it is.
const SKIMMED_MAX: usize = 64 * 1024 * 1024;
/// How long ending one may take: what a guard may, and a little.
const END_MAX: Duration = Duration::from_millis(2_950);

/// A program that serves. Dropping it ends it.
#[derive(Debug)]
pub(super) struct ServerProcess {
    shared: Arc<SharedProcess>,
    stdin: AsyncMutex<pipe::Sender>,
    _end: DropGuard,
}

#[derive(Debug)]
struct SharedProcess {
    waiting: Mutex<HashMap<u64, AwaitedAnswer>>,
    /// It takes nothing new.
    is_closed: AtomicBool,
    /// Ends it.
    end: CancellationToken,
    /// Whether all its processes are gone, once that is known.
    gone: watch::Sender<Option<bool>>,
    /// What it was told by its end, where it was never started.
    why: Mutex<Option<String>>,
}

/// Who waits for an answer.
#[derive(Debug)]
struct AwaitedAnswer {
    came: oneshot::Sender<Came>,
    limit: usize,
    hear: Hear,
}

/// Forgets who waits when that is over, however it ends.
struct Waits<'a> {
    shared: &'a SharedProcess,
    id: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.shared.waiting().remove(&self.id);
    }
}

impl SharedProcess {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, AwaitedAnswer>> {
        self.waiting
            .lock()
            .expect("no thread panics while holding who waits")
    }
}

impl ServerProcess {
    /// Starts it. Only its guard is there when this returns.
    ///
    /// # Errors
    ///
    /// Nothing was started.
    pub(super) fn start(
        guard: &GuardCommand,
        command: &[String],
        env: &BTreeMap<String, SecretString>,
        stale: &Arc<AtomicBool>,
        tasks: &TaskTracker,
    ) -> Result<Arc<Self>, ToolFailure> {
        let started = ServingProgram::start(guard, command, env);
        let (program, stdin) = started.map_err(|error| {
            let lacking = lacks_resources(&error);
            let what = said!(
                "the guard of the MCP server could not be started: {error}",
                "MCP 服务器的守护进程无法启动：{error}"
            );
            ToolFailure::new(Code::Unavailable, what).taken_back(if lacking {
                TakenBack::NoResources
            } else {
                TakenBack::GuardFailed
            })
        })?;
        let end = CancellationToken::new();
        let shared = Arc::new(SharedProcess {
            waiting: Mutex::default(),
            is_closed: AtomicBool::new(false),
            end: end.clone(),
            gone: watch::Sender::new(None),
            why: Mutex::default(),
        });
        let serving = serve(program, Arc::clone(&shared), Arc::clone(stale));
        tasks.spawn(serving);
        Ok(Arc::new(Self {
            shared,
            stdin: AsyncMutex::new(stdin),
            _end: end.drop_guard(),
        }))
    }

    /// Whether it takes requests.
    pub(super) fn is_open(&self) -> bool {
        !self.shared.is_closed.load(Ordering::Acquire)
    }

    /// Sends a request once and waits for its answer, until `cut` ends that.
    pub(super) async fn exchange(
        &self,
        request: &Request,
        limit: usize,
        cut: &AttemptEnd,
        hear: &Hear,
    ) -> Came {
        let (came, answer) = oneshot::channel();
        let waiting = AwaitedAnswer {
            came,
            limit,
            hear: hear.clone(),
        };
        self.shared.waiting().insert(request.id, waiting);
        let _waits = Waits {
            shared: &self.shared,
            id: request.id,
        };
        if !self.is_open() {
            return Came::NotSent(self.ended());
        }
        let told = cut.told();
        tokio::pin!(told);
        let mut stdin = tokio::select! {
            biased;
            why = &mut told => return Came::NotSent(before_anything(why)),
            stdin = self.stdin.lock() => stdin,
        };
        // While it waited for its turn.
        if !self.is_open() {
            return Came::NotSent(self.ended());
        }
        let mut line = request.body.clone();
        line.push(b'\n');
        let written = tokio::select! {
            biased;
            written = stdin.write_all(&line) => written,
            // Half a line would spoil the next one.
            why = &mut told => {
                self.close();
                return Came::CutOff(why);
            }
            () = self.shared.end.cancelled() => Err(io::ErrorKind::BrokenPipe.into()),
        };
        drop(stdin);
        if written.is_err() {
            self.close();
            return Came::NoAnswer(self.ended());
        }
        tokio::select! {
            biased;
            came = answer => came.unwrap_or_else(|_ended| self.without_answer()),
            why = told => Came::CutOff(why),
        }
    }

    /// It ended. What was never started cannot have done anything.
    fn without_answer(&self) -> Came {
        let was_started = self.why().is_none();
        if was_started {
            Came::NoAnswer(self.ended())
        } else {
            Came::NotSent(self.ended())
        }
    }

    /// Sends a message that nobody answers, if that is possible at once.
    pub(super) async fn tell(&self, mut body: Vec<u8>) {
        body.push(b'\n');
        if self.is_open()
            && let Ok(mut stdin) = self.stdin.try_lock()
            && timeout(Duration::from_millis(100), stdin.write_all(&body))
                .await
                .is_err()
        {
            self.close();
        }
    }

    /// Takes nothing new from now on, and ends.
    pub(super) fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.end.cancel();
    }

    /// Ends it, and waits until all its processes are gone; false: one may be left.
    pub(super) async fn end(&self) -> bool {
        self.close();
        let mut gone = self.shared.gone.subscribe();
        let known = timeout(END_MAX, gone.wait_for(Option::is_some)).await;
        matches!(known, Ok(Ok(gone)) if *gone == Some(true))
    }

    fn why(&self) -> Option<String> {
        self.shared
            .why
            .lock()
            .expect("no thread panics while holding it")
            .clone()
    }

    fn ended(&self) -> ToolFailure {
        let what = match self.why() {
            Some(why) => said!(
                "the MCP server was not started: {why}",
                "MCP 服务器没有启动：{why}"
            ),
            None => Message::fixed("the MCP server has ended", "MCP 服务器已经结束"),
        };
        ToolFailure::new(Code::Unavailable, what)
    }
}

/// Reads what the program writes until it ends or is to end; then ends what is left of it.
async fn serve(mut program: ServingProgram, shared: Arc<SharedProcess>, stale: Arc<AtomicBool>) {
    let mut line = MessageLine::default();
    loop {
        let served = tokio::select! {
            biased;
            () = shared.end.cancelled() => break,
            served = program.next() => served,
        };
        match served {
            Served::Wrote(bytes) => {
                let mut rest = &bytes[..];
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    line.add(&rest[..end]);
                    std::mem::take(&mut line).hand_over(&shared, &stale);
                    rest = &rest[end + 1..];
                }
                line.add(rest);
                if line.seen > SKIMMED_MAX {
                    // It may never end.
                    line.hand_over(&shared, &stale);
                    break;
                }
            }
            Served::Ended(why) => {
                *shared
                    .why
                    .lock()
                    .expect("no thread panics while holding it") = why;
                break;
            }
        }
    }
    shared.is_closed.store(true, Ordering::Release);
    shared.end.cancel();
    let all_gone = program.end().await;
    shared.gone.send_replace(Some(all_gone));
    // Who still waits hears that nothing comes any more.
    shared.waiting().clear();
}

/// A line that has begun.
#[derive(Debug, Default)]
struct MessageLine {
    bytes: Vec<u8>,
    seen: usize,
    skim: Skim,
}

impl MessageLine {
    fn add(&mut self, bytes: &[u8]) {
        self.seen = self.seen.saturating_add(bytes.len());
        self.skim.feed(bytes);
        let room = LINE_MAX.saturating_sub(self.bytes.len());
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Gives the message to who waits for it.
    fn hand_over(mut self, shared: &SharedProcess, stale: &AtomicBool) {
        let id = std::str::from_utf8(self.skim.id())
            .ok()
            .and_then(|id| id.parse().ok());
        let mut waiting = shared.waiting();
        let limit = id
            .and_then(|id: u64| waiting.get(&id))
            .map(|waits| waits.limit);
        let most = limit.map_or(LINE_MAX, |limit| limit.saturating_add(ENVELOPE_MAX));
        if self.seen > most.min(LINE_MAX) {
            if let Some(waits) = id.and_then(|id| waiting.remove(&id)) {
                self.bytes.truncate(waits.limit);
                drop(
                    waits
                        .came
                        .send(Came::TooLarge(self.skim.came(), self.bytes)),
                );
            }
            return;
        }
        match message::read(&self.bytes) {
            Ok(Incoming::Answer { id, answer }) => {
                let id = id.and_then(|id| id.get().trim().parse().ok());
                if let Some(waits) = id.and_then(|id: u64| waiting.remove(&id)) {
                    drop(waits.came.send(Came::Answer(answer)));
                }
            }
            Ok(Incoming::Told { method, params }) => {
                if method == "notifications/tools/list_changed" {
                    stale.store(true, Ordering::Release);
                }
                for waits in waiting.values() {
                    waits.hear.told(&method, params.as_deref());
                }
            }
            // A server of the older revision may ask only what this client has said that it can.
            Ok(Incoming::Asked { .. }) | Err(_) => {}
        }
    }
}

//! Carries requests to a program over its standard input and output: one message a line, many requests at a time.
//!
//! `serving` reads what the program writes.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fleet::{ids::ServerName, outcome::ToolFailure, said, taken_back::TakenBack, wire::code::Code};
use tokio::{
    io::AsyncWriteExt,
    net::unix::pipe,
    sync::{OwnedMutexGuard, oneshot},
    time::Instant,
};
use tokio_util::{sync::DropGuard, task::TaskTracker};

use super::{
    answer::before_anything,
    came::{Came, CutOff},
    cut::AttemptEnd,
    hear::Hear,
    message::Request,
    serving::{AwaitedAnswer, Serving, SharedProcess, Waits},
    story::ProgramStory,
    way::ProgramWay,
};
use crate::executors::{process::server::ServingProgram, resources::lacks_resources};

/// How long ending one may take: what a guard may, and a little.
pub(super) const END_MAX: Duration = Duration::from_millis(2_950);

/// A program that serves. Dropping it ends it.
#[derive(Debug)]
pub(super) struct ServerProcess {
    shared: Arc<SharedProcess>,
    tasks: TaskTracker,
    _end: DropGuard,
}

impl ServerProcess {
    /// Starts it. Only its guard is there when this returns.
    ///
    /// # Errors
    ///
    /// Nothing was started.
    pub(super) fn start(
        server: &ServerName,
        way: &ProgramWay,
        stale: &Arc<AtomicBool>,
        tasks: &TaskTracker,
    ) -> Result<Arc<Self>, ToolFailure> {
        let started = ServingProgram::start(&way.guard, &way.command, &way.env.0);
        let (program, stdin) = started.map_err(|error| {
            let lacking = lacks_resources(&error);
            let what = said!(
                "the guard of the MCP server {server} could not be started: {error}",
                "MCP 服务器 {server} 的守护进程无法启动：{error}"
            );
            ToolFailure::new(Code::Unavailable, what).taken_back(if lacking {
                TakenBack::NoResources
            } else {
                TakenBack::GuardFailed
            })
        })?;
        let story = ProgramStory::of(server, &way.command);
        let shared = Arc::new(SharedProcess::new(stdin, story));
        let end = shared.end.clone().drop_guard();
        let serving = Serving {
            shared: Arc::clone(&shared),
            stale: Arc::clone(stale),
            tasks: tasks.clone(),
        };
        tasks.spawn(serving.serve(program));
        Ok(Arc::new(Self {
            shared,
            tasks: tasks.clone(),
            _end: end,
        }))
    }

    /// Whether it takes requests.
    pub(super) fn is_open(&self) -> bool {
        !self.shared.is_closed.load(Ordering::Acquire)
    }

    /// Whether it takes new calls: not any more once a write was taken back that it has not answered.
    pub(super) fn takes_calls(&self) -> bool {
        self.is_open() && self.shared.doubts.load(Ordering::Acquire) == 0
    }

    /// Whether it has ended by itself, or answered nothing.
    pub(super) fn has_failed(&self) -> bool {
        self.shared.has_failed.load(Ordering::Acquire)
    }

    /// What it shares with its task.
    pub(super) const fn shared(&self) -> &Arc<SharedProcess> {
        &self.shared
    }

    /// Whether nobody waits for an answer of it.
    pub(super) fn is_idle(&self) -> bool {
        self.shared.waiting().is_empty()
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
            stdin = Arc::clone(&self.shared.stdin).lock_owned() => stdin,
        };
        // While it waited for its turn.
        if !self.is_open() {
            return Came::NotSent(self.ended());
        }
        let mut line = request.body.clone();
        line.push(b'\n');
        let mut sent = 0;
        let written = loop {
            let wrote: io::Result<usize> = tokio::select! {
                biased;
                wrote = stdin.write(&line[sent..]) => wrote,
                why = &mut told => {
                    if sent == 0 {
                        return Came::NotSent(before_anything(why));
                    }
                    self.finish(stdin, line.split_off(sent));
                    return Came::CutOff(why);
                }
                () = self.shared.end.cancelled() => Err(io::ErrorKind::BrokenPipe.into()),
            };
            match wrote {
                Ok(wrote) => sent += wrote,
                Err(error) => break Err(error),
            }
            if sent == line.len() {
                break Ok(());
            }
        };
        drop(stdin);
        let heard = self.shared.heard.load(Ordering::Relaxed);
        if written.is_err() {
            self.close();
            return Came::NoAnswer(self.ended());
        }
        let arrived = tokio::select! {
            biased;
            arrived = answer => arrived,
            why = told => {
                if why == CutOff::TimedOut && heard == self.shared.heard.load(Ordering::Relaxed) {
                    // It may answer nothing any more: whoever comes next looks first.
                    hear.stale.store(true, Ordering::Release);
                }
                return Came::CutOff(why);
            }
        };
        match arrived {
            Ok(arrived) => arrived.read(request.id).await,
            Err(_ended) => self.without_answer(),
        }
    }

    /// Writes the rest of a line, for half a line would spoil the next one, and others have calls there.
    fn finish(&self, mut stdin: OwnedMutexGuard<pipe::Sender>, rest: Vec<u8>) {
        let shared = Arc::clone(&self.shared);
        self.tasks.spawn(async move {
            let written = tokio::select! {
                biased;
                () = shared.end.cancelled() => return,
                written = stdin.write_all(&rest) => written,
            };
            if written.is_err() {
                shared.close();
            }
        });
    }

    /// It ended. What was never started cannot have done anything.
    fn without_answer(&self) -> Came {
        if self.shared.story.was_never_started() {
            Came::NotSent(self.ended())
        } else {
            Came::NoAnswer(self.ended())
        }
    }

    /// Sends a message that nobody answers, if that is possible at once. A program that reads nothing meanwhile is left alone: others have
    /// calls there, and it would not hear it.
    pub(super) fn tell(&self, mut body: Vec<u8>) {
        body.push(b'\n');
        if !self.is_open() {
            return;
        }
        let Ok(stdin) = Arc::clone(&self.shared.stdin).try_lock_owned() else {
            return;
        };
        match stdin.try_write(&body) {
            Ok(wrote) if wrote < body.len() => self.finish(stdin, body.split_off(wrote)),
            // Where it is closed, whoever reads from it says so.
            Ok(_) | Err(_) => {}
        }
    }

    /// Takes nothing new from now on, and ends.
    pub(super) fn close(&self) {
        self.shared.close();
    }

    /// The same because it answers nothing: it is started again after a pause.
    pub(super) fn give_up(&self) {
        self.shared.has_failed.store(true, Ordering::Release);
        self.close();
    }

    /// Ends it, and waits until all its processes are gone; false: one may be left.
    pub(super) async fn end(&self) -> bool {
        self.close();
        self.shared.is_gone_by(Instant::now() + END_MAX).await
    }

    /// The failure of what it had not answered when it ended.
    pub(super) fn ended(&self) -> ToolFailure {
        self.shared.story.failure()
    }
}

//! The task of one program: reads what it writes, gives answers to who waits for them, and answers what it asks.
//!
//! An answer that nobody waits for, because it is late, comes twice or has an id of nobody, is passed over. What is long is read by who
//! waits for it, for this task serves all of them; no lock is held while anything is read.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tokio::{
    io::AsyncWriteExt,
    net::unix::pipe,
    sync::{Mutex as AsyncMutex, Semaphore, oneshot, watch},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    hear::Hear,
    line::{LineRead, LongAnswer, MessageLine},
    message::{self, ASKED_ID_MAX, Incoming, RpcAnswer, ToldProgress},
    skim::Skimmed,
};
use crate::executors::process::server::{Served, ServingProgram};

/// How many answers to what a program asks may wait to be written.
const REPLIES_MAX: usize = 16;

/// What a program and those who ask it share.
#[derive(Debug)]
pub(super) struct SharedProcess {
    pub(super) stdin: AsyncMutex<pipe::Sender>,
    waiting: Mutex<HashMap<u64, AwaitedAnswer>>,
    /// How often something was read that it wrote.
    pub(super) heard: AtomicU64,
    /// Room for answers to what it asks.
    replies: Arc<Semaphore>,
    /// It takes nothing new.
    pub(super) is_closed: AtomicBool,
    /// Ends it.
    pub(super) end: CancellationToken,
    /// Whether all its processes are gone, once that is known.
    pub(super) gone: watch::Sender<Option<bool>>,
    /// What it was told by its end, where it was never started.
    why: Mutex<Option<String>>,
}

/// Who waits for an answer.
#[derive(Debug)]
pub(super) struct AwaitedAnswer {
    pub(super) came: oneshot::Sender<Arrived>,
    pub(super) limit: usize,
    pub(super) hear: Hear,
}

/// An answer, as it came.
#[derive(Debug)]
pub(super) enum Arrived {
    Answer(RpcAnswer),
    /// One that has still to be read.
    Long(Vec<u8>),
    TooLarge(Skimmed, Vec<u8>),
}

/// Forgets who waits when that is over, however it ends.
pub(super) struct Waits<'a> {
    pub(super) shared: &'a SharedProcess,
    pub(super) id: u64,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.shared.waiting().remove(&self.id);
    }
}

impl SharedProcess {
    pub(super) fn new(stdin: pipe::Sender) -> Self {
        Self {
            stdin: AsyncMutex::new(stdin),
            waiting: Mutex::default(),
            heard: AtomicU64::new(0),
            replies: Arc::new(Semaphore::new(REPLIES_MAX)),
            is_closed: AtomicBool::new(false),
            end: CancellationToken::new(),
            gone: watch::Sender::new(None),
            why: Mutex::default(),
        }
    }

    pub(super) fn waiting(&self) -> MutexGuard<'_, HashMap<u64, AwaitedAnswer>> {
        self.waiting
            .lock()
            .expect("no thread panics while holding who waits")
    }

    /// Why it was never started, where it was not.
    pub(super) fn why(&self) -> MutexGuard<'_, Option<String>> {
        self.why
            .lock()
            .expect("no thread panics while holding why it was not started")
    }
}

/// Reads what a program writes, and gives it to whom it is for.
pub(super) struct Serving {
    pub(super) shared: Arc<SharedProcess>,
    /// Set when it says that its tools have changed.
    pub(super) stale: Arc<AtomicBool>,
    pub(super) tasks: TaskTracker,
}

impl Serving {
    /// Serves until the program ends or is to end; then ends what is left of it.
    pub(super) async fn serve(self, mut program: ServingProgram) {
        let shared = &self.shared;
        let mut line = MessageLine::default();
        loop {
            let served = tokio::select! {
                biased;
                () = shared.end.cancelled() => break,
                served = program.next() => served,
            };
            match served {
                Served::Wrote(bytes) => {
                    shared.heard.fetch_add(1, Ordering::Relaxed);
                    let mut rest = &bytes[..];
                    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                        line.add(&rest[..end]);
                        self.hand_over(std::mem::take(&mut line).read());
                        rest = &rest[end + 1..];
                    }
                    line.add(rest);
                    if line.is_endless() {
                        self.hand_over(line.read());
                        break;
                    }
                }
                Served::Ended(why) => {
                    *shared.why() = why;
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

    fn hand_over(&self, line: LineRead) {
        match line {
            LineRead::Message(Incoming::Answer { id, answer }) => {
                let id = id.and_then(|id| id.get().trim().parse::<u64>().ok());
                let waits = id.and_then(|id| self.shared.waiting().remove(&id));
                if let Some(waits) = waits {
                    drop(waits.came.send(Arrived::Answer(answer)));
                }
            }
            LineRead::Message(Incoming::Told { method, params }) => match &*method {
                "notifications/tools/list_changed" => self.stale.store(true, Ordering::Release),
                "notifications/progress" => {
                    if let Some(told) = params.and_then(|params| ToldProgress::read(&params)) {
                        self.progressed(&told);
                    }
                }
                _other => {}
            },
            LineRead::Message(Incoming::Asked { id, method }) => {
                if id.get().len() <= ASKED_ID_MAX {
                    self.reply(message::reply(&id, &method));
                }
            }
            LineRead::Long(answer) => self.long(answer),
            LineRead::Nothing => {}
        }
    }

    fn long(&self, mut answer: LongAnswer) {
        let waits = self.shared.waiting().remove(&answer.id);
        let Some(AwaitedAnswer { came, limit, .. }) = waits else {
            return;
        };
        let is_too_large = answer.is_larger_than(limit);
        drop(came.send(if is_too_large {
            answer.bytes.truncate(limit);
            Arrived::TooLarge(answer.skimmed, answer.bytes)
        } else {
            Arrived::Long(answer.bytes)
        }));
    }

    fn progressed(&self, told: &ToldProgress) {
        let hear = {
            let waiting = self.shared.waiting();
            let mut all = waiting.values().map(|waits| &waits.hear);
            all.find(|hear| hear.token == told.token).cloned()
        };
        if let Some(hear) = hear {
            hear.progressed(told);
        }
    }

    /// Answers what the program asks; nothing where too many answers wait already, for a program that reads none.
    fn reply(&self, mut reply: Vec<u8>) {
        let Ok(room) = Arc::clone(&self.shared.replies).try_acquire_owned() else {
            return;
        };
        reply.push(b'\n');
        let shared = Arc::clone(&self.shared);
        self.tasks.spawn(async move {
            let writing = async {
                let mut stdin = shared.stdin.lock().await;
                stdin.write_all(&reply).await
            };
            tokio::select! {
                biased;
                () = shared.end.cancelled() => {}
                written = writing => drop(written),
            }
            drop(room);
        });
    }
}

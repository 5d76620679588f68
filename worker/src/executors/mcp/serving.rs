//! The task of one program: reads what it writes, gives answers to who waits for them, and answers what it asks.
//!
//! An answer that nobody waits for, because it is late, comes twice or has an id of nobody, is passed over. What is long is read by who
//! waits for it, for this task serves all of them; no lock is held while anything is read.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use tokio::{
    io::AsyncWriteExt,
    net::unix::pipe,
    sync::{Mutex as AsyncMutex, Semaphore, oneshot, watch},
    time::{Instant, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    aside,
    came::Came,
    hear::Hear,
    line::{LineRead, LongAnswer, MessageLine},
    message::{self, ASKED_ID_MAX, Incoming, RpcAnswer, ToldProgress},
    skim::Skimmed,
    story::ProgramStory,
};
use crate::{
    executors::process::server::{Served, ServingProgram},
    programs::{ProgramSlot, Programs},
};

/// How many answers to what a program asks may wait to be written.
const REPLIES_MAX: usize = 16;

/// What a program and those who ask it share.
#[derive(Debug)]
pub(super) struct SharedProcess {
    pub(super) stdin: Arc<AsyncMutex<pipe::Sender>>,
    waiting: Mutex<HashMap<u64, AwaitedAnswer>>,
    /// How often something was read that it wrote.
    pub(super) heard: AtomicU64,
    /// Room for answers to what it asks.
    replies: Arc<Semaphore>,
    /// It takes nothing new.
    pub(super) is_closed: AtomicBool,
    /// How many writes were taken back that it has not answered: it may do them yet, so it takes no new calls.
    pub(super) doubts: AtomicUsize,
    /// Whether it has ended by itself, or had to be ended because it answered nothing.
    pub(super) has_failed: AtomicBool,
    /// What it takes of the worker's slots for programs while it lives on beside another one.
    slot: Mutex<Option<ProgramSlot>>,
    /// Ends it.
    pub(super) end: CancellationToken,
    /// Whether all its processes are gone, once that is known.
    pub(super) gone: watch::Sender<Option<bool>>,
    /// What it is called, and what it has come to.
    pub(super) story: ProgramStory,
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

impl Arrived {
    /// Reads what is long.
    pub(super) async fn read(self, id: u64) -> Came {
        match self {
            Self::Answer(answer) => Came::Answer(answer),
            Self::TooLarge(skimmed, beginning) => Came::TooLarge(skimmed, beginning),
            Self::Long(bytes) => aside::read_answer(bytes, id).await,
        }
    }
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
    pub(super) fn new(stdin: pipe::Sender, story: ProgramStory) -> Self {
        Self {
            stdin: Arc::new(AsyncMutex::new(stdin)),
            waiting: Mutex::default(),
            heard: AtomicU64::new(0),
            replies: Arc::new(Semaphore::new(REPLIES_MAX)),
            is_closed: AtomicBool::new(false),
            doubts: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
            slot: Mutex::default(),
            end: CancellationToken::new(),
            gone: watch::Sender::new(None),
            story,
        }
    }

    pub(super) fn waiting(&self) -> MutexGuard<'_, HashMap<u64, AwaitedAnswer>> {
        self.waiting
            .lock()
            .expect("no thread panics while holding who waits")
    }

    /// It takes nothing new from now on, and ends.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.end.cancel();
    }

    /// Waits until all its processes are gone; false: one may be left then.
    pub(super) async fn is_gone_by(&self, until: Instant) -> bool {
        let mut gone = self.gone.subscribe();
        let known = timeout_at(until, gone.wait_for(Option::is_some)).await;
        matches!(known, Ok(Ok(gone)) if *gone == Some(true))
    }

    /// Whether none of its processes is left, or nobody ends them any more.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.borrow().is_some()
    }

    /// Whether it has a slot of these, or gets a free one, where it needs one: it may go on for long beside another one.
    pub(super) fn has_slot_of(&self, programs: &Programs) -> bool {
        if self.doubts.load(Ordering::Acquire) == 0 {
            return true;
        }
        let mut slot = self.slot();
        if slot.is_none() {
            *slot = programs.free();
        }
        let has_slot = slot.is_some();
        // It may have ended meanwhile, and gives it back no more.
        if self.is_gone() {
            drop(slot.take());
        }
        has_slot
    }

    fn slot(&self) -> MutexGuard<'_, Option<ProgramSlot>> {
        self.slot
            .lock()
            .expect("no thread panics while holding a slot")
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
                        shared.has_failed.store(true, Ordering::Release);
                        break;
                    }
                }
                Served::Complained => shared.story.complained(program.complaints()),
                Served::Ended(end) => {
                    shared.story.ended(end, program.last_words());
                    shared.has_failed.store(true, Ordering::Release);
                    break;
                }
            }
        }
        if shared.has_failed.load(Ordering::Acquire) {
            shared.story.log();
        }
        shared.close();
        let all_gone = program.end().await;
        shared.gone.send_replace(Some(all_gone));
        drop(shared.slot().take());
        // Who still waits hears that nothing comes any more.
        shared.waiting().clear();
    }

    fn hand_over(&self, line: LineRead) {
        if matches!(
            line,
            LineRead::Message(Incoming::Answer { .. }) | LineRead::Long(_)
        ) {
            self.shared.story.answered();
        }
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
            LineRead::NoMessage(bytes) => self.shared.story.wrote_no_message(bytes),
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

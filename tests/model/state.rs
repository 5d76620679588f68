//! The whole world of one or two calls, small enough to be looked at in full.
//!
//! What is durable is [`Ledger`]; what a process holds in memory is [`Worker`] and [`Caller`]; what happened outside is
//! [`Outside`]. No clock: a lease may lapse, a deadline pass and a message get lost at any moment, which covers every
//! wrong clock and every pause.

use fleet::call::{Effect, EffectKnown, State};

/// Calls there may be: the second one is for a caller who sends again.
pub(crate) const CALLS: usize = 2;
/// Worker slots there may be.
pub(crate) const WORKERS: usize = 3;

/// A claim of a call. Names are random in the code; here the smallest name that no process remembers is taken, which is
/// the same as long as names are only compared.
pub(crate) type Attempt = u8;

/// Everything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct System {
    pub(crate) ledger: Ledger,
    /// An older copy of the ledger, to which a lossy failover falls back.
    pub(crate) backup: Option<Ledger>,
    /// Such a failover has happened.
    pub(crate) lost_writes: bool,
    /// Whether a pointer to the queued call is in the stream. It may be delivered any number of times.
    pub(crate) pointer: [bool; CALLS],
    pub(crate) workers: [Worker; WORKERS],
    pub(crate) callers: [Caller; CALLS],
    pub(crate) cancel: Cancel,
    pub(crate) outside: [Outside; CALLS],
    /// A promise that was broken by a step rather than by a state.
    pub(crate) breach: Option<Breach>,
}

/// What Postgres has committed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ledger {
    pub(crate) open: [Option<Row>; CALLS],
    pub(crate) history: [Option<Row>; CALLS],
    /// Which call the callers' key names.
    pub(crate) key: Option<u8>,
    pub(crate) registered: [Registered; WORKERS],
    /// Effects of `transaction` tools, which live in the same database.
    pub(crate) effects: [u8; CALLS],
}

/// A call's row, in either place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Row {
    pub(crate) state: State,
    pub(crate) attempt: Option<Attempt>,
    /// The slot of the worker that claimed it; [`GONE`] once that is fenced.
    pub(crate) worker: Option<u8>,
    /// Attempts that tools have spent.
    pub(crate) spent: u8,
    /// Attempts that were lost with their workers.
    pub(crate) lost: u8,
    pub(crate) effect_unknown: bool,
    pub(crate) cancel_requested: bool,
    pub(crate) quarantined: bool,
    /// Workers, a bit each, that may still act for an attempt of this call whose effect is unknown.
    pub(crate) suspects: u8,
    pub(crate) ended: Ended,
    pub(crate) known: EffectKnown,
}

/// A worker process that is proven gone.
pub(crate) const GONE: u8 = 7;

/// Who said how a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Ended {
    NotYet,
    /// The attempt that held it.
    Attempt,
    /// The attempt that had held it when it went in doubt.
    Late,
    /// A probe or a person.
    Settled,
    /// The platform: expired, cancelled, set aside.
    Platform,
}

/// A worker's row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Registered {
    Live,
    /// Silent for a lease. Nothing is proven: it may only be paused.
    Dead,
}

/// A worker process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Worker {
    pub(crate) step: Step,
    /// A claim that no worker waits for any more and that Postgres may still carry out.
    pub(crate) late: Option<Claim>,
    /// A claim that this process gave up, and remembers.
    pub(crate) given_up: Option<Job>,
    /// A tool that runs on without a worker that would report it.
    pub(crate) orphan: Option<Job>,
}

/// Where a worker's only slot stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Step {
    /// The process does not exist.
    Gone,
    Idle,
    /// It has sent a claim.
    Asking(Claim),
    /// The answer to its claim is missing.
    Silent(Job),
    /// It may run the tool, or is running it.
    Claimed(Job),
    /// A `transaction` whose COMMIT was not answered.
    Unsure(Job),
    /// It knows how the attempt ended and has to record it.
    Ended(Job, Ran),
}

/// A claim under way: first the worker's row is read and locked, then the call's row is moved.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Claim {
    pub(crate) job: Job,
    pub(crate) worker_was_live: bool,
}

/// What a worker remembers of its attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Job {
    pub(crate) call: u8,
    pub(crate) attempt: Attempt,
    /// As it stood in the row when it was claimed.
    pub(crate) earlier_unknown: bool,
}

/// How an attempt ended, as its worker sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Ran {
    Applied,
    /// Proven by the executor.
    NotStarted,
    /// Nothing was started, for a reason of the platform.
    TakenBack,
    /// The tool said no, and it is not tried again.
    No,
    /// The tool said no; the policy says that it may be asked again.
    NotNow,
    Unknown,
    /// Unknown, and the tool may still be running.
    Abandoned,
}

/// Who submits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Caller {
    Idle,
    /// The accept was not answered.
    Unsure,
    /// Got this call's id.
    Told(u8),
    /// Was told that the outcome is unknown.
    Refused,
}

/// The client that cancels call 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Cancel {
    Idle,
    /// Its statement has seen the row in the open table and waits for the statement that has it locked.
    Waiting,
    /// Its statement found neither the old place nor the new one.
    SawNothing,
    Answered,
}

/// What happened beyond Postgres.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Outside {
    /// How often the effect has happened, 2 standing for more.
    pub(crate) effects: u8,
    /// Workers and what they left behind, a bit each, whose request comes to nothing: it is an earlier one under a key that
    /// has got a "no".
    pub(crate) void: u8,
}

/// What no single state shows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Breach {
    /// A move that is not in `fleet::state`.
    IllegalMove,
    /// A result was recorded by another attempt than the call's.
    WrongRecorder,
    /// A finished call was finished again.
    FinishedTwice,
    /// A claim was committed for a worker that had been declared dead or fenced.
    ClaimedPastFence,
    /// An attempt began after a client was told that the call is cancelled or will be.
    ClaimedAfterCancel,
    /// A client was told that a call which exists does not.
    ToldAbsent,
}

impl System {
    pub(crate) const START: Self = Self {
        ledger: Ledger {
            open: [None; CALLS],
            history: [None; CALLS],
            key: None,
            registered: [Registered::Live; WORKERS],
            effects: [0; CALLS],
        },
        backup: None,
        lost_writes: false,
        pointer: [false; CALLS],
        workers: [Worker::IDLE; WORKERS],
        callers: [Caller::Idle; CALLS],
        cancel: Cancel::Idle,
        outside: [Outside {
            effects: 0,
            void: 0,
        }; CALLS],
        breach: None,
    };

    /// How often the call's effect has happened, wherever it lives.
    pub(crate) const fn effects(&self, call: usize) -> u8 {
        self.outside[call].effects + self.ledger.effects[call]
    }

    /// Whether a process is at the row's attempt.
    pub(crate) fn is_run(&self, row: &Row) -> bool {
        self.workers.iter().any(|worker| {
            let job = match worker.step {
                Step::Gone | Step::Idle => None,
                Step::Asking(claim) => Some(claim.job),
                Step::Silent(job)
                | Step::Claimed(job)
                | Step::Unsure(job)
                | Step::Ended(job, _) => Some(job),
            };
            job.is_some_and(|job| row.is_of(job.attempt))
        })
    }

    /// The first promise that is broken stays.
    pub(crate) fn breach(&mut self, breach: Breach) {
        self.breach.get_or_insert(breach);
    }

    /// The smallest name that no row and no process remembers.
    pub(crate) fn fresh_attempt(&self) -> Attempt {
        let used = |attempt: Attempt| {
            let in_ledger = |ledger: &Ledger| {
                let rows = ledger.open.iter().chain(&ledger.history).flatten();
                rows.into_iter().any(|row| row.attempt == Some(attempt))
            };
            in_ledger(&self.ledger)
                || self.backup.as_ref().is_some_and(in_ledger)
                || self.workers.iter().any(|worker| worker.remembers(attempt))
        };
        (1..).find(|name| !used(*name)).expect("few are in use")
    }
}

impl Row {
    pub(crate) const QUEUED: Self = Self {
        state: State::Queued,
        attempt: None,
        worker: None,
        spent: 0,
        lost: 0,
        effect_unknown: false,
        cancel_requested: false,
        quarantined: false,
        suspects: 0,
        ended: Ended::NotYet,
        known: EffectKnown::None,
    };

    /// Whether this attempt holds it, or held it when it went in doubt.
    pub(crate) fn is_of(&self, attempt: Attempt) -> bool {
        self.attempt == Some(attempt)
    }

    /// Whether a person has ended it as a doubt that nobody can settle.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.ended == Ended::Settled && self.known == EffectKnown::Unknown
    }

    /// `toolfleet.is_fenced`: whether everything that was started for the call is proven gone.
    pub(crate) const fn is_fenced(&self) -> bool {
        !self.quarantined && self.suspects == 0
    }
}

impl Ledger {
    /// The row, wherever it is: a new statement over both places.
    pub(crate) fn find(&self, call: usize) -> Option<&Row> {
        self.open[call].as_ref().or(self.history[call].as_ref())
    }

    /// The worker is proven gone, with all it started: what rows say of it stays true, and it is under no suspicion.
    pub(crate) fn fence(&mut self, worker: usize) {
        for row in self.open.iter_mut().flatten() {
            row.suspects &= !bit(worker);
            if row.worker == Some(slot(worker)) {
                row.worker = Some(GONE);
            }
        }
    }
}

impl Worker {
    pub(crate) const IDLE: Self = Self {
        step: Step::Idle,
        late: None,
        given_up: None,
        orphan: None,
    };

    /// Whether a process, a statement or a tool still knows this attempt.
    pub(crate) fn remembers(&self, attempt: Attempt) -> bool {
        let mut copy = *self;
        copy.jobs_mut().any(|job| job.attempt == attempt)
    }

    /// Every attempt it knows.
    pub(crate) fn jobs_mut(&mut self) -> impl Iterator<Item = &mut Job> {
        let in_step = match &mut self.step {
            Step::Gone | Step::Idle => None,
            Step::Asking(claim) => Some(&mut claim.job),
            Step::Silent(job) | Step::Claimed(job) | Step::Unsure(job) | Step::Ended(job, _) => {
                Some(job)
            }
        };
        let late = self.late.as_mut().map(|claim| &mut claim.job);
        [in_step, late, self.given_up.as_mut(), self.orphan.as_mut()]
            .into_iter()
            .flatten()
    }

    /// Whether one of its claims holds the lock on its row.
    pub(crate) fn locks_its_row(&self) -> bool {
        let asking = match self.step {
            Step::Asking(claim) => Some(claim),
            _ => None,
        };
        [asking, self.late]
            .into_iter()
            .flatten()
            .any(|claim| claim.worker_was_live)
    }
}

/// A worker's bit.
pub(crate) const fn bit(worker: usize) -> u8 {
    1 << worker
}

/// The bit of what a worker left behind.
pub(crate) const fn orphan_bit(worker: usize) -> u8 {
    bit(WORKERS + worker)
}

/// A worker's slot as a row names it.
pub(crate) fn slot(index: usize) -> u8 {
    u8::try_from(index).expect("a handful")
}

/// Whether the tool may change something.
pub(crate) const fn is_write(effect: Effect) -> bool {
    match effect {
        Effect::Read => false,
        Effect::Idempotent | Effect::Once | Effect::Transaction => true,
    }
}

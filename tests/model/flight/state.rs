//! The world of three calls with one question: their rows, the kept rows, and two workers at their gates.
//!
//! No clock: an answer may grow too old, a lease lapse and a deadline pass at any moment.

use super::verdict::Leader;

/// Calls that there are. Each is queued from the beginning: one that nobody has delivered is as good as one that comes later.
pub(super) const CALLS: usize = 3;
/// Workers that there are.
pub(super) const WORKERS: usize = 2;
/// Questions that there are, at most.
pub(super) const KEYS: usize = 2;

/// Everything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct FlightState {
    pub(super) ledger: FlightLedger,
    /// An older copy of the ledger, to which a lossy failover falls back.
    pub(super) backup: Option<FlightLedger>,
    /// Such a failover has happened.
    pub(super) lost_writes: bool,
    /// An operator has taken answers away.
    pub(super) purged: bool,
    pub(super) gates: [Gate; WORKERS],
    /// The calls in whose lines others wait in vain, as the sweep has seen.
    pub(super) sweep: [bool; CALLS],
    pub(super) breach: Option<FlightBreach>,
}

/// What Postgres has committed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct FlightLedger {
    pub(super) calls: [FlightRow; CALLS],
    pub(super) kept: [Option<KeptRow>; KEYS],
}

/// A call's row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum FlightRow {
    Open(OpenCall),
    Over(Over),
}

/// A call that waits or runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct OpenCall {
    /// The worker that runs it.
    pub(super) by: Option<u8>,
    /// It is held in the line of this call.
    pub(super) after: Option<u8>,
    /// An attempt was spent.
    pub(super) spent: bool,
    /// An attempt was lost with its worker.
    pub(super) lost: bool,
    pub(super) cancel_requested: bool,
    /// It asks its tool without a look: never, but where that rule is left out.
    pub(super) passes: bool,
}

/// How a call ended, as far as others can tell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Over {
    /// With an answer of its own that counts.
    Good,
    /// With one that counts and is too large to be kept.
    Large,
    /// With one whose time is over.
    Old,
    /// With one that was too large, and whose time is over.
    OldLarge,
    /// With the answer of another call.
    Copied,
    /// With none: it failed, expired or was cancelled.
    Bad,
    /// The history has dropped it.
    Dropped,
}

/// `toolfleet.kept_answers`: one row for each question.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct KeptRow {
    pub(super) leader: u8,
    /// The finished call that has the answer. When it counts no more, that call says it.
    pub(super) answer: Option<u8>,
    /// The leader before has failed.
    pub(super) failed_before: bool,
    pub(super) is_apart: bool,
}

/// Where a worker's only slot stands with a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Gate {
    Idle,
    /// `look` has read the call's row: whether the call has begun.
    Read(u8, bool),
    /// `look` has read the kept row, and needs its lock.
    Waits(u8, bool),
    /// `look` is about to put it aside behind the second one.
    Aside(u8, u8),
    /// The worker ends it with the answer of the second one.
    Answers(u8, u8),
    /// It has to ask its tool.
    Goes(u8, Part),
    Runs(u8, Part),
}

/// Why a call asks its tool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Part {
    /// It fetches the answer for all.
    Leads,
    /// It has no part in any of that, or what it was to be answered with is gone.
    Alone,
}

/// What no single world shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum FlightBreach {
    /// There is no such move.
    IllegalMove,
    /// A call was answered with what another question got, or what another call was answered with.
    OtherQuestion,
    /// An answer was found that is too old, or that the history does not have.
    OldAnswer,
    /// A call failed because another one did.
    Inherited,
    /// A call that takes no part was answered, put aside, or had its answer given away.
    TookPart,
}

impl OpenCall {
    const QUEUED: Self = Self {
        by: None,
        after: None,
        spent: false,
        lost: false,
        cancel_requested: false,
        passes: false,
    };

    /// Whether an attempt of it has ended.
    pub(super) const fn has_begun(&self) -> bool {
        self.spent || self.lost
    }

    /// Whether a message may claim it, or a look find it.
    pub(super) const fn is_at_gate(&self) -> bool {
        self.by.is_none() && self.after.is_none() && !self.cancel_requested
    }
}

impl FlightRow {
    pub(super) const fn open(self) -> Option<OpenCall> {
        match self {
            Self::Open(open) => Some(open),
            Self::Over(_) => None,
        }
    }

    /// As a kept row's leader.
    pub(super) const fn as_leader(self) -> Leader {
        match self {
            Self::Open(_) => Leader::Open,
            Self::Over(Over::Good) => Leader::Good,
            Self::Over(Over::Large) => Leader::Large,
            Self::Over(Over::Old) => Leader::Old,
            Self::Over(Over::OldLarge) => Leader::OldLarge,
            Self::Over(Over::Copied | Over::Bad | Over::Dropped) => Leader::Bad,
        }
    }
}

impl FlightLedger {
    pub(super) fn open(&self, call: u8) -> Option<OpenCall> {
        self.calls[usize::from(call)].open()
    }
}

impl FlightState {
    pub(super) const START: Self = Self {
        ledger: FlightLedger {
            calls: [FlightRow::Open(OpenCall::QUEUED); CALLS],
            kept: [None; KEYS],
        },
        backup: None,
        lost_writes: false,
        purged: false,
        gates: [Gate::Idle; WORKERS],
        sweep: [false; CALLS],
        breach: None,
    };

    /// Whether a process runs the attempt that the row names.
    pub(super) fn is_run(&self, call: u8, by: u8) -> bool {
        matches!(self.gates[usize::from(by)], Gate::Runs(run, _) if run == call)
    }

    /// The first promise that is broken stays.
    pub(super) fn breach(&mut self, breach: FlightBreach) {
        self.breach.get_or_insert(breach);
    }
}

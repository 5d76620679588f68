//! The world: two or three calls, what dispatchers remember, what the stream holds, the places of one tool.

use fleet::call::State;

use crate::state::{Attempt, Ran, Registered};

/// Calls there may be.
pub(crate) const CALLS: usize = 3;
/// Places of the tool there may be.
pub(crate) const PLACES: usize = 2;
/// Workers and dispatchers there may be.
pub(crate) const PROCESSES: usize = 2;
/// Messages of the queue that the stream may hold: the fewest that show both sides.
pub(crate) const ALLOWANCE: i8 = 1;
/// Calls of a tenant that may be under way in a queue.
pub(crate) const UNDER_WAY: u8 = 1;
/// What a place names that nothing has ever taken.
pub(crate) const NOTHING: Attempt = 0;

/// Everything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct HeldState {
    pub(crate) rows: [Option<HeldRow>; CALLS],
    pub(crate) requests: [Request; CALLS],
    pub(crate) pointers: [Pointers; CALLS],
    /// The attempt that each place names.
    pub(crate) places: [Attempt; PLACES],
    /// The limit of the tool's newest version.
    pub(crate) limit: u8,
    pub(crate) dispatchers: [Dispatcher; PROCESSES],
    pub(crate) workers: [HeldWorker; PROCESSES],
    /// How often the effect of each `once` call has happened, 2 standing for more.
    pub(crate) effects: [u8; CALLS],
    pub(crate) quarantined: bool,
    /// A promise that was broken by a step rather than by a state.
    pub(crate) breach: Option<HeldBreach>,
}

/// Where a call waits while it is held.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum HeldLine {
    /// With the others of its queue.
    Queue,
    /// The same, where a tenant may have only so many of them under way. They are all of one tenant.
    Slots,
    /// With the others of its tool, which has a limit.
    Tool,
    /// In a line that only dispatchers of a newer release know.
    Newer,
}

/// A call's row, open or ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct HeldRow {
    pub(crate) state: State,
    pub(crate) held: bool,
    /// Its pause is not over (`due_at`).
    pub(crate) waits: bool,
    pub(crate) attempt: Option<Attempt>,
    /// The worker that runs it.
    pub(crate) worker: Option<u8>,
    /// The limit that its claim saw.
    pub(crate) limit: u8,
    pub(crate) effect_unknown: bool,
    pub(crate) cancel_requested: bool,
    /// In doubt: its attempt's time is over.
    pub(crate) time_is_over: bool,
}

/// A submission on its way through a dispatcher.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Request {
    NotSent,
    /// Admitted, with a permit or to be held; not in the ledger yet.
    Admitted {
        dispatcher: u8,
        permit: bool,
    },
    /// In the ledger, and not published yet or said to be held.
    Committed {
        dispatcher: u8,
        permit: bool,
    },
    Over,
}

/// The messages of one call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Pointers {
    /// The one under the call's number.
    pub(crate) current: Message,
    /// One under an earlier number is in the stream.
    pub(crate) earlier: bool,
    /// There has been one.
    pub(crate) ever: bool,
}

/// A message in the stream. As long as it is there, the stream refuses another one under its number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Message {
    Absent,
    Waiting,
    /// A worker has it and has not acknowledged it.
    InHand,
}

/// What a dispatcher remembers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Dispatcher {
    /// Publications that are allowed until the next look at the stream.
    pub(crate) room: i8,
    /// Publications that were allowed and not made yet.
    pub(crate) on_their_way: i8,
    /// The queue is closed: calls wait in its line.
    pub(crate) holds: bool,
    /// The tenant's calls under way, as far as it believes.
    pub(crate) under_way: u8,
    /// The tenant's calls wait: a new one waits behind them.
    pub(crate) tenant_waits: bool,
    /// The room in the tool's line that it has counted and not used yet.
    pub(crate) counted: Option<u8>,
    /// Which lines it was told of; only a mutant remembers that.
    pub(crate) told: [bool; 2],
}

/// A worker process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct HeldWorker {
    pub(crate) step: HeldStep,
    pub(crate) registered: Registered,
}

/// Where a worker's only slot stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum HeldStep {
    Gone,
    Idle,
    /// It has sent a claim.
    Asking(Taken, Attempt),
    /// Postgres carries the claim out: the places are judged, and nothing is locked yet.
    Judged(Taken, Attempt, Judgement),
    /// The answer to its claim is missing.
    Silent(Taken, Attempt),
    /// It has not got the call, and has to look why.
    NotOurs(Taken),
    /// It is about to acknowledge the message, or to hand it back.
    Disposing(Taken, Disposal),
    Running(Run),
    /// It knows how the attempt ended and has to record it.
    Ended(Run, Ran),
}

/// A message that a worker has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Taken {
    pub(crate) call: u8,
    /// It is the one under the call's number.
    pub(crate) current: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Disposal {
    Acknowledge,
    HandBack,
}

/// What a claim saw of the places when it began.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Judgement {
    /// The attempt that each free place named.
    pub(crate) free: [Option<Attempt>; PLACES],
    pub(crate) limit: u8,
}

/// An attempt, as its worker knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Run {
    pub(crate) call: u8,
    pub(crate) attempt: Attempt,
    /// The place that it took; only a mutant remembers that.
    pub(crate) place: Option<u8>,
}

/// What no single state shows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum HeldBreach {
    /// A move that is not in `fleet::state`.
    IllegalMove,
    /// A held call was claimed.
    ClaimedHeld,
    /// A place was taken whose attempt was live.
    PlaceTaken,
    /// A claim saw a free place, and as many live attempts as the limit says.
    PlaceBeyondLimit,
    /// An acknowledgement removed the message of a call that may run.
    PointerTaken,
}

impl Dispatcher {
    /// A process that has just started.
    pub(crate) const NEW: Self = Self {
        room: ALLOWANCE,
        on_their_way: 0,
        holds: false,
        under_way: 0,
        tenant_waits: false,
        counted: None,
        told: [false; 2],
    };
}

impl HeldWorker {
    pub(crate) const IDLE: Self = Self {
        step: HeldStep::Idle,
        registered: Registered::Live,
    };
}

impl Pointers {
    pub(crate) const NONE: Self = Self {
        current: Message::Absent,
        earlier: false,
        ever: false,
    };
}

impl HeldRow {
    /// A call that has just been accepted.
    pub(crate) const fn accepted(held: bool) -> Self {
        Self {
            state: State::Queued,
            held,
            waits: false,
            attempt: None,
            worker: None,
            limit: 0,
            effect_unknown: false,
            cancel_requested: false,
            time_is_over: false,
        }
    }

    /// Whether its attempt holds a place.
    pub(crate) fn is_live(&self) -> bool {
        self.attempt.is_some() && super::places::is_live(self.state, self.time_is_over)
    }

    /// Whether a claim may take it.
    pub(crate) fn may_run(&self) -> bool {
        super::places::may_claim(self.state, self.held, self.waits, self.cancel_requested)
    }
}

impl HeldStep {
    /// The attempt's name that the step remembers, and the call.
    pub(crate) const fn attempt(self) -> Option<Attempt> {
        match self {
            Self::Asking(_, attempt) | Self::Judged(_, attempt, _) | Self::Silent(_, attempt) => {
                Some(attempt)
            }
            Self::Running(run) | Self::Ended(run, _) => Some(run.attempt),
            Self::Gone | Self::Idle | Self::NotOurs(_) | Self::Disposing(..) => None,
        }
    }

    /// The message that it has not disposed of.
    pub(crate) const fn taken(self) -> Option<Taken> {
        match self {
            Self::Asking(taken, _)
            | Self::Judged(taken, ..)
            | Self::Silent(taken, _)
            | Self::NotOurs(taken)
            | Self::Disposing(taken, _) => Some(taken),
            Self::Gone | Self::Idle | Self::Running(_) | Self::Ended(..) => None,
        }
    }

    /// The same, to be changed.
    pub(crate) const fn taken_mut(&mut self) -> Option<&mut Taken> {
        match self {
            Self::Asking(taken, _)
            | Self::Judged(taken, ..)
            | Self::Silent(taken, _)
            | Self::NotOurs(taken)
            | Self::Disposing(taken, _) => Some(taken),
            Self::Gone | Self::Idle | Self::Running(_) | Self::Ended(..) => None,
        }
    }
}

impl HeldState {
    /// The row of the call that this attempt holds.
    pub(crate) fn of(&self, attempt: Attempt) -> Option<&HeldRow> {
        let rows = self.rows.iter().flatten();
        rows.into_iter()
            .find(|row| attempt != NOTHING && row.attempt == Some(attempt))
    }

    /// Of each place, whether the attempt that it names is live.
    pub(crate) fn live(&self) -> [bool; PLACES] {
        self.places
            .map(|attempt| self.of(attempt).is_some_and(HeldRow::is_live))
    }

    /// The first promise that is broken stays.
    pub(crate) fn breach(&mut self, breach: HeldBreach) {
        self.breach.get_or_insert(breach);
    }

    /// The smallest name that nothing remembers.
    pub(crate) fn fresh_attempt(&self) -> Attempt {
        let used = |name: Attempt| {
            let judged = |step: HeldStep| match step {
                HeldStep::Judged(_, _, judgement) => judgement.free.contains(&Some(name)),
                _ => false,
            };
            self.places.contains(&name)
                || self.of(name).is_some()
                || self
                    .workers
                    .iter()
                    .any(|worker| worker.step.attempt() == Some(name) || judged(worker.step))
        };
        (1..).find(|name| !used(*name)).expect("few are in use")
    }

    /// Permits that a request of this dispatcher has in hand.
    pub(crate) fn permits(&self, of: usize) -> i8 {
        let has = |request: &&Request| {
            matches!(request, Request::Admitted { dispatcher, permit: true } | Request::Committed { dispatcher, permit: true }
                if usize::from(*dispatcher) == of)
        };
        i8::try_from(self.requests.iter().filter(has).count()).expect("a handful")
    }
}

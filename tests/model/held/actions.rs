//! What can happen next, and which of it is no fault.

use fleet::call::Effect;

use super::{
    model::HeldModel,
    rules::HeldMutant,
    state::{HeldLine, HeldState, HeldStep},
};

/// A step of one component. The numbers are calls, dispatchers or workers, in the order of the names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum HeldAction {
    /// A dispatcher admits a call: with a permit, or to be held.
    Admit {
        call: u8,
        dispatcher: u8,
    },
    /// It is refused after all, or its key names another call.
    Refuse(u8),
    Commit(u8),
    /// It is in the ledger, and its dispatcher does not hear of it.
    CommitUnanswered(u8),
    /// The dispatcher publishes it, or remembers that it is held.
    Announce(u8),
    /// The dispatcher's process ends; another one takes its place.
    EndDispatcher(u8),

    /// Looks what the stream holds of the queue.
    LookAtStream(u8),
    Audit(u8),
    /// One turn of the queue's line.
    ReleaseQueue(u8),
    /// One turn of the line of a queue whose slots tenants share.
    ReleaseSlots(u8),
    /// Counts the places of the tool and what is on its way to them.
    CountPlaces(u8),
    /// One turn of the tool's line, by the last count.
    ReleaseTool(u8),
    /// The pause of a call is over: it is published where there is room, and held where not.
    TakeDue {
        call: u8,
        dispatcher: u8,
    },
    /// The sweep publishes what may run.
    PublishAgain(u8),
    LosePointer(u8),
    /// A message of an earlier number comes again: its acknowledgement was lost.
    RepeatPointer(u8),

    /// A worker takes the message under the call's number, and sends a claim.
    DeliverTo {
        worker: u8,
        call: u8,
    },
    DeliverEarlierTo {
        worker: u8,
        call: u8,
    },
    /// Postgres reads the worker's row and the places.
    JudgePlaces(u8),
    /// The call and a place are locked; both move, or the call is put back into its line.
    TakePlace(u8),
    TakePlaceUnanswered(u8),
    /// The place is locked by another claim, which waits for its commit.
    FindPlacesLocked(u8),
    LoseClaim(u8),
    ReadBackClaim(u8),
    /// Reads why it has not got the call.
    LookWhy(u8),
    DisposeOf(u8),

    Apply(u8),
    /// The effect happens, and the answer breaks off.
    ApplyUnanswered(u8),
    /// Nothing happens, and no answer says so.
    StaySilent(u8),
    /// The platform has a reason not to start.
    GoBack(u8),
    Record(u8),
    RecordUnanswered(u8),

    EndWorker(u8),
    /// The same, after the tool had its effect.
    EndWorkerAfterEffect(u8),
    DeclareSilent(u8),

    /// The sweep takes a running call from a dead worker.
    TakeFromDead(u8),
    /// The time of an attempt in doubt is over.
    TimePasses(u8),
    ExpireQueued(u8),
    CancelCall(u8),
    /// Postgres has lost writes.
    QuarantineAll,
    /// A newer version of the tool allows one attempt at a time.
    Shrink,
}

impl HeldAction {
    /// Everything that can happen in a configuration; whether it can happen now is decided when it is tried.
    pub(crate) fn alphabet(model: &HeldModel) -> Vec<Self> {
        use HeldAction::*;
        let config = &model.config;
        let number = |n: usize| u8::try_from(n).expect("a handful");
        let (workers, dispatchers) = (number(config.workers), number(config.dispatchers));
        let lines = config.lines.iter().zip(0_u8..);
        let known = lines.filter(|(line, _)| line.is_some_and(|line| line != HeldLine::Newer));
        let has = |line| config.lines.contains(&Some(line));
        let mut all = Vec::new();
        for (_, call) in known {
            for dispatcher in 0..dispatchers {
                all.extend([Admit { call, dispatcher }, TakeDue { call, dispatcher }]);
            }
            all.extend([
                Refuse(call),
                CommitUnanswered(call),
                Commit(call),
                Announce(call),
                PublishAgain(call),
            ]);
            all.extend([TakeFromDead(call), ExpireQueued(call)]);
            all.extend(config.cancel.then_some(CancelCall(call)));
            if config.effect == Effect::Once || config.quarantine {
                all.push(TimePasses(call));
            }
            for worker in 0..workers {
                all.extend([
                    DeliverTo { worker, call },
                    DeliverEarlierTo { worker, call },
                ]);
            }
            if config.repeats {
                all.extend([LosePointer(call), RepeatPointer(call)]);
            }
        }
        for d in 0..dispatchers {
            all.push(EndDispatcher(d));
            if has(HeldLine::Queue) {
                all.extend([LookAtStream(d), ReleaseQueue(d)]);
            }
            if has(HeldLine::Slots) {
                all.extend([LookAtStream(d), ReleaseSlots(d)]);
            }
            if has(HeldLine::Tool) {
                all.extend([CountPlaces(d), ReleaseTool(d)]);
            }
            if config.without == Some(HeldMutant::PermitLeaked) {
                all.push(Audit(d));
            }
        }
        for w in 0..workers {
            all.extend([JudgePlaces(w), TakePlace(w), LookWhy(w), DisposeOf(w)]);
            all.extend([Apply(w), StaySilent(w), GoBack(w), Record(w)]);
            all.extend([EndWorker(w), DeclareSilent(w), RecordUnanswered(w)]);
            if config.effect == Effect::Once {
                all.extend([ApplyUnanswered(w), EndWorkerAfterEffect(w)]);
            }
            if config.silence {
                all.extend([TakePlaceUnanswered(w), LoseClaim(w), ReadBackClaim(w)]);
            }
            if has(HeldLine::Tool) && workers > 1 {
                all.push(FindPlacesLocked(w));
            }
        }
        all.extend(config.quarantine.then_some(QuarantineAll));
        all.extend(config.shrinks.then_some(Shrink));
        all
    }

    /// Whether it happens by itself when nothing fails and no client interferes.
    pub(crate) fn is_natural(self, before: &HeldState) -> bool {
        use HeldAction::*;
        match self {
            Commit(_)
            | Announce(_)
            | LookAtStream(_)
            | Audit(_)
            | ReleaseQueue(_)
            | ReleaseSlots(_)
            | CountPlaces(_)
            | ReleaseTool(_)
            | TakeDue { .. }
            | PublishAgain(_)
            | DeliverTo { .. }
            | DeliverEarlierTo { .. }
            | JudgePlaces(_)
            | TakePlace(_)
            | ReadBackClaim(_)
            | LookWhy(_)
            | DisposeOf(_)
            | Apply(_)
            | Record(_)
            | TakeFromDead(_)
            | TimePasses(_) => true,
            DeclareSilent(w) => before.workers[usize::from(w)].step == HeldStep::Gone,
            Admit { .. }
            | Refuse(_)
            | CommitUnanswered(_)
            | EndDispatcher(_)
            | LosePointer(_)
            | RepeatPointer(_)
            | TakePlaceUnanswered(_)
            | FindPlacesLocked(_)
            | LoseClaim(_)
            | ApplyUnanswered(_)
            | StaySilent(_)
            | GoBack(_)
            | RecordUnanswered(_)
            | EndWorker(_)
            | EndWorkerAfterEffect(_)
            | ExpireQueued(_)
            | CancelCall(_)
            | QuarantineAll
            | Shrink => false,
        }
    }
}

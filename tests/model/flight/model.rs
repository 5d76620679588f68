//! The model for `stateright`: what can happen, and which step leads where.

use std::collections::BTreeSet;

use fleet::call::State;
use stateright::{Model, Property};

use super::{
    canonical::Renaming,
    ledger::AttemptEnds,
    properties,
    rules::{FlightConfig, FlightMutant},
    state::{CALLS, FlightRow, FlightState, Gate, Over, WORKERS},
};
use crate::graph::Walked;

/// One step. The numbers are workers or calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum FlightAction {
    /// A worker has a call's message, and `look` reads the call's row. A message may come any number of times.
    ReadCall {
        worker: u8,
        call: u8,
    },
    /// `look` reads the kept row.
    ReadKept(u8),
    /// `look` has its lock.
    LockKept(u8),
    /// `look` puts the call aside.
    PutAside(u8),
    /// The worker ends the call with another one's answer.
    AnswerCall(u8),
    ClaimCall(u8),
    EndWell(u8),
    /// With an answer that is too large to be kept.
    EndLarge(u8),
    EndBadly(u8),
    /// The tool said no, and may be asked again.
    EndNotNow(u8),

    CrashWorker(u8),
    /// The sweep takes a running call from a worker that is dead, or far too late.
    TakeFrom(u8),
    ExpireCall(u8),
    CancelCall(u8),

    /// The sweep looks whether the leaders of lines are over.
    LookAtLines,
    /// The sweep hands the followers of one of them back.
    LetGo,

    /// An answer's time is over.
    GrowOld(u8),
    /// The time is over in which equal calls are runs of their own.
    EndApart(u8),
    /// The history drops a call that is over.
    DropCall(u8),
    /// An operator takes away what is kept; upkeep drops rows in the same way.
    Purge(u8),
    CopyLedger,
    FallBack,
}

/// One configuration of it.
pub(super) struct FlightModel {
    pub(super) config: FlightConfig,
    alphabet: Vec<FlightAction>,
    alike: Vec<Renaming>,
}

impl FlightModel {
    pub(super) fn new(config: FlightConfig) -> Self {
        Self {
            config,
            alphabet: alphabet(&config),
            alike: Renaming::all(&config),
        }
    }

    /// Whether this rule is left out.
    pub(super) fn lacks(&self, rule: FlightMutant) -> bool {
        self.config.without == Some(rule)
    }

    fn apply(&self, s: &mut FlightState, action: FlightAction) -> bool {
        use FlightAction::*;
        let at = usize::from;
        match action {
            ReadCall { worker, call } => Self::deliver(s, at(worker), call),
            ReadKept(w) => self.read(s, at(w)),
            LockKept(w) => self.lock(s, at(w)),
            PutAside(w) => Self::put_aside(s, at(w)),
            AnswerCall(w) => self.answer(s, at(w)),
            ClaimCall(w) => Self::claim(s, w),
            EndWell(w) => Self::complete(s, w, AttemptEnds::With(Over::Good)),
            EndLarge(w) => Self::complete(s, w, AttemptEnds::With(Over::Large)),
            EndBadly(w) => Self::complete(s, w, AttemptEnds::With(Over::Bad)),
            EndNotNow(w) => Self::complete(s, w, AttemptEnds::NotNow),
            CrashWorker(w) => std::mem::replace(&mut s.gates[at(w)], Gate::Idle) != Gate::Idle,
            TakeFrom(call) => Self::take_lost(s, call),
            ExpireCall(call) => Self::expire(s, call),
            CancelCall(call) => Self::cancel(s, call),
            LookAtLines => self.look_at_lines(s),
            LetGo => self.let_go(s),
            GrowOld(call) => Self::grow_old(s, call),
            EndApart(key) => {
                let row = &mut s.ledger.kept[at(key)];
                row.as_mut()
                    .is_some_and(|row| std::mem::take(&mut row.is_apart))
            }
            DropCall(call) => {
                let row = &mut s.ledger.calls[at(call)];
                let is_over = matches!(row, FlightRow::Over(_));
                if is_over {
                    *row = FlightRow::Over(Over::Dropped);
                }
                is_over
            }
            Purge(key) => {
                s.purged = true;
                s.ledger.kept[at(key)].take().is_some()
            }
            CopyLedger => {
                let possible = s.backup.is_none() && !s.lost_writes;
                s.backup = s.backup.or(possible.then_some(s.ledger));
                possible
            }
            FallBack => Self::fail_over(s),
        }
    }
}

/// Everything that can happen in a configuration; whether it can happen now is decided when it is tried.
fn alphabet(config: &FlightConfig) -> Vec<FlightAction> {
    use FlightAction::*;
    let number = |n: usize| u8::try_from(n).expect("a handful");
    let mut all = vec![
        LookAtLines,
        LetGo,
        EndApart(0),
        CopyLedger,
        FallBack,
        Purge(0),
    ];
    for worker in 0..number(WORKERS) {
        all.extend([
            ReadKept(worker),
            LockKept(worker),
            PutAside(worker),
            AnswerCall(worker),
            ClaimCall(worker),
            EndWell(worker),
            EndLarge(worker),
            EndBadly(worker),
            EndNotNow(worker),
            CrashWorker(worker),
        ]);
        all.extend((0..number(CALLS)).map(|call| ReadCall { worker, call }));
    }
    for call in 0..number(CALLS) {
        all.extend([
            TakeFrom(call),
            ExpireCall(call),
            CancelCall(call),
            GrowOld(call),
            DropCall(call),
        ]);
    }
    all.retain(|action| match action {
        CancelCall(_) => config.cancel,
        EndNotNow(_) => config.not_now,
        EndLarge(_) => config.large,
        DropCall(_) => config.drops,
        Purge(_) => config.purge,
        CopyLedger | FallBack => config.failover,
        _ => true,
    });
    all
}

impl Model for FlightModel {
    type State = FlightState;
    type Action = FlightAction;

    fn init_states(&self) -> Vec<FlightState> {
        vec![FlightState::START]
    }

    fn actions(&self, state: &FlightState, actions: &mut Vec<FlightAction>) {
        // A broken promise is not explored further.
        if state.breach.is_none() {
            actions.extend(&self.alphabet);
        }
    }

    fn next_state(&self, state: &FlightState, action: FlightAction) -> Option<FlightState> {
        self.step(state, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(&self.config)
    }
}

impl Walked for FlightModel {
    const DECIDED: &'static str = properties::ENDS;
    const SETTLED: &'static str = properties::RESTS;

    fn name(&self) -> &'static str {
        self.config.name
    }

    fn start(&self) -> FlightState {
        FlightState::START
    }

    fn alphabet(&self) -> &[FlightAction] {
        &self.alphabet
    }

    fn take(&self, before: &FlightState, action: FlightAction) -> Option<FlightState> {
        let mut after = *before;
        self.apply(&mut after, action).then_some(after)
    }

    fn simplify(&self, world: &mut FlightState) {
        world.forget();
        *world = Renaming::first(&self.alike, world);
    }

    /// Tools may answer no, always: the way on must not need a good answer, or time. Nor may anybody need the end of a call that fetches
    /// nothing for them: it may take as long as it likes while others are in its line.
    fn is_natural(&self, action: FlightAction, before: &FlightState) -> bool {
        use FlightAction::*;
        match action {
            ReadCall { .. }
            | ReadKept(_)
            | LockKept(_)
            | PutAside(_)
            | AnswerCall(_)
            | ClaimCall(_)
            | LookAtLines
            | LetGo => true,
            EndBadly(w) => match before.gates[usize::from(w)] {
                Gate::Runs(call, _) => {
                    self.fetches(before, call) || !properties::is_followed(before, call)
                }
                _ => false,
            },
            // A sweep that takes a call from a live worker is a fault of time; from a dead one it is its duty.
            TakeFrom(call) => before
                .ledger
                .open(call)
                .and_then(|row| row.by)
                .is_some_and(|by| !before.is_run(call, by)),
            EndWell(_) | EndLarge(_) | EndNotNow(_) | CrashWorker(_) | ExpireCall(_)
            | CancelCall(_) | GrowOld(_) | EndApart(_) | DropCall(_) | Purge(_) | CopyLedger
            | FallBack => false,
        }
    }

    fn is_decided(&self, world: &FlightState) -> bool {
        properties::is_over(world)
    }

    fn is_settled(&self, world: &FlightState) -> bool {
        properties::is_over(world)
            && world.gates == [Gate::Idle; WORKERS]
            && world.sweep == [false; CALLS]
    }

    fn moved(
        before: &FlightState,
        action: FlightAction,
        after: &FlightState,
        moves: &mut BTreeSet<(State, State)>,
    ) {
        if action == FlightAction::FallBack {
            return;
        }
        for (from, to) in before.ledger.calls.iter().zip(&after.ledger.calls) {
            let Some(was) = from.open() else { continue };
            let from = if was.by.is_some() {
                State::Running
            } else {
                State::Queued
            };
            let to = match to {
                FlightRow::Open(row) if row.by.is_some() => State::Running,
                FlightRow::Open(_) => State::Queued,
                FlightRow::Over(Over::Bad) => State::Failed,
                FlightRow::Over(_) => State::Succeeded,
            };
            if from != to {
                moves.insert((from, to));
            }
        }
    }

    fn expected_moves(&self) -> BTreeSet<(State, State)> {
        use State::{Failed, Queued, Running, Succeeded};
        BTreeSet::from([
            (Queued, Running),
            // An answer of another call.
            (Queued, Succeeded),
            // Expired or cancelled: this model does not tell the ends without an answer apart.
            (Queued, Failed),
            (Running, Queued),
            (Running, Succeeded),
            (Running, Failed),
        ])
    }

    fn impossible(&self) -> Vec<FlightAction> {
        Vec::new()
    }

    fn digest(&self, world: &FlightState) -> String {
        properties::digest(world)
    }
}

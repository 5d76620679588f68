//! The model for `stateright`: which step leads where.

use std::collections::BTreeSet;

use fleet::{call::State, hold::Line, state::Move};
use stateright::{Model, Property};

use super::{
    actions::HeldAction,
    canonical::Exchange,
    properties, report,
    rules::{HeldConfig, HeldMutant},
    state::{
        CALLS, Dispatcher, HeldLine, HeldRow, HeldState, HeldStep, HeldWorker, Message, NOTHING,
        PLACES, PROCESSES, Pointers, Request,
    },
};
use crate::{graph::Walked, rules::Decisions, state::Ran};

/// One configuration of it.
pub(crate) struct HeldModel {
    pub(crate) config: HeldConfig,
    pub(crate) decisions: Decisions,
    alphabet: Vec<HeldAction>,
    alike: Vec<Exchange>,
}

impl HeldModel {
    pub(crate) fn new(config: HeldConfig) -> Self {
        // The line that this release does not know is one that it cannot read.
        assert!("pace/tool".parse::<Line>().is_err() && "tool/x".parse::<Line>().is_ok());
        let mut model = Self {
            config,
            decisions: Decisions::new(config.effect),
            alphabet: Vec::new(),
            alike: Exchange::all(&config),
        };
        model.alphabet = HeldAction::alphabet(&model);
        model
    }

    /// Whether this rule is left out.
    pub(crate) fn lacks(&self, rule: HeldMutant) -> bool {
        self.config.without == Some(rule)
    }

    fn apply(&self, s: &mut HeldState, action: HeldAction) -> bool {
        use HeldAction::*;
        let at = usize::from;
        match action {
            Admit { call, dispatcher } => self.admit(s, at(call), dispatcher),
            Refuse(call) => self.give_up(s, at(call)),
            Commit(call) => self.commit(s, at(call), true),
            CommitUnanswered(call) => self.commit(s, at(call), false),
            Announce(call) => self.announce(s, at(call)),
            EndDispatcher(d) => Self::end_dispatcher(s, at(d)),

            LookAtStream(d) => self.look_at_stream(s, at(d)),
            Audit(d) => Self::audit(s, at(d)),
            ReleaseQueue(d) => self.release_queue(s, at(d)),
            ReleaseSlots(d) => self.release_slots(s, at(d)),
            CountPlaces(d) => self.count_places(s, at(d)),
            ReleaseTool(d) => self.release_tool(s, at(d)),
            TakeDue { call, dispatcher } => self.take_due(s, at(call), at(dispatcher)),
            PublishAgain(call) => Self::publish_again(s, at(call)),
            LosePointer(call) => {
                let of = &mut s.pointers[at(call)];
                let lost = of.current == Message::Waiting;
                if lost {
                    of.current = Message::Absent;
                }
                lost
            }
            RepeatPointer(call) => {
                let of = &mut s.pointers[at(call)];
                of.earlier |= of.ever;
                of.ever
            }

            DeliverTo { worker, call } => Self::deliver(s, at(worker), call, true),
            DeliverEarlierTo { worker, call } => Self::deliver(s, at(worker), call, false),
            JudgePlaces(w) => self.judge(s, at(w)),
            TakePlace(w) => self.take_place(s, at(w), false, true),
            TakePlaceUnanswered(w) => self.take_place(s, at(w), false, false),
            FindPlacesLocked(w) => self.take_place(s, at(w), true, true),
            LoseClaim(w) => Self::lose_claim(s, at(w)),
            ReadBackClaim(w) => self.read_back(s, at(w)),
            LookWhy(w) => Self::look_why(s, at(w)),
            DisposeOf(w) => Self::dispose(s, at(w)),

            Apply(w) => self.end_run(s, at(w), Ran::Applied, true),
            ApplyUnanswered(w) => self.end_run(s, at(w), Ran::Unknown, true),
            StaySilent(w) => self.end_run(s, at(w), Ran::Unknown, false),
            GoBack(w) => self.end_run(s, at(w), Ran::TakenBack, false),
            Record(w) | RecordUnanswered(w) => {
                let HeldStep::Ended(run, ran) = s.workers[at(w)].step else {
                    return false;
                };
                self.record(s, run, ran);
                if matches!(action, Record(_)) {
                    s.workers[at(w)].step = HeldStep::Idle;
                }
                true
            }

            EndWorker(w) => self.end_worker(s, at(w), false),
            EndWorkerAfterEffect(w) => self.end_worker(s, at(w), true),
            DeclareSilent(w) => Self::declare_silent(s, at(w)),

            TakeFromDead(call) => self.take_from_dead(s, at(call)),
            TimePasses(call) => match &mut s.rows[at(call)] {
                Some(row) if row.state == State::InDoubt => {
                    row.time_is_over = true;
                    true
                }
                _ => false,
            },
            ExpireQueued(call) => self.end_queued(s, at(call), Move::Expire),
            CancelCall(call) => self.cancel(s, at(call)),
            QuarantineAll => self.quarantine(s),
            Shrink => std::mem::replace(&mut s.limit, 1) != 1,
        }
    }
}

impl Model for HeldModel {
    type State = HeldState;
    type Action = HeldAction;

    fn init_states(&self) -> Vec<HeldState> {
        vec![self.start()]
    }

    fn actions(&self, state: &HeldState, actions: &mut Vec<HeldAction>) {
        // A broken promise is not explored further.
        if state.breach.is_none() {
            actions.extend(&self.alphabet);
        }
    }

    fn next_state(&self, state: &HeldState, action: HeldAction) -> Option<HeldState> {
        self.step(state, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(&self.config)
    }
}

impl Walked for HeldModel {
    const DECIDED: &'static str = properties::RELEASED;
    const SETTLED: &'static str = properties::GIVEN_BACK;

    fn name(&self) -> &'static str {
        self.config.name
    }

    fn start(&self) -> HeldState {
        let newer = |line| line == Some(HeldLine::Newer);
        HeldState {
            rows: self
                .config
                .lines
                .map(|line| newer(line).then_some(HeldRow::accepted(true))),
            requests: [Request::NotSent; CALLS],
            pointers: [Pointers::NONE; CALLS],
            places: [NOTHING; PLACES],
            limit: self.config.limit,
            dispatchers: [Dispatcher::NEW; PROCESSES],
            workers: [HeldWorker::IDLE; PROCESSES],
            effects: [0; CALLS],
            quarantined: false,
            breach: None,
        }
    }

    fn alphabet(&self) -> &[HeldAction] {
        &self.alphabet
    }

    fn take(&self, before: &HeldState, action: HeldAction) -> Option<HeldState> {
        let mut after = *before;
        self.apply(&mut after, action).then_some(after)
    }

    fn simplify(&self, world: &mut HeldState) {
        world.forget();
        *world = Exchange::first(&self.alike, world);
    }

    fn is_natural(&self, action: HeldAction, before: &HeldState) -> bool {
        action.is_natural(before)
    }

    fn is_decided(&self, world: &HeldState) -> bool {
        properties::is_decided(self, world)
    }

    fn is_settled(&self, world: &HeldState) -> bool {
        properties::is_given_back(self, world)
    }

    fn moved(
        before: &HeldState,
        _action: HeldAction,
        after: &HeldState,
        moves: &mut BTreeSet<(State, State)>,
    ) {
        for (from, to) in before.rows.iter().zip(&after.rows) {
            if let (Some(from), Some(to)) = (from, to)
                && from.state != to.state
            {
                moves.insert((from.state, to.state));
            }
        }
    }

    fn expected_moves(&self) -> BTreeSet<(State, State)> {
        properties::moves(&self.config)
    }

    fn impossible(&self) -> Vec<HeldAction> {
        properties::impossible(&self.config)
    }

    fn digest(&self, world: &HeldState) -> String {
        report::digest(self, world)
    }
}

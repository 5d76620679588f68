//! The protocol as a model for `stateright`: which step leads where.

use std::collections::BTreeSet;

use fleet::call::State;
use stateright::{Model, Property};

use crate::{
    actions::Action,
    graph::Walked,
    properties, report,
    rules::{Config, Decisions, Mutant},
    state::{Breach, Caller, Cancel, Claim, Ran, Row, Step, System},
};

/// One configuration of the protocol.
pub(crate) struct Protocol {
    pub(crate) config: Config,
    pub(crate) decisions: Decisions,
    pub(crate) alphabet: Vec<Action>,
}

impl Protocol {
    pub(crate) fn new(config: Config) -> Self {
        let decisions = Decisions::new(config.effect);
        let mut protocol = Self {
            config,
            decisions,
            alphabet: Vec::new(),
        };
        protocol.alphabet = Action::alphabet(&protocol);
        protocol
    }

    /// Whether this rule is left out.
    pub(crate) fn lacks(&self, rule: Mutant) -> bool {
        self.config.rules.without == Some(rule)
    }

    fn apply(&self, s: &mut System, action: Action) -> bool {
        use Action::*;
        let at = usize::from;
        match action {
            Accept(caller) => {
                let told = self.accept(s, at(caller));
                Self::hear(s, at(caller), told.map(Caller::Told))
            }
            AcceptUnanswered(caller) => {
                let done = self.accept(s, at(caller));
                Self::hear(s, at(caller), done.map(|_call| Caller::Unsure))
            }
            AcceptLost(caller) => {
                let idle = s.callers[at(caller)] == Caller::Idle;
                Self::hear(s, at(caller), idle.then_some(Caller::Unsure))
            }
            Refuse(caller) => {
                let unsure = s.callers[at(caller)] == Caller::Unsure && !self.config.keyed;
                Self::hear(s, at(caller), unsure.then_some(Caller::Refused))
            }

            Publish(call) => !self.lacks(Mutant::NoSweep) && Self::ring(s, at(call), true),
            RepeatPointer(call) => Self::ring(s, at(call), true),
            LosePointer(call) => Self::ring(s, at(call), false),

            Deliver(worker, call) => self.deliver(s, at(worker), call),
            ClaimReadsWorker(_)
            | ClaimCommits(_)
            | ClaimCommitsUnanswered(_)
            | ClaimGoesSilent(_)
            | ClaimIsPhantom(_) => self.go_on_claiming(s, action),
            LateClaimReadsWorker(w) => {
                let Some(claim) = s.workers[at(w)].late.filter(|claim| !claim.worker_was_live)
                else {
                    return false;
                };
                s.workers[at(w)].late = Self::read_worker(s, at(w), claim);
                true
            }
            LateClaimCommits(w) => {
                let Some(claim) = s.workers[at(w)].late.filter(|claim| claim.worker_was_live)
                else {
                    return false;
                };
                self.claim(s, at(w), claim);
                s.workers[at(w)].late = None;
                true
            }
            LateClaimDies(w) => s.workers[at(w)].late.take().is_some(),
            ReadBack(w) => self.read_back(s, at(w)),
            GiveBack(w) => self.give_back(s, at(w)),

            TakeBack(w) => self.run(s, at(w), Ran::TakenBack, false),
            ToolApplies(w) => self.run(s, at(w), Ran::Applied, true),
            ToolAppliesUnanswered(w) => {
                let trusted = self.lacks(Mutant::ReusedConnectionTrusted);
                let ran = if trusted {
                    Ran::NotStarted
                } else {
                    Ran::Unknown
                };
                self.run(s, at(w), ran, true)
            }
            ToolIsSilent(w) => self.run(s, at(w), Ran::Unknown, false),
            ToolNotStarted(w) => self.run(s, at(w), Ran::NotStarted, false),
            ToolSaysNo(w) => self.run(s, at(w), Ran::No, false),
            ToolSaysNotNow(w) => self.run(s, at(w), Ran::NotNow, false),
            Abandon(w) => self.run(s, at(w), Ran::Abandoned, false),
            OrphanActs(w) => self.orphan_acts(s, at(w)),
            OrphanEnds(w) => Self::orphan_ends(s, at(w)),

            Commit(_) | CommitUnanswered(_) | CommitLost(_) | CommitInFlight(_)
            | LookAtCommit(_) => self.go_on_committing(s, action),
            Complete(w) | CompleteUnanswered(w) => {
                let Step::Ended(job, ran) = s.workers[at(w)].step else {
                    return false;
                };
                self.record(s, at(w), job, ran);
                if matches!(action, Complete(_)) {
                    s.workers[at(w)].step = Step::Idle;
                }
                true
            }

            Crash(w) => self.crash(s, at(w)),
            Leave(w) => self.leave(s, at(w)),
            DeclareDead(w) => !self.lacks(Mutant::NoSweep) && self.declare_dead(s, at(w)),
            Fence(w) => self.fence(s, at(w)),

            TakeLost(call) => !self.lacks(Mutant::NoSweep) && self.take_lost(s, call),
            Expire(call) => self.expire(s, at(call)),
            SettleApplied(call) => self.settle(s, at(call), true),
            SettleNotApplied(call) => self.settle(s, at(call), false),
            SettleAbandoned(call) => self.abandon(s, at(call)),
            AbandonedKeyLapses => Self::forget_key(s),

            CancelReads | CancelActs | CancelLooksAgain => self.go_on_cancelling(s, action),

            Backup => {
                let possible = s.backup.is_none() && !s.lost_writes;
                s.backup = s.backup.or(possible.then_some(s.ledger));
                possible
            }
            Failover => self.fail_over(s),
        }
    }

    fn hear(s: &mut System, caller: usize, heard: Option<Caller>) -> bool {
        let Some(heard) = heard else { return false };
        s.callers[caller] = heard;
        true
    }

    fn ring(s: &mut System, call: usize, there: bool) -> bool {
        let waits = s.ledger.open[call].is_some_and(|row| row.state == State::Queued);
        s.pointer[call] = there;
        waits
    }

    fn go_on_claiming(&self, s: &mut System, action: Action) -> bool {
        use Action::*;
        let (ClaimReadsWorker(w)
        | ClaimCommits(w)
        | ClaimCommitsUnanswered(w)
        | ClaimGoesSilent(w)
        | ClaimIsPhantom(w)) = action
        else {
            return false;
        };
        let worker = usize::from(w);
        let Step::Asking(claim) = s.workers[worker].step else {
            return false;
        };
        let Claim {
            job,
            worker_was_live,
        } = claim;
        match action {
            ClaimReadsWorker(_) if !worker_was_live => {
                s.workers[worker].step =
                    Self::read_worker(s, worker, claim).map_or(Step::Idle, Step::Asking);
            }
            ClaimCommits(_) if worker_was_live => {
                let claimed = self.claim(s, worker, claim);
                s.workers[worker].step = if claimed {
                    Self::claimed(s, job)
                } else {
                    Step::Idle
                };
            }
            ClaimCommitsUnanswered(_) if worker_was_live => {
                self.claim(s, worker, claim);
                s.workers[worker].step = Step::Silent(job);
            }
            // One claim at a time is remembered here.
            ClaimGoesSilent(_)
                if s.workers[worker].late.is_none() && s.workers[worker].given_up.is_none() =>
            {
                s.workers[worker].step = Step::Silent(job);
                s.workers[worker].late = Some(claim);
            }
            ClaimIsPhantom(_) if worker_was_live => {
                let doubted = self.config.rules.read_back_always;
                s.workers[worker].step = if doubted {
                    Step::Silent(job)
                } else {
                    Self::claimed(s, job)
                };
            }
            _ => return false,
        }
        true
    }

    fn go_on_committing(&self, s: &mut System, action: Action) -> bool {
        use Action::*;
        let (Commit(w) | CommitUnanswered(w) | CommitLost(w) | CommitInFlight(w) | LookAtCommit(w)) =
            action
        else {
            return false;
        };
        let worker = usize::from(w);
        let after = match (action, s.workers[worker].step) {
            (Commit(_), Step::Claimed(job)) => {
                self.commit(s, worker, job);
                Step::Idle
            }
            (CommitUnanswered(_), Step::Claimed(job)) => {
                self.commit(s, worker, job);
                Step::Unsure(job)
            }
            (CommitLost(_), Step::Claimed(job)) => Step::Unsure(job),
            // One of them at a time is remembered here.
            (CommitInFlight(_), Step::Claimed(job)) if s.workers[worker].orphan.is_none() => {
                s.workers[worker].orphan = Some(job);
                Step::Unsure(job)
            }
            (LookAtCommit(_), Step::Unsure(job)) if self.lacks(Mutant::UnknownCommitRunAgain) => {
                // There is no such move; this mutant goes around the list.
                s.ledger.open[usize::from(job.call)] = Some(Row::QUEUED);
                Step::Idle
            }
            (LookAtCommit(_), Step::Unsure(job)) => Step::Ended(job, Ran::Unknown),
            _ => return false,
        };
        s.workers[worker].step = after;
        true
    }

    fn go_on_cancelling(&self, s: &mut System, action: Action) -> bool {
        let open = s.ledger.open[0].is_some();
        s.cancel = match (action, s.cancel) {
            (Action::CancelReads, Cancel::Idle) if open => Cancel::Waiting,
            (Action::CancelActs, Cancel::Waiting) if open => {
                self.cancel(s, 0);
                Cancel::Answered
            }
            // Its snapshot is older than the move: it sees the old place empty and the new one not at all.
            (Action::CancelActs, Cancel::Waiting) if !self.lacks(Mutant::MoveSeenAsAbsence) => {
                Cancel::SawNothing
            }
            (Action::CancelActs, Cancel::Waiting) => {
                s.breach(Breach::ToldAbsent);
                Cancel::Answered
            }
            (Action::CancelLooksAgain, Cancel::SawNothing) => {
                if s.ledger.find(0).is_none() && !s.lost_writes {
                    s.breach(Breach::ToldAbsent);
                }
                Cancel::Answered
            }
            _ => return false,
        };
        true
    }
}

impl Model for Protocol {
    type State = System;
    type Action = Action;

    fn init_states(&self) -> Vec<System> {
        vec![System::START]
    }

    fn actions(&self, state: &System, actions: &mut Vec<Action>) {
        // A broken promise is not explored further.
        if state.breach.is_none() {
            actions.extend(&self.alphabet);
        }
    }

    fn next_state(&self, state: &System, action: Action) -> Option<System> {
        self.step(state, action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(&self.config)
    }
}

impl Walked for Protocol {
    const DECIDED: &'static str = "every call is decided in the end";
    const SETTLED: &'static str = "every doubt can be settled";

    fn name(&self) -> &'static str {
        self.config.name
    }

    fn start(&self) -> System {
        System::START
    }

    fn alphabet(&self) -> &[Action] {
        &self.alphabet
    }

    fn take(&self, before: &System, action: Action) -> Option<System> {
        let mut after = *before;
        self.apply(&mut after, action).then_some(after)
    }

    fn simplify(&self, world: &mut System) {
        self.in_simplest_words(world);
    }

    fn is_natural(&self, action: Action, before: &System) -> bool {
        action.is_natural(before)
    }

    fn is_decided(&self, world: &System) -> bool {
        properties::is_decided(self, world)
    }

    fn is_settled(&self, world: &System) -> bool {
        properties::is_settled(self, world)
    }

    fn moved(
        before: &System,
        action: Action,
        after: &System,
        moves: &mut BTreeSet<(State, State)>,
    ) {
        // To fall back to an older copy is no move.
        if action == Action::Failover {
            return;
        }
        for (at, from) in before.ledger.open.iter().enumerate() {
            if let (Some(from), Some(to)) = (from, after.ledger.find(at))
                && from.state != to.state
            {
                moves.insert((from.state, to.state));
            }
        }
    }

    fn expected_moves(&self) -> BTreeSet<(State, State)> {
        properties::moves(&self.config)
    }

    fn impossible(&self) -> Vec<Action> {
        properties::impossible(&self.config)
    }

    fn digest(&self, world: &System) -> String {
        report::digest(self, world)
    }
}

//! What there is, and what can happen.

use fleet::{
    call::{Awaiting, Effect, EffectKnown, Language, State},
    ending::{EndingKind, Fact, Known, after_lost_writes, decide},
    state::{Move, next},
};
use stateright::{Model, Property};

use super::properties;

/// A rule left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ApprovalMutant {
    /// After lost writes a `once` call waits on, as an `idempotent` one does.
    RunsAgainAfterLostWrites,
    /// A decision about other arguments counts.
    HoldsForOtherArguments,
    /// One person's second yes counts as another's.
    OnePersonIsTwo,
    /// Who submitted it may be one of the two.
    SubmitterDecides,
    /// A decision is counted whatever it is.
    NoCountsAsYes,
    /// That an `idempotent` call may have run before the writes were lost is not kept.
    UnknownIsForgotten,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Person {
    Ann,
    Bob,
    /// Who submitted it.
    Eve,
}

const PEOPLE: [Person; 3] = [Person::Ann, Person::Bob, Person::Eve];

/// The row of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Row {
    Waiting {
        /// Whose yes is recorded, how often.
        given: [u8; 3],
        is_unknown: bool,
    },
    Queued {
        is_unknown: bool,
    },
    InDoubt,
    Over(State, EffectKnown),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ApprovalWorld {
    pub(super) row: Row,
    copy: Option<Row>,
    pub(super) has_lost_writes: bool,
    /// The truth: who has said yes to these arguments.
    yes: [bool; 3],
    /// The truth: how often it ran.
    pub(super) ran: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ApprovalStep {
    Approve(Person),
    /// Somebody says yes to what is not what will run.
    ApproveOther(Person),
    Deny(Person),
    TimeOver,
    Cancel,
    Run,
    BackUp,
    FailOver,
}

pub(super) struct ApprovalModel {
    pub(super) effect: Effect,
    pub(super) needed: usize,
    pub(super) without: Option<ApprovalMutant>,
}

impl ApprovalModel {
    fn lacks(&self, rule: ApprovalMutant) -> bool {
        self.without == Some(rule)
    }

    fn ended(&self, fact: &Fact<'_>, is_unknown: bool) -> Row {
        let known = Known {
            effect: self.effect,
            language: Language::En,
            cancelled: false,
            earlier_unknown: is_unknown && !self.lacks(ApprovalMutant::UnknownIsForgotten),
            applied_late: false,
        };
        match decide(fact, &known).0 {
            EndingKind::End(decision) => Row::Over(decision.state, decision.effect),
            EndingKind::Doubt(_) => Row::InDoubt,
            EndingKind::Again { .. } => panic!("{fact:?}: nothing of it has run"),
        }
    }

    /// As `toolfleet.decide` counts it.
    fn counted(&self, row: Row, person: Person) -> Option<Row> {
        let Row::Waiting {
            mut given,
            is_unknown,
        } = row
        else {
            return None;
        };
        let place = person as usize;
        let is_another = given[place] == 0 || self.lacks(ApprovalMutant::OnePersonIsTwo);
        let may = person != Person::Eve
            || self.needed == 1
            || self.lacks(ApprovalMutant::SubmitterDecides);
        if !is_another || !may {
            return None;
        }
        given[place] += 1;
        let counted: usize = given.iter().copied().map(usize::from).sum();
        if counted < self.needed {
            return Some(Row::Waiting { given, is_unknown });
        }
        assert_eq!(
            next(State::AwaitingClient, Move::Approve),
            Ok(State::Queued)
        );
        Some(Row::Queued { is_unknown })
    }

    fn ends_waiting(&self, row: Row, fact: &Fact<'_>) -> Option<Row> {
        match row {
            Row::Waiting { is_unknown, .. } => Some(self.ended(fact, is_unknown)),
            Row::Queued { .. } | Row::InDoubt | Row::Over(..) => None,
        }
    }

    fn cancelled(&self, row: Row) -> Option<Row> {
        match row {
            Row::Waiting { is_unknown, .. } | Row::Queued { is_unknown } => {
                Some(self.ended(&Fact::Withdrawn { attempts: 0 }, is_unknown))
            }
            Row::InDoubt | Row::Over(..) => None,
        }
    }

    /// As `toolfleet.quarantine` leaves what the copy has.
    fn after_loss(&self, row: Row) -> Row {
        let (state, awaiting) = match row {
            Row::Waiting { .. } => (State::AwaitingClient, Some(Awaiting::Approval)),
            Row::Queued { .. } => (State::Queued, None),
            Row::InDoubt | Row::Over(..) => return row,
        };
        let moved = after_lost_writes(state, awaiting, self.effect, false);
        let waits = awaiting.is_some();
        if moved.is_some() && !(waits && self.lacks(ApprovalMutant::RunsAgainAfterLostWrites)) {
            return Row::InDoubt;
        }
        let is_idempotent = self.effect == Effect::Idempotent;
        match row {
            Row::Waiting { given, is_unknown } => Row::Waiting {
                given,
                is_unknown: is_unknown || is_idempotent,
            },
            Row::Queued { is_unknown } => Row::Queued {
                is_unknown: is_unknown || is_idempotent,
            },
            other => other,
        }
    }

    /// The world after this step; `None`: it cannot be taken, or changes nothing.
    pub(super) fn after(
        &self,
        before: &ApprovalWorld,
        step: ApprovalStep,
    ) -> Option<ApprovalWorld> {
        let mut world = *before;
        let row = match step {
            ApprovalStep::Approve(person) => {
                world.yes[person as usize] = true;
                self.counted(before.row, person)
            }
            ApprovalStep::ApproveOther(person) => self
                .lacks(ApprovalMutant::HoldsForOtherArguments)
                .then(|| self.counted(before.row, person))
                .flatten(),
            ApprovalStep::Deny(person) if self.lacks(ApprovalMutant::NoCountsAsYes) => {
                self.counted(before.row, person)
            }
            ApprovalStep::Deny(_) => self.ends_waiting(before.row, &Fact::Denied),
            ApprovalStep::TimeOver => self.ends_waiting(before.row, &Fact::Undecided),
            ApprovalStep::Cancel => self.cancelled(before.row),
            ApprovalStep::Run => matches!(before.row, Row::Queued { .. }).then(|| {
                world.ran += 1;
                let effect = match self.effect {
                    Effect::Read => EffectKnown::None,
                    Effect::Idempotent | Effect::Once | Effect::Transaction => EffectKnown::Applied,
                };
                Row::Over(State::Succeeded, effect)
            }),
            ApprovalStep::BackUp => (before.copy.is_none() && !before.has_lost_writes).then(|| {
                world.copy = Some(before.row);
                before.row
            }),
            ApprovalStep::FailOver => before.copy.map(|copy| {
                world.copy = None;
                world.has_lost_writes = true;
                self.after_loss(copy)
            }),
        };
        // A yes that does not count is not one.
        world.row = row?;
        (world != *before).then_some(world)
    }
}

impl ApprovalWorld {
    pub(super) const fn agreed(&self, person: Person) -> bool {
        self.yes[person as usize]
    }
}

impl Model for ApprovalModel {
    type State = ApprovalWorld;
    type Action = ApprovalStep;

    fn init_states(&self) -> Vec<ApprovalWorld> {
        vec![ApprovalWorld {
            row: Row::Waiting {
                given: [0; 3],
                is_unknown: false,
            },
            copy: None,
            has_lost_writes: false,
            yes: [false; 3],
            ran: 0,
        }]
    }

    fn actions(&self, _: &ApprovalWorld, steps: &mut Vec<ApprovalStep>) {
        for person in PEOPLE {
            steps.extend([
                ApprovalStep::Approve(person),
                ApprovalStep::ApproveOther(person),
                ApprovalStep::Deny(person),
            ]);
        }
        steps.extend([
            ApprovalStep::TimeOver,
            ApprovalStep::Cancel,
            ApprovalStep::Run,
            ApprovalStep::BackUp,
            ApprovalStep::FailOver,
        ]);
    }

    fn next_state(&self, before: &ApprovalWorld, step: ApprovalStep) -> Option<ApprovalWorld> {
        self.after(before, step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}

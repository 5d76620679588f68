//! What there is, and what can happen.

use fleet::{
    call::{Awaiting, Effect, EffectKnown, Language, State},
    ending::{EndingKind, Fact, Known, LaterAnswer, after_lost_writes, decide},
    outcome::ToolFailure,
    state::next,
    wire::{code::Code, message::Message},
};
use stateright::{Model, Property};

use super::properties;

/// A rule left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum WaitsMutant {
    /// A write of which nothing is heard expires, as if it had not been handed out.
    HandedOutIsExpired,
    /// A write that is cancelled in its client's hands is cancelled.
    HandedOutIsCancelled,
    /// An error counts as the proof that nothing was done.
    ErrorIsNotDone,
    /// A result is taken only while the call waits for it.
    LateOutputThrownAway,
}

/// The row of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum HandedRow {
    /// Not accepted.
    None,
    Awaiting,
    InDoubt {
        is_quarantined: bool,
    },
    Over(State, EffectKnown),
}

/// The program of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Client {
    /// It has not heard that the call is its own.
    Unaware,
    /// It has the call and its token.
    Has,
    /// It did it.
    Did,
    /// It did nothing, and knows that.
    DidNothing,
    /// It failed, and does not know how far it came.
    Failed,
    /// It is dead.
    Gone,
}

/// What the program has sent; each arrives any number of times, at any moment, or never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Said {
    result: bool,
    not_done: bool,
    error: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct WaitsWorld {
    pub(super) row: HandedRow,
    copy: Option<HandedRow>,
    pub(super) has_lost_writes: bool,
    pub(super) client: Client,
    pub(super) said: Said,
    /// The truth.
    pub(super) happened: bool,
    /// Whether a result came to an open call and did not become its answer.
    pub(super) thrown_away: bool,
    pub(super) was_in_doubt: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum WaitsStep {
    Accept,
    /// The client hears, from the answer or by sending it again.
    Hear,
    Do,
    DoNothing,
    /// It fails, and this is whether the effect is there.
    Fail(bool),
    Die,
    /// It sends what it has to say.
    Say,
    ResultComes,
    NotDoneComes,
    ErrorComes,
    /// Its time is over.
    Silence,
    Cancel,
    /// A person sees the effect.
    SettleApplied,
    /// A person gives it up.
    Abandon,
    BackUp,
    /// The copy takes over.
    FailOver,
}

const STEPS: [WaitsStep; 17] = [
    WaitsStep::Accept,
    WaitsStep::Hear,
    WaitsStep::Do,
    WaitsStep::DoNothing,
    WaitsStep::Fail(false),
    WaitsStep::Fail(true),
    WaitsStep::Die,
    WaitsStep::Say,
    WaitsStep::ResultComes,
    WaitsStep::NotDoneComes,
    WaitsStep::ErrorComes,
    WaitsStep::Silence,
    WaitsStep::Cancel,
    WaitsStep::SettleApplied,
    WaitsStep::Abandon,
    WaitsStep::BackUp,
    WaitsStep::FailOver,
];

pub(super) struct WaitsModel {
    pub(super) effect: Effect,
    pub(super) without: Option<WaitsMutant>,
}

impl WaitsModel {
    fn lacks(&self, rule: WaitsMutant) -> bool {
        self.without == Some(rule)
    }

    fn decided(fact: &Fact<'_>, effect: Effect) -> HandedRow {
        let known = Known {
            effect,
            language: Language::En,
            cancelled: false,
            earlier_unknown: false,
            applied_late: false,
        };
        match decide(fact, &known).0 {
            EndingKind::End(decision) => HandedRow::Over(decision.state, decision.effect),
            EndingKind::Doubt(_) => HandedRow::InDoubt {
                is_quarantined: false,
            },
            EndingKind::Again { .. } => panic!("{fact:?}: it is handed out once"),
        }
    }

    /// Nothing was heard of it, or it is cancelled.
    fn unanswered(&self, world: &mut WaitsWorld, fact: &Fact<'_>, rule: WaitsMutant) -> Option<()> {
        let effect = if self.lacks(rule) {
            Effect::Read
        } else {
            self.effect
        };
        (world.row == HandedRow::Awaiting).then(|| world.row = Self::decided(fact, effect))
    }

    /// As the door does it: `dispatcher/src/output.rs`.
    fn answered(&self, world: &mut WaitsWorld, answer: &LaterAnswer) -> Option<()> {
        let is_result = matches!(answer, LaterAnswer::Did(_));
        let from = match world.row {
            HandedRow::Awaiting => State::AwaitingClient,
            HandedRow::InDoubt { is_quarantined } => {
                let proves = match answer {
                    LaterAnswer::Did(_) => !self.lacks(WaitsMutant::LateOutputThrownAway),
                    LaterAnswer::Failed { not_done, .. } => *not_done && !is_quarantined,
                };
                if !proves {
                    world.thrown_away |= is_result;
                    return Some(());
                }
                State::InDoubt
            }
            HandedRow::None | HandedRow::Over(..) => return None,
        };
        world.row = Self::decided(
            &Fact::Submitted {
                from,
                by: Awaiting::Client,
                answer,
            },
            self.effect,
        );
        Some(())
    }

    fn failed(&self, not_done: bool) -> LaterAnswer {
        let words = Message::fixed("it failed", "失败了");
        LaterAnswer::Failed {
            failure: ToolFailure::new(Code::ToolError, words),
            not_done: not_done || self.lacks(WaitsMutant::ErrorIsNotDone),
        }
    }

    fn fail_over(&self, world: &mut WaitsWorld) -> Option<()> {
        world.row = world.copy.take()?;
        world.has_lost_writes = true;
        let moved = after_lost_writes(
            State::AwaitingClient,
            Some(Awaiting::Client),
            self.effect,
            false,
        );
        if let (HandedRow::Awaiting, Some(moved)) = (world.row, moved) {
            assert_eq!(next(State::AwaitingClient, moved), Ok(State::InDoubt));
            world.row = HandedRow::InDoubt {
                is_quarantined: true,
            };
        }
        Some(())
    }

    /// The world after this step; `None`: it cannot be taken, or changes nothing.
    pub(super) fn after(&self, before: &WaitsWorld, step: WaitsStep) -> Option<WaitsWorld> {
        let mut world = *before;
        let in_doubt = matches!(before.row, HandedRow::InDoubt { .. });
        let acts = |to: Client, happened: bool, world: &mut WaitsWorld| {
            (before.client == Client::Has).then(|| {
                world.client = to;
                world.happened = happened;
            })
        };
        let is_heard = before.row == HandedRow::Awaiting && before.client == Client::Unaware;
        match step {
            WaitsStep::Accept => {
                (before.row == HandedRow::None).then(|| world.row = HandedRow::Awaiting)
            }
            WaitsStep::Hear => is_heard.then(|| world.client = Client::Has),
            WaitsStep::Do => acts(Client::Did, true, &mut world),
            WaitsStep::DoNothing => acts(Client::DidNothing, false, &mut world),
            WaitsStep::Fail(happened) => acts(Client::Failed, happened, &mut world),
            WaitsStep::Die => {
                world.client = Client::Gone;
                Some(())
            }
            WaitsStep::Say => world.say(),
            WaitsStep::ResultComes => {
                let result = LaterAnswer::Did("null".to_owned());
                let comes = before.said.result.then_some(());
                comes.and_then(|()| self.answered(&mut world, &result))
            }
            WaitsStep::NotDoneComes => {
                let comes = before.said.not_done.then_some(());
                comes.and_then(|()| self.answered(&mut world, &self.failed(true)))
            }
            WaitsStep::ErrorComes => {
                let comes = before.said.error.then_some(());
                comes.and_then(|()| self.answered(&mut world, &self.failed(false)))
            }
            WaitsStep::Silence => {
                let rule = WaitsMutant::HandedOutIsExpired;
                self.unanswered(&mut world, &Fact::ClientSilent, rule)
            }
            WaitsStep::Cancel => {
                let rule = WaitsMutant::HandedOutIsCancelled;
                self.unanswered(&mut world, &Fact::TakenFrom(Awaiting::Client), rule)
            }
            WaitsStep::SettleApplied => (in_doubt && before.happened)
                .then(|| world.row = HandedRow::Over(State::Succeeded, EffectKnown::Applied)),
            WaitsStep::Abandon => {
                in_doubt.then(|| world.row = HandedRow::Over(State::Failed, EffectKnown::Unknown))
            }
            // Of a call that the copy does not know nothing is left to promise.
            WaitsStep::BackUp => {
                (before.row != HandedRow::None && before.copy.is_none() && !before.has_lost_writes)
                    .then(|| world.copy = Some(before.row))
            }
            WaitsStep::FailOver => self.fail_over(&mut world),
        }?;
        world.was_in_doubt |= in_doubt;
        (world != *before).then_some(world)
    }
}

impl WaitsWorld {
    const fn first() -> Self {
        Self {
            row: HandedRow::None,
            copy: None,
            has_lost_writes: false,
            client: Client::Unaware,
            said: Said {
                result: false,
                not_done: false,
                error: false,
            },
            happened: false,
            thrown_away: false,
            was_in_doubt: false,
        }
    }

    const fn say(&mut self) -> Option<()> {
        match self.client {
            Client::Did => self.said.result = true,
            Client::DidNothing => self.said.not_done = true,
            Client::Failed => self.said.error = true,
            Client::Unaware | Client::Has | Client::Gone => return None,
        }
        Some(())
    }
}

impl Model for WaitsModel {
    type State = WaitsWorld;
    type Action = WaitsStep;

    fn init_states(&self) -> Vec<WaitsWorld> {
        vec![WaitsWorld::first()]
    }

    fn actions(&self, _: &WaitsWorld, steps: &mut Vec<WaitsStep>) {
        steps.extend(STEPS);
    }

    fn next_state(&self, before: &WaitsWorld, step: WaitsStep) -> Option<WaitsWorld> {
        self.after(before, step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}

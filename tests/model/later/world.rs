//! What there is, and what can happen.

use std::time::Duration;

use fleet::{
    call::{Awaiting, Effect, EffectKnown, Language, State},
    ending::{EndingKind, Fact, Known, LaterAnswer, LostAttempt, Tries, after_lost_writes, decide},
    manifest::RetryPolicy,
    outcome::ToolFailure,
    state::next,
    taken_back::TakenBack,
    wire::{code::Code, message::Message},
};
use stateright::{Model, Property};

use super::properties;

/// A rule left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum LaterMutant {
    /// A `once` call whose tool is silent is tried again, as if it were `idempotent`.
    SilenceIsTriedAgain,
    /// ... or expires, as if it were a read.
    HandedOutIsExpired,
    /// A write that its tool has is cancelled.
    HandedOutIsCancelled,
    /// An answer is taken only once the call waits for it.
    OvertakingAnswerThrownAway,
    /// An answer is taken only while the call waits for it.
    LateAnswerThrownAway,
    /// That an earlier attempt did nothing counts for the later one.
    EarlierNoCounts,
    /// After lost writes a `once` call that waits is queued again and cancelled there.
    WaitsAgainAfterLostWrites,
}

pub(super) const ATTEMPTS: usize = 2;

/// The row of the call. Attempts count from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum LaterRow {
    Queued {
        made: usize,
        unknown: bool,
    },
    Running {
        attempt: usize,
        unknown: bool,
    },
    Waiting {
        attempt: usize,
        unknown: bool,
    },
    InDoubt {
        attempt: usize,
        is_quarantined: bool,
    },
    Over(State, EffectKnown),
}

/// What a remote has of an attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Remote {
    /// It was not asked.
    #[default]
    Unasked,
    /// It has taken it.
    Has,
    /// It did it, and says so any number of times, at any moment.
    Did,
    /// It did nothing, and says so.
    DidNothing,
    /// It will do nothing more, and says nothing.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct LaterWorld {
    pub(super) row: LaterRow,
    pub(super) copy: Option<LaterRow>,
    pub(super) has_lost_writes: bool,
    pub(super) remotes: [Remote; ATTEMPTS],
    /// Whether a remote has it of an attempt that the ledger has forgotten with lost writes: nothing that it says is recognised.
    stray: bool,
    /// How often the effect took place; of an `idempotent` tool once for the key.
    pub(super) happened: u8,
    /// Whether a result that counts came to an open call and did not become its answer, nor was to be sent again.
    pub(super) thrown_away: bool,
    pub(super) was_in_doubt: bool,
    pub(super) was_overtaken: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum LaterStep {
    /// A worker claims it and asks the remote.
    Start,
    /// The remote does it, or does nothing, or forgets it.
    Does(usize),
    DoesNothing(usize),
    Forgets(usize),
    /// The forgotten one does it.
    StrayDoes,
    /// The worker records that the answer comes later.
    Park,
    /// The worker dies before.
    Lose,
    /// What the remote says of this attempt arrives.
    Comes(usize),
    /// The time of the wait is over.
    Silence,
    Cancel,
    BackUp,
    FailOver,
}

pub(super) struct LaterModel {
    pub(super) effect: Effect,
    pub(super) without: Option<LaterMutant>,
}

impl LaterModel {
    fn lacks(&self, rule: LaterMutant) -> bool {
        self.without == Some(rule)
    }

    /// Where the call stands after a fact about this attempt.
    fn decided(fact: &Fact<'_>, effect: Effect, attempt: usize, unknown: bool) -> LaterRow {
        let known = Known {
            effect,
            language: Language::En,
            cancelled: false,
            earlier_unknown: unknown,
            applied_late: false,
        };
        match decide(fact, &known).0 {
            EndingKind::End(decision) => LaterRow::Over(decision.state, decision.effect),
            EndingKind::Doubt(_) => LaterRow::InDoubt {
                attempt,
                is_quarantined: false,
            },
            EndingKind::Again { .. } => LaterRow::Queued {
                made: attempt + 1,
                unknown: true,
            },
        }
    }

    fn silent(&self, attempt: usize, unknown: bool) -> LaterRow {
        let policy = RetryPolicy::default();
        let tries = Tries {
            policy: &policy,
            spent: u32::try_from(attempt + 1).expect("there are few"),
            taken_back: None,
            pause: Duration::ZERO,
            remaining: if attempt + 1 < ATTEMPTS {
                Duration::from_secs(60)
            } else {
                Duration::ZERO
            },
            key_remaining: None,
            is_suppressed: false,
        };
        let effect = match self.without {
            Some(LaterMutant::SilenceIsTriedAgain) => Effect::Idempotent,
            Some(LaterMutant::HandedOutIsExpired)
                if attempt + 1 == ATTEMPTS || self.effect == Effect::Once =>
            {
                return LaterRow::Over(State::Expired, EffectKnown::NotApplied);
            }
            _ => self.effect,
        };
        Self::decided(&Fact::ToolSilent(tries), effect, attempt, unknown)
    }

    fn lost(&self, attempt: usize, unknown: bool) -> LaterRow {
        let lost = LostAttempt {
            why: TakenBack::WorkerLost,
            before: u32::try_from(attempt).expect("there are few"),
            allowed: 1,
        };
        Self::decided(&Fact::Lost(lost), self.effect, attempt, unknown)
    }

    /// As the door does it: `dispatcher/src/output.rs`.
    fn comes(&self, world: &mut LaterWorld, of: usize) -> Option<()> {
        let words = Message::fixed("it did not", "没有");
        let answer = match world.remotes[of] {
            Remote::Did => LaterAnswer::Did("null".to_owned()),
            Remote::DidNothing => LaterAnswer::Failed {
                failure: ToolFailure::new(Code::ToolError, words),
                not_done: true,
            },
            Remote::Unasked | Remote::Has | Remote::Gone => return None,
        };
        let is_result = matches!(answer, LaterAnswer::Did(_));
        let knows_key = self.effect != Effect::Once;
        let (current, from, unknown) = match world.row {
            LaterRow::Running { attempt, unknown } => (attempt, State::Running, unknown),
            LaterRow::Waiting { attempt, unknown } => (attempt, State::AwaitingClient, unknown),
            LaterRow::InDoubt { attempt, .. } => (attempt, State::InDoubt, false),
            // To be sent again.
            LaterRow::Queued { .. } | LaterRow::Over(..) => return None,
        };
        if of != current {
            let counts = knows_key && is_result || self.lacks(LaterMutant::EarlierNoCounts);
            // Not found; or to be sent again, while another attempt runs.
            if !counts || from == State::Running {
                return None;
            }
        }
        let is_kept = match from {
            State::Running => !self.lacks(LaterMutant::OvertakingAnswerThrownAway),
            State::InDoubt => !self.lacks(LaterMutant::LateAnswerThrownAway),
            _ => true,
        };
        let proves = is_result
            || !matches!(
                world.row,
                LaterRow::InDoubt {
                    is_quarantined: true,
                    ..
                }
            );
        if !is_kept || !proves {
            world.thrown_away |= is_result;
            return Some(());
        }
        world.was_overtaken |= from == State::Running;
        let by = Awaiting::Completion;
        let answer = &answer;
        world.row = Self::decided(
            &Fact::Submitted { from, by, answer },
            self.effect,
            current,
            unknown,
        );
        Some(())
    }

    fn cancelled(&self, world: &mut LaterWorld) -> Option<()> {
        let effect = if self.lacks(LaterMutant::HandedOutIsCancelled) {
            Effect::Read
        } else {
            self.effect
        };
        world.row = match world.row {
            LaterRow::Waiting { attempt, unknown } => {
                let fact = Fact::TakenFrom(Awaiting::Completion);
                Self::decided(&fact, effect, attempt, unknown)
            }
            LaterRow::Queued { made, unknown } => {
                let attempts = i32::try_from(made).expect("there are few");
                let attempt = made.saturating_sub(1);
                Self::decided(&Fact::Withdrawn { attempts }, self.effect, attempt, unknown)
            }
            // A running one is told to stop, and goes on as without it.
            LaterRow::Running { .. } | LaterRow::InDoubt { .. } | LaterRow::Over(..) => {
                return None;
            }
        };
        Some(())
    }

    fn fail_over(&self, world: &mut LaterWorld) -> Option<()> {
        world.row = world.copy.take()?;
        world.has_lost_writes = true;
        let (state, awaiting, attempt, made) = match world.row {
            LaterRow::Queued { made, .. } => (State::Queued, None, made.saturating_sub(1), made),
            LaterRow::Running { attempt, .. } => (State::Running, None, attempt, attempt + 1),
            LaterRow::Waiting { attempt, .. } => {
                let whom = Some(Awaiting::Completion);
                (State::AwaitingClient, whom, attempt, attempt + 1)
            }
            LaterRow::InDoubt { .. } | LaterRow::Over(..) => return Some(()),
        };
        // What was asked since has tokens that nobody knows any more.
        for remote in &mut world.remotes[made..] {
            world.stray |= *remote == Remote::Has;
            *remote = Remote::Unasked;
        }
        let forgets = self.lacks(LaterMutant::WaitsAgainAfterLostWrites);
        let moved = after_lost_writes(state, awaiting, self.effect, false);
        world.row = match moved.map(|event| next(state, event).expect("it is a legal move")) {
            Some(_) if forgets && awaiting.is_some() => {
                LaterRow::Over(State::Cancelled, EffectKnown::NotApplied)
            }
            Some(State::InDoubt) => LaterRow::InDoubt {
                attempt,
                is_quarantined: true,
            },
            Some(_) => LaterRow::Queued {
                made,
                unknown: true,
            },
            None if self.effect == Effect::Idempotent => LaterRow::Queued {
                made,
                unknown: true,
            },
            None => world.row,
        };
        Some(())
    }

    /// The world after this step; `None`: it cannot be taken, or changes nothing.
    pub(super) fn after(&self, before: &LaterWorld, step: LaterStep) -> Option<LaterWorld> {
        let mut world = *before;
        let acts = |of: usize, to: Remote, world: &mut LaterWorld| {
            (before.remotes[of] == Remote::Has).then(|| world.remotes[of] = to)
        };
        match step {
            LaterStep::Start => match before.row {
                LaterRow::Queued { made, unknown } if made < ATTEMPTS => {
                    world.remotes[made] = Remote::Has;
                    let attempt = made;
                    world.row = LaterRow::Running { attempt, unknown };
                    Some(())
                }
                _ => None,
            },
            LaterStep::Does(of) => acts(of, Remote::Did, &mut world).map(|()| {
                // It knows the key.
                if self.effect == Effect::Once || world.happened == 0 {
                    world.happened += 1;
                }
            }),
            // Where it knows the key, it says so of all that it was asked with it until then.
            LaterStep::DoesNothing(_)
                if self.effect == Effect::Idempotent && before.happened > 0 =>
            {
                None
            }
            LaterStep::DoesNothing(of) => acts(of, Remote::DidNothing, &mut world).map(|()| {
                if self.effect == Effect::Idempotent {
                    let others = world.remotes.iter_mut();
                    let others = others.filter(|remote| **remote == Remote::Has);
                    others.for_each(|remote| *remote = Remote::Gone);
                    world.stray = false;
                }
            }),
            LaterStep::Forgets(of) => acts(of, Remote::Gone, &mut world),
            LaterStep::StrayDoes => before.stray.then(|| {
                world.stray = false;
                if self.effect == Effect::Once || world.happened == 0 {
                    world.happened += 1;
                }
            }),
            LaterStep::Park => match before.row {
                LaterRow::Running { attempt, unknown } => {
                    world.row = LaterRow::Waiting { attempt, unknown };
                    Some(())
                }
                _ => None,
            },
            LaterStep::Lose => match before.row {
                LaterRow::Running { attempt, unknown } => {
                    world.row = self.lost(attempt, unknown);
                    Some(())
                }
                _ => None,
            },
            LaterStep::Comes(of) => self.comes(&mut world, of),
            LaterStep::Silence => match before.row {
                LaterRow::Waiting { attempt, unknown } => {
                    world.row = self.silent(attempt, unknown);
                    Some(())
                }
                _ => None,
            },
            LaterStep::Cancel => self.cancelled(&mut world),
            LaterStep::BackUp => (before.copy.is_none() && !before.has_lost_writes)
                .then(|| world.copy = Some(before.row)),
            LaterStep::FailOver => self.fail_over(&mut world),
        }?;
        let was_in_doubt = matches!(before.row, LaterRow::InDoubt { .. });
        world.was_in_doubt |= was_in_doubt;
        // Its row keeps the mark of lost writes.
        if let LaterRow::InDoubt { is_quarantined, .. } = &mut world.row
            && !was_in_doubt
            && self.effect == Effect::Idempotent
        {
            *is_quarantined |= world.has_lost_writes;
        }
        (world != *before).then_some(world)
    }
}

impl Model for LaterModel {
    type State = LaterWorld;
    type Action = LaterStep;

    fn init_states(&self) -> Vec<LaterWorld> {
        vec![LaterWorld {
            row: LaterRow::Queued {
                made: 0,
                unknown: false,
            },
            copy: None,
            has_lost_writes: false,
            remotes: [Remote::Unasked; ATTEMPTS],
            stray: false,
            happened: 0,
            thrown_away: false,
            was_in_doubt: false,
            was_overtaken: false,
        }]
    }

    fn actions(&self, _: &LaterWorld, steps: &mut Vec<LaterStep>) {
        use LaterStep::{
            BackUp, Cancel, Comes, Does, DoesNothing, FailOver, Forgets, Lose, Park, Silence,
            Start, StrayDoes,
        };
        steps.extend([
            Start, Park, Lose, Silence, Cancel, BackUp, FailOver, StrayDoes,
        ]);
        for of in 0..ATTEMPTS {
            steps.extend([Does(of), DoesNothing(of), Forgets(of), Comes(of)]);
        }
    }

    fn next_state(&self, before: &LaterWorld, step: LaterStep) -> Option<LaterWorld> {
        self.after(before, step)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}

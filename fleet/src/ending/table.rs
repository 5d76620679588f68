//! The contract's table of endings: what happened to a call, and the words for it in its row and its envelope.

use crate::{
    call::{CallOutcome, Effect, EffectKnown, Source},
    outcome::OutcomeWord,
    state::Move,
};

/// What happened to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    /// The tool did what was asked.
    Worked,
    /// The tool answered no.
    SaidNo,
    /// The tool or the platform could not do it.
    CouldNot,
    /// Its effect may have happened.
    InDoubt,
    /// It was cancelled before it had an effect.
    Cancelled,
    /// Its time was over before it could run.
    Expired,
    /// It was in doubt, and the effect turned out to have happened.
    SettledApplied,
    /// It was in doubt, and the effect turned out not to have happened.
    SettledNotApplied,
}

/// The words for it. What is known of the effect depends on the call as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words {
    /// The move that it is.
    pub event: Move,
    /// What the call came to.
    pub outcome: CallOutcome,
    /// Where the answer comes from.
    pub source: Source,
}

impl Happened {
    /// The table.
    pub const fn words(self) -> Words {
        let (event, outcome, source) = match self {
            Self::Worked => (Move::Succeed, CallOutcome::Success, Source::Live),
            Self::SaidNo => (Move::Fail, CallOutcome::BusinessError, Source::Live),
            Self::CouldNot => (Move::Fail, CallOutcome::SystemError, Source::Error),
            Self::InDoubt => (Move::Doubt, CallOutcome::Unknown, Source::Error),
            Self::Cancelled => (Move::Cancel, CallOutcome::SystemError, Source::Error),
            Self::Expired => (Move::Expire, CallOutcome::SystemError, Source::Error),
            Self::SettledApplied => (Move::Succeed, CallOutcome::Success, Source::Settled),
            Self::SettledNotApplied => (Move::Fail, CallOutcome::SystemError, Source::Settled),
        };
        Words {
            event,
            outcome,
            source,
        }
    }
}

/// What is known of the effect of a tool of this class after an attempt with this outcome.
pub const fn effect_after(effect: Effect, word: OutcomeWord) -> EffectKnown {
    match effect {
        Effect::Read => EffectKnown::None,
        Effect::Idempotent | Effect::Once | Effect::Transaction => match word {
            OutcomeWord::Applied => EffectKnown::Applied,
            OutcomeWord::NotStarted | OutcomeWord::DefiniteFailure => EffectKnown::NotApplied,
            // The move that records it takes the row that the COMMIT needs, so there is no effect and there will be none.
            OutcomeWord::Unknown if matches!(effect, Effect::Transaction) => {
                EffectKnown::NotApplied
            }
            OutcomeWord::Unknown => EffectKnown::Unknown,
        },
    }
}

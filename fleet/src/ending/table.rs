//! The contract's table of endings: what happened to a call, and the words for it in its row and its envelope.

use crate::{
    call::{CallOutcome, EffectKnown, Source, State},
    fallback::StandInKind,
    state::{Move, next},
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
    /// Who had to decide about it said no.
    Denied,
    /// It asked for what its tool does not give: not in this way, or not so much.
    Misasked,
    /// It was cancelled before it had an effect.
    Cancelled,
    /// Its time was over before it could run.
    Expired,
    /// An equal call had the answer.
    Answered,
    /// The tool could not, and another answer stands in.
    StoodInFor(StandInKind),
    /// The program of its caller did what was asked.
    ClientDid,
    /// The program of its caller answered no.
    ClientSaidNo,
    /// It was in doubt, and the effect turned out to have happened.
    SettledApplied,
    /// It was in doubt, and the effect turned out not to have happened.
    SettledNotApplied,
    /// It was in doubt, and nobody will ever know whether the effect happened.
    Abandoned,
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
            Self::Denied | Self::Misasked => {
                (Move::Fail, CallOutcome::BusinessError, Source::Error)
            }
            Self::InDoubt => (Move::Doubt, CallOutcome::Unknown, Source::Error),
            Self::Cancelled => (Move::Cancel, CallOutcome::SystemError, Source::Error),
            Self::Expired => (Move::Expire, CallOutcome::SystemError, Source::Error),
            Self::Answered => (Move::Succeed, CallOutcome::Success, Source::Cache),
            Self::StoodInFor(kind) => {
                let source = match kind {
                    StandInKind::Other => Source::Other,
                    StandInKind::Stale => Source::Stale,
                    StandInKind::Stub => Source::Stub,
                };
                (Move::Fail, CallOutcome::Fallback, source)
            }
            Self::ClientDid => (Move::Succeed, CallOutcome::Success, Source::Client),
            Self::ClientSaidNo => (Move::Fail, CallOutcome::BusinessError, Source::Client),
            Self::SettledApplied => (Move::Succeed, CallOutcome::Success, Source::Settled),
            Self::SettledNotApplied | Self::Abandoned => {
                (Move::Fail, CallOutcome::SystemError, Source::Settled)
            }
        };
        Words {
            event,
            outcome,
            source,
        }
    }
}

/// How a call was decided, for its row and its envelope; the texts are JSON.
#[derive(Debug, Clone)]
pub struct Decision {
    /// The state of the call: a terminal one, or in doubt.
    pub state: State,
    /// What it came to.
    pub outcome: CallOutcome,
    /// Where the answer comes from.
    pub source: Source,
    /// What is known about the effect.
    pub effect: EffectKnown,
    /// The tool's answer.
    pub result: Option<String>,
    /// What callers get in place of a large answer.
    pub preview: Option<String>,
    /// The error as callers will read it.
    pub error: Option<String>,
    /// Why the answer is not the live one.
    pub degraded: Option<String>,
}

impl Decision {
    /// What happened to a call in this state, without an answer.
    ///
    /// # Panics
    ///
    /// A call cannot move so from this state.
    pub fn by(from: State, happened: Happened, effect: EffectKnown, error: Option<String>) -> Self {
        let Words {
            event,
            outcome,
            source,
        } = happened.words();
        let state = next(from, event).expect("every fact is one about a call that can move so");
        Self {
            state,
            outcome,
            source,
            effect,
            result: None,
            preview: None,
            error,
            degraded: None,
        }
    }

    /// A doubt about the effect of a call that runs.
    pub fn doubt(error: Option<String>) -> Self {
        Self::by(
            State::Running,
            Happened::InDoubt,
            EffectKnown::Unknown,
            error,
        )
    }
}

//! What a call has come to, for whoever follows its turn.

use std::{borrow::Cow, sync::Arc};

use fleet::{
    call::{CallOutcome, Language, State},
    outcome::ToolFailure,
    wire::{code::Code, envelope::is_error, error::ErrorBody, message::Message},
};

use super::{input::FinalRow, result::ShownResult, shape::ItemKind};

/// What a call has come to.
#[derive(Debug)]
pub(super) enum CallEnd {
    /// There is an answer: the tool's, or one that stands in. JSON text; `None` where it could not be read.
    Answer(Option<Arc<String>>),
    /// There is none.
    Failure(CallFailure),
}

/// Why a call has no answer.
#[derive(Debug)]
pub(super) struct CallFailure {
    /// The stable code.
    pub(super) code: Code,
    /// Whether its effect may have happened.
    pub(super) is_doubt: bool,
    words: FailureWords,
}

#[derive(Debug)]
enum FailureWords {
    /// Those of the envelope.
    Told(String),
    /// Those of every call in doubt.
    InDoubt,
    /// Nobody has read the envelope: nothing is known of the effect, so nothing is said of it.
    Unread(State),
}

/// What an event `finished` says of how a call ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct ToldEnd {
    pub(super) state: State,
    pub(super) outcome: CallOutcome,
    pub(super) code: Option<Code>,
}

impl CallEnd {
    /// How the call of this event and this row ended.
    ///
    /// A call in doubt is told from its event alone: its row may have been settled since, and a replay has to say the same.
    pub(super) fn of(event: ToldEnd, row: Option<FinalRow>) -> Self {
        let failure = |code, is_doubt, words| {
            Self::Failure(CallFailure {
                code,
                is_doubt,
                words,
            })
        };
        if event.state == State::InDoubt {
            return failure(Code::InDoubt, true, FailureWords::InDoubt);
        }
        let outcome = row.as_ref().map_or(event.outcome, |row| row.outcome);
        if !is_error(outcome) {
            return Self::Answer(row.and_then(|row| row.result));
        }
        let is_doubt = outcome == CallOutcome::Unknown;
        match row.and_then(|row| row.error) {
            Some(error) => failure(error.code, is_doubt, FailureWords::Told(error.message)),
            None => {
                let code = event.code.unwrap_or(Code::ToolError);
                failure(code, is_doubt, FailureWords::Unread(event.state))
            }
        }
    }
}

impl CallEnd {
    /// Whether an item of this kind can tell it. Where it cannot, an item of the kind `mcp_call` does.
    pub(super) fn fits(&self, kind: ItemKind) -> bool {
        match self {
            Self::Answer(Some(json)) if kind.is_choosy() => ShownResult::read(json).fits(kind),
            Self::Answer(_) => true,
            Self::Failure(_) => kind.tells_failures(),
        }
    }

    /// Whether an item of this kind tells it without what the call has told before.
    pub(super) fn is_told_alone(&self, kind: ItemKind) -> bool {
        match self {
            Self::Answer(_) => !self.fits(kind),
            Self::Failure(_) => true,
        }
    }
}

impl CallFailure {
    /// One that somebody has found words for.
    pub(super) const fn told(code: Code, message: String) -> Self {
        Self {
            code,
            is_doubt: false,
            words: FailureWords::Told(message),
        }
    }

    /// The failure in words.
    pub(super) fn message(&self, language: Language) -> Cow<'_, str> {
        match &self.words {
            FailureWords::Told(message) => Cow::Borrowed(message),
            FailureWords::InDoubt => {
                let what = Message::fixed("the call is in doubt", "这次调用存疑");
                let failure = ToolFailure::new(Code::InDoubt, what);
                Cow::Owned(ErrorBody::in_doubt(&failure, language).message)
            }
            FailureWords::Unread(state) => Cow::Owned(match language {
                Language::En => format!("The call ended as {state}."),
                Language::Zh => format!("这次调用以 {state} 结束。"),
            }),
        }
    }
}

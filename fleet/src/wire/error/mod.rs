//! The `error` of an envelope: written for a model to act on, in the language it asked for.
//!
//! Every message says three things: what happened, what is known about the effect, what to do next.

mod words;

use serde::{Deserialize, Serialize};

use self::words::{UNCONFIRMED, UNREADABLE, known, told};
use crate::{
    call::{EffectKnown, Language, words},
    outcome::ToolFailure,
    said,
    wire::{code::Code, message::Message},
};

words! {
    /// What a model should do next.
    Suggestion {
        /// Send corrected arguments.
        FixArguments = "fix_arguments",
        /// The same call may work later.
        RetryLater = "retry_later",
        /// Ask for less.
        Simplify = "simplify",
        /// A person has to decide.
        AskUser = "ask_user",
        /// Look at the world before acting.
        CheckState = "check_state",
        /// The same call must not be sent again.
        DoNotRepeat = "do_not_repeat",
    }
}

/// The `error` of an envelope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The stable code.
    pub code: Code,
    /// For the model.
    pub message: String,
    /// Whether the same call may be sent again as a new one.
    pub retryable: bool,
    /// When, if that is known.
    pub retry_after_ms: Option<u64>,
    /// What to do next.
    pub suggestion: Suggestion,
    /// JSON pointer to the argument, where one is to blame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// More, for programs and people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<serde_json::Value>,
}

impl ErrorBody {
    /// A refusal at the door: nothing was stored and nothing ran.
    pub fn refused(code: Code, what: &Message, language: Language) -> Self {
        let suggestion = suggestion(code, EffectKnown::None);
        Self {
            code,
            message: told(
                &[what, &words::NOTHING_RUN, suggestion.sentence()],
                language,
            ),
            retryable: matches!(suggestion, Suggestion::RetryLater),
            retry_after_ms: matches!(suggestion, Suggestion::RetryLater).then_some(1_000),
            suggestion,
            path: None,
            details: None,
        }
    }

    /// Something that was asked about a call was refused: the call stays as it is.
    pub fn unchanged(code: Code, what: &Message, language: Language) -> Self {
        let suggestion = suggestion(code, EffectKnown::None);
        let nothing = known(EffectKnown::None);
        Self {
            code,
            message: told(&[what, nothing, suggestion.sentence()], language),
            retryable: false,
            retry_after_ms: None,
            suggestion,
            path: None,
            details: None,
        }
    }

    /// The same, refused only until then.
    pub fn too_early(code: Code, what: &Message, retry_after_ms: u64, language: Language) -> Self {
        let later = said!(
            "ask again in {retry_after_ms} ms",
            "请在 {retry_after_ms} ms 后再试"
        );
        Self {
            message: told(&[what, known(EffectKnown::None), &later], language),
            retryable: true,
            retry_after_ms: Some(retry_after_ms),
            suggestion: Suggestion::RetryLater,
            ..Self::unchanged(code, what, language)
        }
    }

    /// The ledger did not say whether it took the call: it may have, and then it will be run.
    pub fn unconfirmed(has_key: bool, language: Language) -> Self {
        let (suggestion, next) = if has_key {
            (Suggestion::RetryLater, &words::SEND_AGAIN)
        } else {
            let check = Suggestion::CheckState;
            (check, check.sentence())
        };
        Self {
            code: Code::StoreUnavailable,
            message: told(&[&UNCONFIRMED, next], language),
            retryable: has_key,
            retry_after_ms: has_key.then_some(1_000),
            suggestion,
            path: None,
            details: None,
        }
    }

    /// The ledger cannot be read: nothing is known from here.
    pub fn unreadable(language: Language) -> Self {
        Self {
            code: Code::StoreUnavailable,
            message: told(&[&UNREADABLE], language),
            retryable: true,
            retry_after_ms: Some(1_000),
            suggestion: Suggestion::RetryLater,
            path: None,
            details: None,
        }
    }

    /// What a failed attempt means for the caller.
    pub fn failed(failure: &ToolFailure, effect: EffectKnown, language: Language) -> Self {
        let suggestion = match suggestion(failure.code, effect) {
            // The answer is there.
            Suggestion::Simplify if failure.is_mended() => Suggestion::CheckState,
            other => other,
        };
        Self {
            code: failure.code,
            message: told(
                &[&failure.message, known(effect), suggestion.sentence()],
                language,
            ),
            retryable: matches!(suggestion, Suggestion::RetryLater),
            retry_after_ms: failure.retry_after_ms,
            suggestion,
            path: None,
            details: failure.details.clone(),
        }
    }

    /// The effect may have happened: `failure` is why nobody knows.
    pub fn in_doubt(failure: &ToolFailure, language: Language) -> Self {
        let cause = serde_json::json!({ "cause": failure.told(language) });
        let doubt = ToolFailure {
            code: Code::InDoubt,
            retry_after_ms: None,
            details: Some(cause),
            ..failure.clone()
        };
        Self::failed(&doubt, EffectKnown::Unknown, language)
    }

    /// With the argument that is to blame.
    #[must_use]
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// With more for programs and people.
    #[must_use]
    pub fn with_details(mut self, details: serde_json::Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Whether the caller can mend it: the outcome is then `business_error`.
    pub const fn is_callers_to_mend(&self) -> bool {
        match self.suggestion {
            Suggestion::FixArguments | Suggestion::Simplify => true,
            Suggestion::RetryLater
            | Suggestion::AskUser
            | Suggestion::CheckState
            | Suggestion::DoNotRepeat => false,
        }
    }
}

fn suggestion(code: Code, effect: EffectKnown) -> Suggestion {
    match code {
        Code::MalformedJson
        | Code::TruncatedArguments
        | Code::InvalidUnicode
        | Code::NulNotAllowed
        | Code::DuplicateKey
        | Code::NumberOutOfRange
        | Code::NumberTooLong
        | Code::InvalidArguments
        | Code::UnknownTool
        | Code::UnknownToolVersion
        | Code::InvalidToolName
        | Code::InvalidTenant
        | Code::MissingIdempotencyKey
        | Code::InvalidIdempotencyKey
        | Code::IdempotencyKeyReused
        | Code::DeadlineInvalid
        | Code::HeaderInvalid
        | Code::InvalidId
        | Code::NotFound => Suggestion::FixArguments,
        Code::DepthExceeded
        | Code::TooManyNodes
        | Code::KeyTooLong
        | Code::StringTooLong
        | Code::PayloadTooLarge => Suggestion::Simplify,
        Code::QuotaExceeded | Code::Overloaded | Code::StoreUnavailable | Code::Unavailable => {
            Suggestion::RetryLater
        }
        Code::Timeout | Code::RetriesExhausted | Code::DeadlineExceeded | Code::ToolCrashed => {
            match effect {
                EffectKnown::None | EffectKnown::NotApplied => Suggestion::RetryLater,
                EffectKnown::Applied | EffectKnown::Unknown => Suggestion::CheckState,
            }
        }
        Code::OutputInvalid | Code::OutputTooLarge => match effect {
            EffectKnown::None | EffectKnown::NotApplied => Suggestion::Simplify,
            EffectKnown::Applied | EffectKnown::Unknown => Suggestion::CheckState,
        },
        Code::ToolError => Suggestion::FixArguments,
        Code::ToolGone | Code::Cancelled | Code::NotApplied => Suggestion::AskUser,
        Code::InDoubt => Suggestion::DoNotRepeat,
        Code::Conflict => Suggestion::CheckState,
        Code::WorkerNotFenced => Suggestion::AskUser,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_happened_what_is_known_and_what_to_do() {
        let failure = ToolFailure::new(
            Code::Timeout,
            Message::fixed(
                "the tool did not answer within 1000 ms",
                "工具在 1000 ms 内没有回答",
            ),
        );
        let body = ErrorBody::failed(&failure, EffectKnown::None, Language::En);
        let told = "The tool did not answer within 1000 ms. Nothing was changed. The same call may work later.";
        assert_eq!(body.message, told);
        let body = ErrorBody::failed(&failure, EffectKnown::None, Language::Zh);
        let told = "工具在 1000 ms 内没有回答。没有做任何更改。稍后重试同样的调用，可能会成功。";
        assert_eq!(body.message, told);
        let doubt = ErrorBody::in_doubt(&failure, Language::En);
        assert_eq!(
            (doubt.code, doubt.retryable, doubt.suggestion),
            (Code::InDoubt, false, Suggestion::DoNotRepeat)
        );
    }

    #[test]
    fn nothing_whose_effect_may_have_happened_is_called_retryable() {
        for code in Code::ALL {
            for effect in [EffectKnown::Unknown, EffectKnown::Applied] {
                let failure = ToolFailure::new(*code, Message::fixed("x", "x"));
                let retryable = ErrorBody::failed(&failure, effect, Language::En).retryable;
                let never_reached = matches!(
                    code,
                    Code::QuotaExceeded
                        | Code::Overloaded
                        | Code::StoreUnavailable
                        | Code::Unavailable
                );
                assert!(!retryable || never_reached, "{code} {effect}");
            }
        }
    }
}

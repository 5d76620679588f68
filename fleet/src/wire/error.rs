//! The `error` of an envelope: written for a model to act on.
//!
//! Every message says three things: what happened, what is known about the effect, what to do next.

use serde::{Deserialize, Serialize};

use crate::{
    call::{EffectKnown, words},
    outcome::ToolFailure,
    wire::code::Code,
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

impl Suggestion {
    const fn sentence(self) -> &'static str {
        match self {
            Self::FixArguments => "Correct the arguments and call again.",
            Self::RetryLater => "The same call may work later.",
            Self::Simplify => "Ask for less in one call.",
            Self::AskUser => "Tell the user; this cannot be solved by calling again.",
            Self::CheckState => "Check the present state before doing anything else.",
            Self::DoNotRepeat => "Do not repeat the call; ask a person to find out.",
        }
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
    pub fn refused(code: Code, what: &str) -> Self {
        let suggestion = suggestion(code, EffectKnown::None);
        Self {
            code,
            message: format!(
                "{} Nothing was run. {}",
                sentence(what),
                suggestion.sentence()
            ),
            retryable: matches!(suggestion, Suggestion::RetryLater),
            retry_after_ms: matches!(suggestion, Suggestion::RetryLater).then_some(1_000),
            suggestion,
            path: None,
            details: None,
        }
    }

    /// Something that was asked about a call was refused: the call stays as it is.
    pub fn unchanged(code: Code, what: &str) -> Self {
        let suggestion = suggestion(code, EffectKnown::None);
        Self {
            code,
            message: format!(
                "{} Nothing was changed. {}",
                sentence(what),
                suggestion.sentence()
            ),
            retryable: false,
            retry_after_ms: None,
            suggestion,
            path: None,
            details: None,
        }
    }

    /// The same, refused only until then.
    pub fn too_early(code: Code, what: &str, retry_after_ms: u64) -> Self {
        Self {
            message: format!(
                "{} Nothing was changed. Ask again in {retry_after_ms} ms.",
                sentence(what)
            ),
            retryable: true,
            retry_after_ms: Some(retry_after_ms),
            suggestion: Suggestion::RetryLater,
            ..Self::unchanged(code, what)
        }
    }

    /// The ledger did not say whether it took the call: it may have, and then it will be run.
    pub fn unconfirmed(has_key: bool) -> Self {
        let suggestion = if has_key {
            Suggestion::RetryLater
        } else {
            Suggestion::CheckState
        };
        let next = if has_key {
            "Send the same call again, with the same idempotency key if it had one: it is then run once, whatever has become of this one."
        } else {
            suggestion.sentence()
        };
        Self {
            code: Code::StoreUnavailable,
            message: format!(
                "The ledger did not confirm the call; it may have been accepted. {next}"
            ),
            retryable: has_key,
            retry_after_ms: has_key.then_some(1_000),
            suggestion,
            path: None,
            details: None,
        }
    }

    /// The ledger cannot be read: nothing is known from here.
    pub fn unreadable() -> Self {
        let suggestion = Suggestion::RetryLater;
        Self {
            code: Code::StoreUnavailable,
            message: "The ledger cannot be read at the moment; what has become of the call is not known here. Ask again later."
                .to_owned(),
            retryable: true,
            retry_after_ms: Some(1_000),
            suggestion,
            path: None,
            details: None,
        }
    }

    /// What a failed attempt means for the caller.
    pub fn failed(failure: &ToolFailure, effect: EffectKnown) -> Self {
        let suggestion = suggestion(failure.code, effect);
        let known = match effect {
            EffectKnown::None => "Nothing was changed.",
            EffectKnown::Applied => "The action was carried out.",
            EffectKnown::NotApplied => "The action was not carried out.",
            EffectKnown::Unknown => "The action may or may not have been carried out.",
        };
        Self {
            code: failure.code,
            message: format!(
                "{} {known} {}",
                sentence(&failure.message),
                suggestion.sentence()
            ),
            retryable: matches!(suggestion, Suggestion::RetryLater),
            retry_after_ms: failure.retry_after_ms,
            suggestion,
            path: None,
            details: failure.details.clone(),
        }
    }

    /// The effect may have happened: `failure` is why nobody knows.
    pub fn in_doubt(failure: &ToolFailure) -> Self {
        let cause = serde_json::json!({ "cause": failure });
        let doubt = ToolFailure {
            code: Code::InDoubt,
            retry_after_ms: None,
            details: Some(cause),
            ..failure.clone()
        };
        Self::failed(&doubt, EffectKnown::Unknown)
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
        Code::Overloaded | Code::StoreUnavailable | Code::Unavailable => Suggestion::RetryLater,
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

/// The text as a sentence: capital first, full stop last.
fn sentence(text: &str) -> String {
    let mut chars = text.trim_end_matches(['.', ' ', '\n']).chars();
    let first: String = chars
        .next()
        .map(|c| c.to_uppercase().collect())
        .unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_what_happened_what_is_known_and_what_to_do() {
        let failure = ToolFailure::new(Code::Timeout, "the tool did not answer within 1000 ms");
        let body = ErrorBody::failed(&failure, EffectKnown::None);
        let told = "The tool did not answer within 1000 ms. Nothing was changed. The same call may work later.";
        assert_eq!(body.message, told);
        let doubt = ErrorBody::in_doubt(&failure);
        assert_eq!(
            (doubt.code, doubt.retryable, doubt.suggestion),
            (Code::InDoubt, false, Suggestion::DoNotRepeat)
        );
    }

    #[test]
    fn nothing_whose_effect_may_have_happened_is_called_retryable() {
        for code in Code::ALL {
            for effect in [EffectKnown::Unknown, EffectKnown::Applied] {
                let retryable = ErrorBody::failed(&ToolFailure::new(*code, "x"), effect).retryable;
                let never_reached = matches!(
                    code,
                    Code::Overloaded | Code::StoreUnavailable | Code::Unavailable
                );
                assert!(!retryable || never_reached, "{code} {effect}");
            }
        }
    }
}

//! The `error` of an envelope: written for a model to act on, in the language it asked for.
//!
//! Every message says three things: what happened, what is known about the effect, what to do next.

pub mod advice;
mod suggestion;
mod words;

use serde::{Deserialize, Serialize};

pub use self::suggestion::Suggestion;
use self::{
    advice::{Advice, RequestStage},
    words::{
        ASK_AGAIN, NOTHING_RUN, UNANSWERED, UNCONFIRMED, UNDECIDED, UNREADABLE, WAITS_ON, known,
        known_at_the_door, told,
    },
};
use crate::{
    call::{EffectKnown, Language},
    outcome::ToolFailure,
    said,
    wire::{code::Code, message::Message},
};

/// The `error` of an envelope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The stable code.
    pub code: Code,
    /// For the model.
    pub message: String,
    /// Whether the same may be sent again: after a refusal with its key, after a failure with a new one.
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
    /// A refusal at the door: nothing was stored, and the key is free. For a request about a call: the call stays as it is.
    pub fn refused(code: Code, what: &Message, language: Language) -> Self {
        let advice = Advice::of(code, RequestStage::Refused);
        let message = match known_at_the_door(code) {
            Some(known) => told(&[what, known, advice.sentence()], language),
            None => told(&[what, advice.sentence()], language),
        };
        let later = matches!(advice.suggestion(), Suggestion::RetryLater);
        Self {
            retry_after_ms: later.then_some(1_000),
            ..Self::advised(code, message, advice)
        }
    }

    /// The request is none that anything here takes, so it is about no call.
    pub fn misdirected(what: &Message, language: Language) -> Self {
        let advice = Advice::CorrectProgram;
        let message = told(&[what, &NOTHING_RUN, advice.sentence()], language);
        Self::advised(Code::NotFound, message, advice)
    }

    /// A request about a call that is refused only until then.
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
            ..Self::refused(code, what, language)
        }
    }

    /// A decision about a call that waits is refused while something lasts: the same may be decided again, and the call waits on.
    pub fn not_yet(code: Code, what: &Message, retry_after_ms: u64, language: Language) -> Self {
        Self {
            code,
            message: told(&[what, &UNDECIDED], language),
            retryable: true,
            retry_after_ms: Some(retry_after_ms),
            suggestion: Suggestion::RetryLater,
            path: None,
            details: None,
        }
    }

    /// What the caller's program handed in for a call does not do. It may have run the tool, so nothing is said of the effect.
    pub fn waits_on(code: Code, what: &Message, language: Language) -> Self {
        Self {
            code,
            message: told(&[what, &WAITS_ON], language),
            retryable: false,
            retry_after_ms: None,
            suggestion: Suggestion::FixArguments,
            path: None,
            details: None,
        }
    }

    /// A request about a file, or a call because of a file that it names: files and calls stay as they are. What to do is in `what`.
    pub fn of_file(code: Code, what: &Message, language: Language) -> Self {
        let refused = Self::refused(code, what, language);
        // No model can do anything about files.
        let is_for_people = matches!(code, Code::InvalidArguments | Code::PayloadTooLarge);
        Self {
            message: told(&[what, known(EffectKnown::None)], language),
            suggestion: match is_for_people {
                true => Suggestion::AskUser,
                false => refused.suggestion,
            },
            ..refused
        }
    }

    /// The ledger did not say whether it stored the call: it may have, and then the call will run.
    pub fn unconfirmed(has_key: bool, language: Language) -> Self {
        let advice = if has_key {
            Advice::SendAgain
        } else {
            Advice::CheckState
        };
        let message = told(&[&UNCONFIRMED, advice.sentence()], language);
        Self {
            retry_after_ms: has_key.then_some(1_000),
            ..Self::advised(Code::StoreUnavailable, message, advice)
        }
    }

    /// Nobody has answered a submission in time: it may have been accepted, and then the call will run.
    pub fn no_answer(has_key: bool, language: Language) -> Self {
        let advice = if has_key {
            Advice::SendAgain
        } else {
            Advice::CheckState
        };
        let message = told(&[&UNANSWERED, advice.sentence()], language);
        Self {
            retry_after_ms: has_key.then_some(1_000),
            ..Self::advised(Code::NoAnswer, message, advice)
        }
    }

    /// Nobody has answered in time a request that may be repeated.
    pub fn no_answer_yet(language: Language) -> Self {
        Self {
            code: Code::NoAnswer,
            message: told(&[&ASK_AGAIN], language),
            retryable: true,
            retry_after_ms: Some(1_000),
            suggestion: Suggestion::RetryLater,
            path: None,
            details: None,
        }
    }

    /// The ledger cannot be read, so the state of the call is unknown.
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

    /// The error of a failed attempt, for its caller.
    pub fn failed(failure: &ToolFailure, effect: EffectKnown, language: Language) -> Self {
        let is_without_effect = matches!(effect, EffectKnown::None | EffectKnown::NotApplied);
        let advice = if failure.is_mended() {
            Advice::UseAnswer
        } else if failure.is_early && is_without_effect {
            Advice::CallFirst
        } else if failure.needs_operator && is_without_effect {
            Advice::TellUser
        } else {
            Advice::of(failure.code, RequestStage::Ended(effect))
        };
        let parts = [&failure.message, known(effect), advice.sentence()];
        Self {
            retry_after_ms: failure.retry_after_ms,
            details: failure.details.clone(),
            ..Self::advised(failure.code, told(&parts, language), advice)
        }
    }

    const fn advised(code: Code, message: String, advice: Advice) -> Self {
        let suggestion = advice.suggestion();
        Self {
            code,
            message,
            retryable: matches!(suggestion, Suggestion::RetryLater),
            retry_after_ms: None,
            suggestion,
            path: None,
            details: None,
        }
    }

    /// The effect may have happened: `failure` says why it is unknown.
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

    /// Names the argument that is wrong.
    #[must_use]
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Adds details for programs and people.
    #[must_use]
    pub fn with_details(mut self, details: serde_json::Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Whether the sender can correct a refused request: the outcome is then `business_error`.
    pub const fn is_callers_to_mend(&self) -> bool {
        !matches!(
            Advice::of(self.code, RequestStage::Refused),
            Advice::SendLater
                | Advice::SendAgain
                | Advice::CheckState
                | Advice::StopRepeating
                | Advice::TellUser
        )
    }
}

/// What happened, of a message that a call ended with: without what is known of the effect and what its caller should do now, which is
/// nothing for a person. A message that has neither stays as it is.
pub fn what_happened(code: Code, effect: EffectKnown, message: &str) -> &str {
    let by_code = Advice::of(code, RequestStage::Ended(effect));
    for language in Language::ALL {
        for advice in [by_code, Advice::TellUser] {
            let behind = told(&[known(effect), advice.sentence()], *language);
            if let Some(before) = message.strip_suffix(behind.as_str()) {
                return before.trim_end().trim_end_matches(['.', '。']);
            }
        }
    }
    message
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
        let told = "The tool did not answer within 1000 ms. Nothing was changed. It may work later, with a new idempotency key if there was \
                    one: the same one repeats this answer.";
        assert_eq!(body.message, told);
        let body = ErrorBody::failed(&failure, EffectKnown::None, Language::Zh);
        let told = "工具在 1000 ms 内没有回答。没有做任何更改。稍后重试可能会成功；如果带有幂等键，请换用新的幂等键，同一个幂等键只会得到同样的回答。";
        assert_eq!(body.message, told);
        let doubt = ErrorBody::in_doubt(&failure, Language::En);
        assert_eq!(
            (doubt.code, doubt.retryable, doubt.suggestion),
            (Code::InDoubt, false, Suggestion::DoNotRepeat)
        );
    }

    #[test]
    fn a_call_that_came_too_early_is_told_to_come_again_unless_it_may_have_happened() {
        let what = Message::fixed("confirm comes first", "请先调用 confirm");
        let early = ToolFailure::new(Code::Forbidden, what).early();
        let body = ErrorBody::failed(&early, EffectKnown::NotApplied, Language::En);
        assert_eq!(body.suggestion, Suggestion::CheckState);
        assert!(!body.retryable);
        let told = "Confirm comes first. The action was not carried out. Call that tool first; once it has succeeded, send this call again, \
                    with a new idempotency key if there was one: the same one repeats this answer.";
        assert_eq!(body.message, told);
        let doubt = ErrorBody::in_doubt(&early, Language::En);
        assert_eq!(doubt.suggestion, Suggestion::DoNotRepeat);
    }

    #[test]
    fn what_only_an_operator_can_mend_is_never_said_to_work_later() {
        let what = Message::fixed("it let nobody in", "它拒绝访问");
        let failure = ToolFailure::new(Code::Unavailable, what).for_operators();
        for (effect, told) in [
            (EffectKnown::None, "Nothing was changed."),
            (EffectKnown::NotApplied, "The action was not carried out."),
        ] {
            let body = ErrorBody::failed(&failure, effect, Language::En);
            assert_eq!(
                (body.code, body.retryable, body.suggestion),
                (Code::Unavailable, false, Suggestion::AskUser)
            );
            let told = format!(
                "It let nobody in. {told} Tell the user; this cannot be solved by calling again."
            );
            assert_eq!(body.message, told);
        }
        let doubt = ErrorBody::in_doubt(&failure, Language::En);
        assert_eq!(doubt.suggestion, Suggestion::DoNotRepeat);
    }

    #[test]
    fn a_person_reads_what_happened_without_the_advice_for_callers() {
        let what = Message::fixed("the server is away (x)", "服务器不可用（x）");
        for language in Language::ALL {
            for code in [Code::Unavailable, Code::ToolError, Code::OutputTooLarge] {
                for failure in [
                    ToolFailure::new(code, what.clone()),
                    ToolFailure::new(code, what.clone()).for_operators(),
                ] {
                    let body = ErrorBody::failed(&failure, EffectKnown::None, *language);
                    let told = what_happened(code, EffectKnown::None, &body.message);
                    let expected = match language {
                        Language::En => "The server is away (x)",
                        Language::Zh => "服务器不可用（x）",
                    };
                    assert_eq!(told, expected, "{code}");
                }
            }
        }
        for raw in ["the server is away", "it ended.", ""] {
            let told = what_happened(Code::Unavailable, EffectKnown::None, raw);
            assert_eq!(told, raw);
        }
    }

    #[test]
    fn nothing_whose_effect_may_have_happened_is_called_retryable() {
        for code in Code::ALL {
            for effect in [EffectKnown::Unknown, EffectKnown::Applied] {
                let failure = ToolFailure::new(*code, Message::fixed("x", "x"));
                let retryable = ErrorBody::failed(&failure, effect, Language::En).retryable;
                assert!(!retryable, "{code} {effect}");
            }
        }
    }
}

//! **What does an answer come to, in one word?** A pure table, for who operates the gateway: the words are a fixed set.
//!
//! | the answer | the word |
//! |---|---|
//! | a result that is no error; a task that is not over; what a client is asked | `ok` |
//! | a result that says that its call goes on, or waits for somebody | `open` |
//! | a result, or a task that is over, whose call failed, was refused or is in doubt | the code of the call's error |
//! | an error of the protocol, a refusal | its code |
//! | the same with a code that this release does not know | `other` |

use fleet::wire::code::Code;

use super::envelope::{Became, McpEnvelope};

/// What an answer comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerCode {
    Ok,
    /// The call goes on, which the client gets as an error: it has no result yet.
    Open,
    Failed(Code),
    Other,
}

impl AnswerCode {
    /// Of the result that tells of a call with this envelope.
    pub(super) fn of_call(envelope: &McpEnvelope<'_>) -> Self {
        match envelope.became() {
            Became::Result | Became::StandIn => Self::Ok,
            Became::Awaiting | Became::Open => Self::Open,
            Became::InDoubt | Became::Error => Self::of_failure(&envelope.failure().code),
        }
    }

    /// Of what failed or was refused with this code.
    pub(super) fn of_failure(code: &str) -> Self {
        code.parse().map_or(Self::Other, Self::Failed)
    }

    /// The word.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Open => "open",
            Self::Failed(code) => code.as_str(),
            Self::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_ok_or_open_or_has_a_code_of_ours() {
        for (envelope, word) in [
            (
                r#"{"state":"succeeded","outcome":"success","result":1}"#,
                "ok",
            ),
            (
                r#"{"state":"succeeded","outcome":"success","source":"settled"}"#,
                "ok",
            ),
            (
                r#"{"state":"failed","outcome":"fallback","result":1,"error":{"code":"timeout"}}"#,
                "ok",
            ),
            (r#"{"state":"running"}"#, "open"),
            (r#"{"state":"of_a_later_release"}"#, "open"),
            (
                r#"{"state":"awaiting_client","awaiting":{"for":"approval","by":"operator"}}"#,
                "open",
            ),
            (
                r#"{"state":"succeeded","outcome":"success","result":1,"error":{"code":"output_invalid"}}"#,
                "output_invalid",
            ),
            (
                r#"{"state":"failed","outcome":"business_error","is_error":true,"error":{"code":"tool_error"}}"#,
                "tool_error",
            ),
            (
                r#"{"state":"in_doubt","outcome":"unknown","is_error":true,"error":{"code":"in_doubt"}}"#,
                "in_doubt",
            ),
            (
                r#"{"state":"refused","outcome":"system_error","is_error":true,"error":{"code":"overloaded"}}"#,
                "overloaded",
            ),
            (
                r#"{"state":"refused","outcome":"system_error","is_error":true,"error":{"code":"of_a_later_release"}}"#,
                "other",
            ),
            (r#"{"state":"in_doubt","outcome":"unknown"}"#, "other"),
            ("nothing", "other"),
        ] {
            let read = McpEnvelope::of(envelope.as_bytes());
            let code = AnswerCode::of_call(&read);
            assert_eq!(code.as_str(), word, "{envelope}");
            assert_eq!(
                read.became().is_error(),
                code != AnswerCode::Ok,
                "{envelope}"
            );
        }
    }

    #[test]
    fn no_code_is_a_word_of_another_meaning() {
        for word in ["ok", "open", "other"] {
            assert_eq!(AnswerCode::of_failure(word), AnswerCode::Other, "{word}");
        }
    }
}

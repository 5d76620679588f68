//! **May another answer stand in for the tool's?** One pure table, over the error with which a call is about to end.
//!
//! | error | may it |
//! |---|---|
//! | `timeout`, `unavailable`, `tool_crashed`, `circuit_open` | yes: the tool could not |
//! | `retries_exhausted`, `deadline_exceeded` | as the error of the last attempt, which they contain |
//! | any other | no: the tool said no, its answer is wrong, or the call is |
//!
//! Whatever the error, not for a call that was cancelled, that has not failed (one that expired while it waited has no attempt that
//! says anything about the tool), or that probes a doubt: what stands in would settle that doubt.
//!
//! A call that another answer stands in for has failed all the same: it keeps its error, is never kept as an answer, and counts as a
//! failure of its tool.

use serde::Serialize;

use crate::{
    call::{State, words},
    ids::ToolName,
    wire::{code::Code, error::ErrorBody},
};

words! {
    /// Whose answer stands in for that of a tool; the order in which they are tried.
    StandInKind {
        /// That of another tool, which was asked now.
        Other = "other",
        /// The last good one to an equal call.
        Stale = "stale",
        /// A constant of the manifest.
        Stub = "stub",
    }
}

/// An answer that stands in for the tool's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandIn {
    /// Whose answer it is.
    pub kind: StandInKind,
    /// The answer, JSON text.
    pub result: String,
    /// How many milliseconds ago the call ended that got it; of a stale one alone.
    pub age_ms: Option<i64>,
    /// The other tool, where one was asked.
    pub tool: Option<ToolName>,
}

/// Why an answer is not the tool's own, as envelopes and the history say it.
#[derive(Debug, Serialize)]
struct Degraded<'a> {
    kind: StandInKind,
    age_ms: Option<i64>,
    /// The code of what went wrong.
    reason: Code,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'a ToolName>,
}

impl StandIn {
    /// Why the answer is not the tool's own, JSON text.
    pub(crate) fn degraded(&self, reason: Code) -> String {
        let degraded = Degraded {
            kind: self.kind,
            age_ms: self.age_ms,
            reason,
            tool: self.tool.as_ref(),
        };
        serde_json::to_string(&degraded).expect("it has only string keys")
    }
}

/// A call that is about to end without its tool's answer.
#[derive(Debug, Clone, Copy)]
pub struct Unanswered<'a> {
    /// The state in which it would end.
    pub state: State,
    /// The error with which it would.
    pub error: &'a ErrorBody,
    /// Whether it was cancelled while it ran.
    pub is_cancelled: bool,
    /// Whether it is the probe of a call in doubt.
    pub is_probe: bool,
}

/// What went wrong, where another answer may stand in.
pub fn cause(call: &Unanswered<'_>) -> Option<Code> {
    if call.state != State::Failed || call.is_cancelled || call.is_probe {
        return None;
    }
    match call.error.code {
        Code::RetriesExhausted | Code::DeadlineExceeded => {
            let last = call.error.details.as_ref()?.get("last")?;
            let last = last.get("code")?.as_str()?.parse().ok()?;
            could_not(last).then_some(last)
        }
        code => could_not(code).then_some(code),
    }
}

/// Whether it says that the tool could not, and nothing of what was asked.
const fn could_not(code: Code) -> bool {
    matches!(
        code,
        Code::Timeout | Code::Unavailable | Code::ToolCrashed | Code::CircuitOpen
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        call::{EffectKnown, Language},
        outcome::ToolFailure,
        retry,
        wire::message::Message,
    };

    const COULD_NOT: [Code; 4] = [
        Code::Timeout,
        Code::Unavailable,
        Code::CircuitOpen,
        Code::ToolCrashed,
    ];

    fn error(failure: &ToolFailure) -> ErrorBody {
        ErrorBody::failed(failure, EffectKnown::None, Language::En)
    }

    fn failure(code: Code) -> ToolFailure {
        ToolFailure::new(code, Message::fixed("it did not work", "没有成功"))
    }

    fn failed(error: &ErrorBody) -> Unanswered<'_> {
        Unanswered {
            state: State::Failed,
            error,
            is_cancelled: false,
            is_probe: false,
        }
    }

    #[test]
    fn only_a_tool_that_could_not_is_stood_in_for() {
        for code in Code::ALL {
            let may = COULD_NOT.contains(code);
            let alone = error(&failure(*code));
            assert_eq!(cause(&failed(&alone)), may.then_some(*code), "{code}");
            let last = failure(*code);
            for around in [
                retry::exhausted(3, &last, Language::Zh),
                retry::out_of_time(&last, Language::En),
            ] {
                let (word, around) = (around.code, error(&around));
                assert_eq!(
                    cause(&failed(&around)),
                    may.then_some(*code),
                    "{code} in {word}"
                );
            }
            // That there was no token for another attempt changes nothing.
            let suppressed = error(&retry::suppressed(&last));
            assert_eq!(cause(&failed(&suppressed)), may.then_some(*code), "{code}");
        }
        for details in [
            json!({}),
            json!({"last": 1}),
            json!({"last": {"code": "unknown word"}}),
        ] {
            let exhausted = error(&failure(Code::RetriesExhausted).with_details(details));
            assert_eq!(cause(&failed(&exhausted)), None, "{exhausted:?}");
        }
    }

    #[test]
    fn nothing_stands_in_for_a_probe_a_cancelled_call_or_one_that_has_not_failed() {
        for code in COULD_NOT {
            let error = error(&failure(code));
            for state in State::ALL {
                let call = Unanswered {
                    state: *state,
                    ..failed(&error)
                };
                assert_eq!(cause(&call).is_some(), *state == State::Failed, "{state}");
            }
            let cancelled = Unanswered {
                is_cancelled: true,
                ..failed(&error)
            };
            let probe = Unanswered {
                is_probe: true,
                ..failed(&error)
            };
            assert_eq!((cause(&cancelled), cause(&probe)), (None, None), "{code}");
        }
    }

    #[test]
    fn what_stands_in_says_whose_it_is_how_old_and_why() {
        let stub = StandIn {
            kind: StandInKind::Stub,
            result: "{}".to_owned(),
            age_ms: None,
            tool: None,
        };
        let said = r#"{"kind":"stub","age_ms":null,"reason":"timeout"}"#;
        assert_eq!(stub.degraded(Code::Timeout), said);
        let other = StandIn {
            kind: StandInKind::Other,
            tool: Some("look".parse().unwrap()),
            ..stub.clone()
        };
        let said = r#"{"kind":"other","age_ms":null,"reason":"unavailable","tool":"look"}"#;
        assert_eq!(other.degraded(Code::Unavailable), said);
        let stale = StandIn {
            kind: StandInKind::Stale,
            age_ms: Some(7),
            ..stub
        };
        let said = r#"{"kind":"stale","age_ms":7,"reason":"circuit_open"}"#;
        assert_eq!(stale.degraded(Code::CircuitOpen), said);
    }
}

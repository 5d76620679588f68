//! **Under which number is a call without a key made?** A pure table over the earlier calls of the same request.
//!
//! Each request has [`NUMBERS`] keys. A call that may have done something, or may still, is found again under its key: the request is
//! attached to it, or gets its answer. Only calls that are over and proven not applied leave the next number to a new one: a client that
//! lost its connection may ask again.
//!
//! All numbers are looked at, and not only the first: keys lapse, the oldest first, so behind a free number there may be one in use.
//!
//! | the call under a number | |
//! |---|---|
//! | there is none, or its key has lapsed | the number is free |
//! | goes on, was applied, is in doubt | the request is about it |
//! | was denied: a person's no | the same |
//! | failed, was cancelled or expired, and nothing was done | over |

use fleet::ids::IdempotencyKey;
use serde::Deserialize;

/// How many numbers a request has: so many times it may fail or be cancelled, and be asked for again, within the time that keys live.
pub(super) const NUMBERS: usize = 8;

/// What stands under a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlierCall {
    /// No call.
    Free,
    /// One that goes on.
    Open,
    /// One that is decided, and has done something or may have, or was denied.
    Decided,
    /// One that is over and has done nothing.
    Undone,
}

/// Where the request is submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// As a new call.
    New(usize),
    /// To a call that goes on.
    Attached(usize),
    /// To one whose answer is there.
    Replayed(usize),
    /// Nowhere: every number has a call that is over.
    Nowhere,
}

impl EarlierCall {
    /// The call of an envelope; `None`: it is a refusal.
    pub(super) fn of(envelope: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct EarlierEnvelope {
            state: String,
            #[serde(default)]
            outcome: Option<String>,
            #[serde(default)]
            effect: Option<String>,
            #[serde(default)]
            error: Option<Code>,
        }
        #[derive(Deserialize)]
        struct Code {
            code: String,
        }

        let told: EarlierEnvelope = serde_json::from_slice(envelope).ok()?;
        if told.state == "refused" {
            return None;
        }
        let code = told.error.as_ref().map(|error| error.code.as_str());
        Some(Self::judged(
            &told.state,
            told.outcome.is_some(),
            told.effect.as_deref(),
            code,
        ))
    }

    /// The calls that these keys have, of the answer to the question for them; `None`: it is none.
    pub(super) fn of_keys(answer: &[u8], keys: &[IdempotencyKey]) -> Option<Vec<Self>> {
        #[derive(Deserialize)]
        struct CallsOfKeys {
            calls: Vec<CallOfKey>,
        }
        #[derive(Deserialize)]
        struct CallOfKey {
            idempotency_key: String,
            state: String,
            outcome: Option<String>,
            effect: Option<String>,
            code: Option<String>,
        }

        let told: CallsOfKeys = serde_json::from_slice(answer).ok()?;
        let of = |key: &IdempotencyKey| {
            let mut calls = told.calls.iter();
            let call = calls.find(|call| call.idempotency_key == key.as_str());
            call.map_or(Self::Free, |call| {
                let (effect, code) = (call.effect.as_deref(), call.code.as_deref());
                Self::judged(&call.state, call.outcome.is_some(), effect, code)
            })
        };
        Some(keys.iter().map(of).collect())
    }

    fn judged(state: &str, is_decided: bool, effect: Option<&str>, code: Option<&str>) -> Self {
        let is_undone = matches!(effect, Some("none" | "not_applied"));
        match state {
            _ if !is_decided => Self::Open,
            "failed" | "cancelled" | "expired" if is_undone && code != Some("denied") => {
                Self::Undone
            }
            _ => Self::Decided,
        }
    }
}

/// Where a request is submitted that has these earlier calls, by their numbers.
pub(super) fn place(calls: &[EarlierCall]) -> Placed {
    let of = |kind| calls.iter().rposition(|call| *call == kind);
    let first_free = calls.iter().position(|call| *call == EarlierCall::Free);
    match (of(EarlierCall::Open), of(EarlierCall::Decided), first_free) {
        (Some(open), _, _) => Placed::Attached(open),
        (None, Some(decided), _) => Placed::Replayed(decided),
        (None, None, Some(free)) => Placed::New(free),
        (None, None, None) => Placed::Nowhere,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{EarlierCall::*, *};

    #[test]
    fn the_calls_of_keys_are_told_by_their_keys() {
        let keys: Vec<IdempotencyKey> = ["a", "b", "c", "d"].map(|key| key.parse().unwrap()).into();
        let answer = json!({"calls": [
            {"idempotency_key": "b", "call_id": "x", "state": "running"},
            {"idempotency_key": "c", "call_id": "x", "state": "failed", "outcome": "business_error", "effect": "none", "code": "tool_error"},
            {"idempotency_key": "d", "call_id": "x", "state": "failed", "outcome": "system_error", "effect": "none", "code": "denied"},
        ]});
        let calls = EarlierCall::of_keys(answer.to_string().as_bytes(), &keys);
        assert_eq!(calls.unwrap(), [Free, Open, Undone, Decided]);
        let refusal = json!({"call_id": null, "state": "refused"});
        assert!(EarlierCall::of_keys(refusal.to_string().as_bytes(), &keys).is_none());
    }

    #[test]
    fn what_an_envelope_says_of_an_earlier_call() {
        let of = |state, outcome, effect, code: Option<&str>| {
            let envelope = json!({
                "call_id": null, "state": state, "outcome": outcome, "effect": effect,
                "error": code.map(|code| json!({"code": code})),
            });
            EarlierCall::of(envelope.to_string().as_bytes())
        };
        for (state, outcome, effect, code, expected) in [
            (
                "refused",
                Some("system_error"),
                "none",
                Some("not_found"),
                None,
            ),
            (
                "refused",
                Some("system_error"),
                "none",
                Some("overloaded"),
                None,
            ),
            ("queued", None, "none", None, Some(Open)),
            ("running", None, "none", None, Some(Open)),
            ("awaiting_client", None, "none", None, Some(Open)),
            ("succeeded", Some("success"), "applied", None, Some(Decided)),
            ("succeeded", Some("success"), "none", None, Some(Decided)),
            (
                "in_doubt",
                Some("unknown"),
                "unknown",
                Some("in_doubt"),
                Some(Decided),
            ),
            (
                "failed",
                Some("unknown"),
                "unknown",
                Some("in_doubt"),
                Some(Decided),
            ),
            (
                "failed",
                Some("system_error"),
                "applied",
                Some("output_invalid"),
                Some(Decided),
            ),
            (
                "failed",
                Some("system_error"),
                "not_applied",
                Some("denied"),
                Some(Decided),
            ),
            (
                "failed",
                Some("business_error"),
                "not_applied",
                Some("tool_error"),
                Some(Undone),
            ),
            (
                "failed",
                Some("system_error"),
                "none",
                Some("circuit_open"),
                Some(Undone),
            ),
            (
                "failed",
                Some("fallback"),
                "not_applied",
                Some("timeout"),
                Some(Undone),
            ),
            (
                "cancelled",
                Some("system_error"),
                "not_applied",
                Some("cancelled"),
                Some(Undone),
            ),
            (
                "cancelled",
                Some("system_error"),
                "unknown",
                Some("cancelled"),
                Some(Decided),
            ),
            (
                "expired",
                Some("system_error"),
                "none",
                Some("deadline_exceeded"),
                Some(Undone),
            ),
            (
                "of_a_later_release",
                Some("success"),
                "none",
                None,
                Some(Decided),
            ),
        ] {
            assert_eq!(
                of(state, outcome, effect, code),
                expected,
                "{state} {outcome:?} {effect}"
            );
        }
        assert_eq!(EarlierCall::of(b"nothing"), None);
    }

    #[test]
    fn a_call_that_may_have_done_something_is_never_made_again() {
        for (calls, expected) in [
            (vec![Free, Free, Free], Placed::New(0)),
            (vec![Undone, Free, Free], Placed::New(1)),
            (vec![Undone, Undone, Open], Placed::Attached(2)),
            (vec![Undone, Decided, Free], Placed::Replayed(1)),
            // The first key has lapsed, and the call under the second is known.
            (vec![Free, Decided, Free], Placed::Replayed(1)),
            (vec![Free, Free, Open], Placed::Attached(2)),
            (vec![Free, Undone, Free], Placed::New(0)),
            (vec![Undone, Undone, Undone], Placed::Nowhere),
        ] {
            assert_eq!(place(&calls), expected, "{calls:?}");
        }
        // Whatever else there is.
        let kinds = [Free, Open, Decided, Undone];
        for one in kinds {
            for two in kinds {
                for three in kinds {
                    let calls = [one, two, three];
                    let holds = calls.contains(&Open) || calls.contains(&Decided);
                    let is_new = matches!(place(&calls), Placed::New(_));
                    assert!(!(holds && is_new), "{calls:?}");
                }
            }
        }
    }
}

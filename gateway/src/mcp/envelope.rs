//! What an answer of the fleet says of a call, as far as MCP tells it on. Words are words, for a later release may have more.

use std::time::Duration;

use fleet::ids::CallId;
use serde::Deserialize;
use serde_json::value::RawValue;

/// An envelope, or the answer about a call that goes on.
#[derive(Debug, Default, Deserialize)]
pub(super) struct McpEnvelope<'a> {
    #[serde(default)]
    pub(super) call_id: Option<CallId>,
    #[serde(default)]
    pub(super) tool: String,
    #[serde(default)]
    pub(super) state: String,
    #[serde(default)]
    pub(super) outcome: Option<String>,
    #[serde(default)]
    pub(super) is_error: bool,
    #[serde(default)]
    source: Option<String>,
    #[serde(default)]
    pub(super) effect: Option<String>,
    #[serde(default, borrow)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) degraded: Option<&'a RawValue>,
    #[serde(default, borrow)]
    pub(super) coercions: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) replayed: bool,
    #[serde(default)]
    awaiting: Option<AwaitedBy>,
    #[serde(default)]
    timing: Option<ToldTiming>,
}

/// For whom a call waits.
#[derive(Debug, Deserialize)]
struct AwaitedBy {
    #[serde(rename = "for")]
    whom: String,
    #[serde(default)]
    by: Option<String>,
}

/// How long it took until it was decided.
#[derive(Debug, Clone, Copy, Deserialize)]
struct ToldTiming {
    queued_ms: u64,
    run_ms: u64,
}

/// What went wrong.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ToldFailure {
    #[serde(default)]
    pub(super) code: String,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) suggestion: String,
    #[serde(default)]
    pub(super) retry_after_ms: Option<u64>,
}

/// Whose answer stands in for the tool's.
#[derive(Debug, Default, Deserialize)]
pub(super) struct StoodIn {
    #[serde(default)]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) age_ms: Option<u64>,
    #[serde(default)]
    pub(super) tool: Option<String>,
}

/// What became of a call, or of the request for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Became {
    /// Its result is there.
    Result,
    /// Another answer stands in for it.
    StandIn,
    /// It may have happened.
    InDoubt,
    /// It waits for a person or a program outside the fleet.
    Awaiting,
    /// It goes on.
    Open,
    /// Something went wrong, and `error` says what.
    Error,
}

impl Became {
    /// Whether a client gets it as an error: also what goes on, which has no result yet.
    pub(super) const fn is_error(self) -> bool {
        !matches!(self, Self::Result | Self::StandIn)
    }
}

impl<'a> McpEnvelope<'a> {
    /// Of these bytes; empty where they are none.
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// What became of it.
    pub(super) fn became(&self) -> Became {
        match (self.state.as_str(), self.outcome.as_deref()) {
            ("in_doubt", _) | (_, Some("unknown")) => Became::InDoubt,
            ("refused" | "", _) => Became::Error,
            (_, None) if self.awaiting.is_some() => Became::Awaiting,
            (_, None) => Became::Open,
            (_, Some("fallback")) => Became::StandIn,
            (_, Some(_)) if self.is_error || self.error.is_some() => Became::Error,
            (_, Some(_)) => Became::Result,
        }
    }

    /// What went wrong.
    pub(super) fn failure(&self) -> ToldFailure {
        let read = self
            .error
            .and_then(|error| serde_json::from_str(error.get()).ok());
        read.unwrap_or_default()
    }

    /// The error as it came.
    pub(super) const fn error(&self) -> Option<&'a RawValue> {
        self.error
    }

    /// Whose answer stands in.
    pub(super) fn stood_in(&self) -> StoodIn {
        let read = self
            .degraded
            .and_then(|degraded| serde_json::from_str(degraded.get()).ok());
        read.unwrap_or_default()
    }

    /// How long after it was accepted it was decided; `None`: it is not.
    pub(super) fn ended_after(&self) -> Option<Duration> {
        let timing = self.timing?;
        Some(Duration::from_millis(
            timing.queued_ms.saturating_add(timing.run_ms),
        ))
    }

    /// For whom it waits, and who decides.
    pub(super) fn awaited(&self) -> (&str, Option<&str>) {
        let awaited = self.awaiting.as_ref();
        awaited.map_or(("", None), |awaited| (&awaited.whom, awaited.by.as_deref()))
    }

    /// Whether somebody found out that it was carried out, and not what came of it.
    pub(super) fn is_settled_without_answer(&self) -> bool {
        self.source.as_deref() == Some("settled") && self.result.is_none()
    }

    /// Whether nobody knows whether it was carried out, also where it is not in doubt any more: it is not to be repeated.
    pub(super) fn may_have_happened(&self) -> bool {
        self.effect.as_deref() == Some("unknown") || self.failure().code == "in_doubt"
    }

    /// Whether it is a refusal because there is no such tool.
    pub(super) fn is_of_unknown_tool(&self) -> bool {
        self.state == "refused" && self.failure().code == "unknown_tool"
    }
}

/// The parts of a result that is made of blocks; `None` where it is none.
pub(super) fn blocks(result: &RawValue) -> Option<(Vec<&RawValue>, Option<&RawValue>)> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Content<'a> {
        #[serde(borrow)]
        content: Vec<&'a RawValue>,
        #[serde(default, borrow)]
        structured: Option<&'a RawValue>,
    }

    let read: Content<'_> = serde_json::from_str(result.get()).ok()?;
    Some((read.content, read.structured))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_became_is_read_of_its_words() {
        for (envelope, became) in [
            (
                r#"{"state":"succeeded","outcome":"success","result":1}"#,
                Became::Result,
            ),
            (
                r#"{"state":"succeeded","outcome":"success","result":1,"error":{"code":"output_invalid"}}"#,
                Became::Error,
            ),
            (
                r#"{"state":"failed","outcome":"fallback","result":1,"error":{"code":"timeout"},"degraded":{"kind":"stub"}}"#,
                Became::StandIn,
            ),
            (
                r#"{"state":"failed","outcome":"business_error","is_error":true,"error":{"code":"tool_error"}}"#,
                Became::Error,
            ),
            (
                r#"{"state":"failed","outcome":"unknown","is_error":true,"error":{"code":"in_doubt"}}"#,
                Became::InDoubt,
            ),
            (
                r#"{"state":"in_doubt","outcome":"unknown","is_error":true}"#,
                Became::InDoubt,
            ),
            (r#"{"state":"running"}"#, Became::Open),
            (r#"{"state":"of_a_later_release"}"#, Became::Open),
            (
                r#"{"state":"awaiting_client","awaiting":{"for":"approval","by":"operator"}}"#,
                Became::Awaiting,
            ),
            (
                r#"{"state":"refused","outcome":"system_error","is_error":true,"error":{"code":"overloaded"}}"#,
                Became::Error,
            ),
            ("nothing", Became::Error),
        ] {
            assert_eq!(
                McpEnvelope::of(envelope.as_bytes()).became(),
                became,
                "{envelope}"
            );
        }
    }

    #[test]
    fn only_what_is_made_of_blocks_is_taken_apart() {
        let of = |text: &str| {
            let raw = RawValue::from_string(text.to_owned()).unwrap();
            blocks(&raw).map(|(content, structured)| {
                (content.len(), structured.map(|one| one.get().to_owned()))
            })
        };
        assert_eq!(
            of(r#"{"content":[{"type":"text"}],"structured":1.10}"#),
            Some((1, Some("1.10".to_owned())))
        );
        assert_eq!(of(r#"{"content":[]}"#), Some((0, None)));
        for other in [
            r#"{"content":[],"more":1}"#,
            "[]",
            r#"{"structured":1}"#,
            r#"{"content":{}}"#,
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}

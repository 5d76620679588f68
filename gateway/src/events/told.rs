//! What followers are told: an event as the stream has it, or that something is missing. Pure.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::{begin::WhyMissing, place::EventId};

/// What stands in the log of a session.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Told {
    /// An event.
    Event(SessionEvent),
    /// Events are missing before what comes next.
    Gap(EventGap),
}

/// An event of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionEvent {
    /// Its place.
    pub(crate) id: EventId,
    /// When the stream stored it.
    pub(crate) at: OffsetDateTime,
    /// Its kind; empty where it says none.
    pub(crate) kind: String,
    /// Its bytes.
    pub(crate) payload: Bytes,
}

/// Events are missing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EventGap {
    /// Behind which event; `None`: from the first one on.
    pub(crate) behind: Option<EventId>,
    /// Why; `None`: they are older than the stream.
    pub(crate) why: Option<WhyMissing>,
    /// Up to which place.
    pub(crate) up_to: EventId,
    /// What the rows say of the session's calls; `None`: they cannot be read.
    pub(crate) calls: Option<CallsSince>,
}

/// Calls of a session as the rows have them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallsSince {
    /// Those that are decided, the oldest first.
    pub(crate) over: Vec<CallOver>,
    /// Whether there are older ones that are left out.
    pub(crate) more: bool,
}

/// A call that is decided, as far as an event would say it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CallOver {
    pub(crate) call_id: String,
    #[serde(rename(deserialize = "finished_at"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<String>,
    #[serde(default = "snapshot", skip_deserializing)]
    kind: &'static str,
    tool: String,
    /// Not told.
    #[serde(default, skip_serializing)]
    tool_version: i32,
    pub(crate) state: String,
    #[serde(default)]
    outcome: Option<String>,
    attempts: i64,
    #[serde(rename(deserialize = "error_code"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
}

/// The kind of what rows say.
pub(crate) const SNAPSHOT: &str = "snapshot";

const fn snapshot() -> &'static str {
    SNAPSHOT
}

impl CallOver {
    /// The name of its tool.
    pub(crate) fn tool(&self) -> &str {
        &self.tool
    }

    /// Whether it was accepted with this version of this tool.
    pub(crate) fn is_of(&self, tool: &str, version: i32) -> bool {
        self.tool == tool && self.tool_version == version
    }
}

impl SessionEvent {
    /// An event with these bytes.
    pub(crate) fn new(id: EventId, at: OffsetDateTime, payload: Bytes) -> Self {
        Self {
            id,
            at,
            kind: kind_of(&payload),
            payload,
        }
    }
}

impl Told {
    /// The place of a follower that has been told this.
    pub(crate) const fn place(&self) -> EventId {
        match self {
            Self::Event(event) => event.id,
            Self::Gap(gap) => gap.up_to,
        }
    }

    /// About how many bytes it takes.
    pub(crate) fn size(&self) -> usize {
        const AROUND: usize = 200;
        AROUND
            + match self {
                Self::Event(event) => event.payload.len(),
                Self::Gap(gap) => gap
                    .calls
                    .as_ref()
                    .map_or(0, |calls| AROUND * calls.over.len()),
            }
    }
}

/// The word that an event says of itself; empty where it is no word, for it becomes a line of its own.
fn kind_of(payload: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Kind {
        kind: String,
    }

    let is_word = |word: &str| {
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        (1..=32).contains(&word.len()) && word.bytes().all(letter)
    };
    let said: Result<Kind, _> = serde_json::from_slice(payload);
    let said = said.ok().map(|Kind { kind }| kind);
    said.filter(|kind| is_word(kind)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_a_word_or_there_is_none() {
        for (payload, kind) in [
            (r#"{"call_id":"x","kind":"finished"}"#, "finished"),
            (r#"{"kind":"a\nb"}"#, ""),
            (r#"{"kind":7}"#, ""),
            ("nothing", ""),
        ] {
            assert_eq!(kind_of(payload.as_bytes()), kind, "{payload}");
        }
    }

    #[test]
    fn a_row_becomes_what_an_event_would_say() {
        let row = r#"{"call_id":"c","tenant":"acme","tool":"look","state":"failed","outcome":"system_error","attempts":2,
            "error_code":"timeout","finished_at":"2026-11-28T10:00:00+00:00"}"#;
        let over: CallOver = serde_json::from_str(row).unwrap();
        assert_eq!(
            serde_json::to_string(&over).unwrap(),
            r#"{"call_id":"c","at":"2026-11-28T10:00:00+00:00","kind":"snapshot","tool":"look","state":"failed","outcome":"system_error","attempts":2,"code":"timeout"}"#
        );
    }
}

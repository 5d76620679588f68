//! Names and identifiers from outside, parsed once; the type is the proof.

use std::{borrow::Borrow, fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::wire::message::Message;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

uuid_id! {
    /// One accepted call. A `UUIDv7`: its time part routes it to a partition of the history.
    CallId
}
uuid_id! {
    /// One claim of a call. Random, never a counter: a counter repeats after a lossy failover.
    AttemptId
}
uuid_id! {
    /// One start of a worker process. Random; the worker's name is only a label.
    WorkerId
}
uuid_id! {
    /// One start of a dispatcher process. Workers address completed calls to it.
    DispatcherId
}
uuid_id! {
    /// One ledger. Random, made with it, and kept by every copy of it.
    LedgerId
}

uuid_id! {
    /// One file that a caller handed in. A `UUIDv7`, made by the dispatcher.
    FileId
}

impl FileId {
    /// A new id, ordered by time of creation.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }
}

impl CallId {
    /// A new id, ordered by time of creation.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }

    /// When it was made, to the millisecond.
    pub fn made_at(self) -> OffsetDateTime {
        // The first 48 bits of a UUIDv7 are its milliseconds.
        let made = i128::try_from(self.0.as_u128() >> 80).unwrap_or_default();
        OffsetDateTime::from_unix_timestamp_nanos(made * 1_000_000)
            .unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    /// The first id that could be made so long before this one.
    pub fn before(self, by: Duration) -> Self {
        // The first 48 bits of a UUIDv7 are its milliseconds.
        let made = u64::try_from(self.0.as_u128() >> 80).unwrap_or(u64::MAX);
        let by = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        let first = uuid::Builder::from_unix_timestamp_millis(made.saturating_sub(by), &[0; 10]);
        Self(first.into_uuid())
    }
}

impl AttemptId {
    /// A new random id, made and remembered before the claim is sent.
    pub fn generate() -> Self {
        Self(Uuid::new_v4())
    }
}

impl WorkerId {
    /// A new random id for this process start.
    pub fn generate() -> Self {
        Self(Uuid::new_v4())
    }
}

impl DispatcherId {
    /// A new random id for this process start.
    pub fn generate() -> Self {
        Self(Uuid::new_v4())
    }
}

/// The hyphenated form of a `UUIDv7` and nothing else.
fn version_seven(text: &str, what: &'static str) -> Result<Uuid, InvalidName> {
    let id = Uuid::try_parse(text)
        .ok()
        .filter(|id| text.len() == 36 && id.get_version_num() == 7);
    id.ok_or(InvalidName {
        what,
        rule: Message::fixed("a UUIDv7 in hyphenated form", "是带连字符的 UUIDv7"),
    })
}

impl FromStr for CallId {
    type Err = InvalidName;

    /// Accepts the hyphenated form of a `UUIDv7` and nothing else.
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        version_seven(text, "call id").map(Self)
    }
}

impl FromStr for FileId {
    type Err = InvalidName;

    /// Accepts the hyphenated form of a `UUIDv7` and nothing else.
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        version_seven(text, "file id").map(Self)
    }
}

impl FromStr for WorkerId {
    type Err = InvalidName;

    /// Accepts the hyphenated form of a UUID and nothing else.
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let id = Uuid::try_parse(text).ok().filter(|_| text.len() == 36);
        id.map(Self).ok_or(InvalidName {
            what: "worker id",
            rule: Message::fixed("a UUID in hyphenated form", "是带连字符的 UUID"),
        })
    }
}

/// A name that breaks its rule. The text itself is left out: it may be anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be {rule}")]
pub struct InvalidName {
    /// What was being named.
    pub what: &'static str,
    /// The rule, readable after "must be" and 必须.
    pub rule: Message,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:literal, $chinese:literal, $accepts:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                let accepts: fn(&str) -> bool = $accepts;
                if accepts(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(InvalidName { what: $what, rule: Message::fixed($rule, $chinese) })
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

fn token(text: &str, allowed: fn(u8) -> bool) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(allowed)
}

name! {
    /// A tool's name. It is a subject token, so the alphabet is narrow on purpose.
    ToolName, "tool name", "1 to 64 characters of a-z, 0-9 and _",
    "是 1 到 64 个字符，只能用 a-z、0-9 和 _",
    |text| token(text, |b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}
name! {
    /// The name of an MCP server, which the names of its tools begin with.
    ServerName, "MCP server's name", "1 to 32 characters of a-z, 0-9 and _",
    "是 1 到 32 个字符，只能用 a-z、0-9 和 _",
    |text| text.len() <= 32 && token(text, |b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}
name! {
    /// A queue's name: part of a subject and of a consumer's name.
    QueueName, "queue name", "1 to 64 characters of a-z, 0-9, _ and -",
    "是 1 到 64 个字符，只能用 a-z、0-9、_ 和 -",
    |text| token(text, |b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}
name! {
    /// An interceptor's name, as manifests, controls and metrics have it.
    InterceptorName, "interceptor name", "1 to 64 characters of a-z, 0-9 and _, beginning with a letter",
    "是 1 到 64 个字符，只能用 a-z、0-9 和 _，并以字母开头",
    |text| text.starts_with(|first: char| first.is_ascii_lowercase())
        && token(text, |b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}
name! {
    /// The name of a limit that several tools share.
    LimitName, "limit's name", "1 to 64 characters of a-z, 0-9, _ and -",
    "是 1 到 64 个字符，只能用 a-z、0-9、_ 和 -",
    |text| token(text, |b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}
name! {
    /// A tenant, session or run, as subjects and headers contain it.
    Label, "name", "1 to 64 characters of A-Z, a-z, 0-9, _ and -",
    "是 1 到 64 个字符，只能用 A-Z、a-z、0-9、_ 和 -",
    |text| token(text, |b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}
name! {
    /// The first token of every subject of one fleet.
    Prefix, "subject prefix", "1 to 64 characters of a-z, 0-9, _ and -",
    "是 1 到 64 个字符，只能用 a-z、0-9、_ 和 -",
    |text| token(text, |b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}
name! {
    /// A caller's idempotency key. Stored and logged only as a hash.
    IdempotencyKey, "idempotency key", "1 to 255 visible ASCII characters",
    "是 1 到 255 个可见的 ASCII 字符",
    |text| (1..=255).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

impl InterceptorName {
    /// The names of the engine's own parts: no program may give them to an interceptor.
    pub const OF_ENGINE: [&str; 16] = [
        "breaker",
        "budget",
        "cache",
        "context",
        "delegation",
        "fallback",
        "large_result",
        "learned_timeout",
        "log",
        "pause",
        "policy",
        "rate_limit",
        "repeat_cap",
        "retry_budget",
        "todo",
        "tool_selection",
    ];

    /// Whether it is one of the engine's own.
    pub fn is_of_engine(&self) -> bool {
        Self::OF_ENGINE.contains(&self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_change_a_subject_are_refused() {
        for hostile in [
            "",
            "a.b",
            "*",
            ">",
            "a b",
            "..",
            "Ab",
            "a\0",
            "a\r\nb",
            &"a".repeat(65),
        ] {
            assert!(hostile.parse::<ToolName>().is_err(), "{hostile:?}");
        }
        assert!("get_weather2".parse::<ToolName>().is_ok());
        assert!("Acme-1_x".parse::<Label>().is_ok());
        assert!("Acme.1".parse::<Label>().is_err());
    }

    #[test]
    fn the_first_id_of_an_earlier_moment_is_before_all_that_are_made_from_then_on() {
        let call = CallId::generate();
        let second = Duration::from_secs(1);
        assert!(call.before(Duration::ZERO) <= call);
        assert!(call.before(second) < call.before(Duration::from_millis(999)));
        assert_eq!(call.before(second).before(second), call.before(2 * second));
        let text = call.before(second).to_string();
        assert_eq!(text.parse::<CallId>().unwrap(), call.before(second));
        let first = call.before(Duration::MAX);
        assert_eq!(first, first.before(second));
    }

    #[test]
    fn only_version_seven_ids_name_calls() {
        assert!(CallId::generate().to_string().parse::<CallId>().is_ok());
        assert!(Uuid::new_v4().to_string().parse::<CallId>().is_err());
        assert!(
            CallId::generate()
                .0
                .simple()
                .to_string()
                .parse::<CallId>()
                .is_err()
        );
    }
}

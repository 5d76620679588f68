//! What the frame and the first page show of all calls, as `GET /v1/overview` has it.

use std::collections::BTreeMap;

use serde::Deserialize;
use time::{Duration, OffsetDateTime};

use super::super::{state::Console, visitor::Visitor};
use crate::refusal::Refused;

/// What somebody looks at first.
#[derive(Debug, Clone, Deserialize)]
pub(in super::super) struct Overview {
    /// Postgres's clock.
    #[serde(with = "time::serde::rfc3339")]
    pub(in super::super) now: OffsetDateTime,
    open: BTreeMap<String, i64>,
    minutes: Vec<Minute>,
}

/// What became of the calls of a minute.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Minute {
    #[serde(with = "time::serde::rfc3339")]
    pub(super) from: OffsetDateTime,
    pub(super) calls: BTreeMap<String, i64>,
}

/// How many minutes are shown.
const MINUTES: i64 = 10;

impl Overview {
    pub(in super::super) async fn get(
        console: &Console,
        visitor: &Visitor,
    ) -> Result<Self, Refused> {
        console.api.get(visitor, "/v1/overview").await
    }

    /// How many open calls there are in this state.
    pub(in super::super) fn open(&self, state: &str) -> i64 {
        self.open.get(state).copied().unwrap_or_default()
    }

    /// The last ten minutes, the oldest first: those in which no calls came are empty.
    pub(super) fn ten_minutes(&self) -> Vec<Minute> {
        let seconds = i64::from(self.now.second());
        let begun = self.now.replace_nanosecond(0).unwrap_or(self.now) - Duration::seconds(seconds);
        let ago = (0..MINUTES).rev().map(|ago| begun - Duration::minutes(ago));
        let told = |from| {
            self.minutes
                .iter()
                .find(|minute| minute.from == from)
                .cloned()
        };
        let empty = |from| Minute {
            from,
            calls: BTreeMap::new(),
        };
        ago.map(|from| told(from).unwrap_or_else(|| empty(from)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_without_calls_are_there() {
        let told = r#"{"now":"2026-12-01T03:10:30.5Z","open":{},"minutes":[
            {"from":"2026-12-01T03:00:00Z","calls":{"success":1}},
            {"from":"2026-12-01T03:08:00Z","calls":{"success":7}}]}"#;
        let overview: Overview = serde_json::from_str(told).unwrap();
        let minutes = overview.ten_minutes();
        let calls: Vec<i64> = minutes
            .iter()
            .map(|minute| minute.calls.values().sum())
            .collect();
        assert_eq!(
            calls,
            [0, 0, 0, 0, 0, 0, 0, 7, 0, 0],
            "the first of those told is too old"
        );
    }
}

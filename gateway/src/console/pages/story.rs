//! A call's story, as the API tells it.

use fleet_history::story::EVENTS;
use serde::Deserialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;

use super::{
    super::{
        state::Console,
        timeline::Gap,
        visitor::{Visitor, encoded},
    },
    doubt, waiting,
};
use crate::refusal::Refused;

/// A call as the history has it, as far as a page shows it.
#[derive(Debug, Deserialize)]
pub(super) struct StoryCall {
    pub(super) call_id: String,
    pub(super) tenant: String,
    pub(super) tool: String,
    pub(super) tool_version: i32,
    pub(super) effect: String,
    pub(super) state: String,
    pub(super) outcome: Option<String>,
    pub(super) source: Option<String>,
    pub(super) held: bool,
    pub(super) args: Option<Box<RawValue>>,
    pub(super) original_args: Option<Box<RawValue>>,
    pub(super) coercions: Option<Vec<Corrected>>,
    pub(super) result: Option<Box<RawValue>>,
    pub(super) error: Option<Box<RawValue>>,
    pub(super) attempts: i32,
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub(super) not_before: Option<OffsetDateTime>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub(super) deadline_at: Option<OffsetDateTime>,
    pub(super) session: Option<String>,
    pub(super) run: Option<String>,
    pub(super) priority: String,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) accepted_at: OffsetDateTime,
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub(super) finished_at: Option<OffsetDateTime>,
    pub(super) worker: Option<String>,
    pub(super) trace_id: Option<String>,
    pub(super) queue: String,
    pub(super) effect_known: Option<String>,
    pub(super) sensitive: bool,
    #[serde(default)]
    pub(super) settled_by: Option<String>,
    #[serde(default)]
    pub(super) awaiting: Option<String>,
    #[serde(default)]
    pub(super) marked: Option<String>,
    #[serde(default)]
    meta: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
struct CallMeta {
    principal: Option<String>,
}

impl StoryCall {
    /// Who made it, as far as that is known.
    pub(super) fn asked_by(&self) -> Option<String> {
        let meta: CallMeta = serde_json::from_str(self.meta.as_ref()?.get()).ok()?;
        meta.principal
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Corrected {
    pub(super) path: String,
    pub(super) rule: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct StoryAttempt {
    /// `None` while it runs.
    #[serde(default)]
    attempt_id: Option<String>,
    pub(super) number: i32,
    pub(super) worker: Option<String>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub(super) started_at: Option<OffsetDateTime>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    pub(super) finished_at: Option<OffsetDateTime>,
    pub(super) timeout_ms: Option<i64>,
    pub(super) outcome: Option<String>,
    pub(super) effect: Option<String>,
    #[serde(default)]
    pub(super) late: bool,
    pub(super) error: Option<AttemptFailure>,
}

#[derive(Debug, Deserialize)]
pub(super) struct AttemptFailure {
    pub(super) code: Option<String>,
    pub(super) message: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct StoryMove {
    pub(super) revision: i32,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) at: OffsetDateTime,
    pub(super) from_state: Option<String>,
    pub(super) to_state: String,
    pub(super) actor: String,
    pub(super) reason: String,
    pub(super) details: Option<Box<RawValue>>,
    /// `None` while it runs.
    #[serde(default)]
    attempt_id: Option<String>,
}

/// A call's story, as `GET /v1/history/{call}` tells it.
#[derive(Debug, Deserialize)]
pub(super) struct Story {
    pub(super) call: StoryCall,
    pub(super) attempts: Vec<StoryAttempt>,
    pub(super) events: Vec<StoryMove>,
    pub(super) attempts_max: Option<i32>,
    pub(super) attempts_in_all: usize,
    pub(super) events_in_all: usize,
}

/// As `GET /v1/history/{call}/why` says it.
#[derive(Debug, Deserialize)]
pub(super) struct CallWhy {
    pub(super) reason: String,
    pub(super) because: String,
    pub(super) next: String,
    pub(super) commands: Vec<String>,
}

impl Story {
    /// That of this call.
    ///
    /// # Errors
    ///
    /// It cannot be read, or there is no such call for who looks.
    pub(super) async fn get(
        console: &Console,
        visitor: &Visitor,
        call: &str,
    ) -> Result<Self, Refused> {
        console.api.get(visitor, &path(call)).await
    }
}

impl Story {
    /// By whom a move was made: where it was the worker of an attempt that is over, by its name in place of its id.
    pub(super) fn author<'a>(&'a self, moved: &'a StoryMove) -> &'a str {
        let is_its = |attempt: &&StoryAttempt| {
            moved.attempt_id.is_some() && attempt.attempt_id == moved.attempt_id
        };
        let worker = moved
            .actor
            .starts_with("worker ")
            .then(|| self.attempts.iter().find(is_its)?.worker.as_deref());
        worker.flatten().unwrap_or(&moved.actor)
    }

    /// Where moves are left out that it has between its first and its last ones.
    pub(super) fn gap(&self) -> Option<Gap> {
        if self.events_in_all <= self.events.len() {
            return None;
        }
        let (behind, _last) = EVENTS;
        let claims = self.events.iter().filter(|moved| {
            moved.to_state == "running" && moved.from_state.as_deref() != Some("running")
        });
        let attempts = usize::try_from(self.call.attempts).unwrap_or(0);
        Some(Gap {
            behind: usize::try_from(behind).ok()?,
            attempts: attempts.saturating_sub(claims.count()),
        })
    }
}

impl CallWhy {
    /// That of this call; `None` where it cannot be read.
    pub(super) async fn get(console: &Console, visitor: &Visitor, call: &str) -> Option<Self> {
        console
            .api
            .get(visitor, &format!("{}/why", path(call)))
            .await
            .ok()
    }
}

fn path(call: &str) -> String {
    format!("/v1/history/{}", encoded(call))
}

/// What the page of a call is made from, but for why it does not run: that changes with the rest.
pub(in super::super) fn asks(call: &str) -> Vec<String> {
    vec![path(call), doubt::asks_of(call), waiting::asks_of(call)]
}

//! Moves since the last look. Calls have no common order, so each call is followed by its own revisions.

use std::collections::{HashMap, HashSet};

use fleet::{
    ids::{CallId, Label, ToolName},
    store::StoreError,
};
use serde::Deserialize;
use sqlx::PgPool;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::{filter::Filter, row::Row};

/// The newest calls that are open or came within the last minute, each with its tool. Only tool, tenant and limit of the filter
/// are used.
///
/// Only an open call has `not_before`, so of the history only the last minute is read, by its key.
///
/// # Errors
///
/// The view cannot be read.
pub async fn current(pool: &PgPool, filter: &Filter) -> Result<Vec<(Uuid, String)>, StoreError> {
    sqlx::query_as(
        "SELECT call_id, tool FROM toolfleet.calls
         WHERE (not_before IS NOT NULL
                OR call_id > (lpad(to_hex((extract(epoch FROM now() - interval '1 minute') * 1000)::bigint), 12, '0')
                              || repeat('0', 20))::uuid)
           AND ($1::text IS NULL OR tool = $1)
           AND ($2::text IS NULL OR tenant = $2)
         ORDER BY call_id DESC
         LIMIT $3",
    )
    .bind(filter.tool.as_ref().map(ToolName::as_str))
    .bind(filter.tenant.as_ref().map(Label::as_str))
    .bind(filter.limit)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("look for calls", error))
}

/// A new move.
#[derive(Debug, sqlx::FromRow)]
pub struct NewMove {
    /// The call.
    pub call_id: Uuid,
    /// The row's revision after it.
    pub revision: i32,
    /// Whether no move can follow it.
    pub over: bool,
    /// The row of `call_events`.
    pub event: Row<FollowedEvent>,
}

/// The fields of a row of `call_events` about a move.
#[derive(Debug, Clone, Deserialize)]
pub struct FollowedEvent {
    /// The call.
    pub call_id: CallId,
    /// When it moved.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// The state before.
    pub from_state: Option<String>,
    /// The state after.
    pub to_state: String,
    /// The author of the move.
    pub actor: String,
    /// The reason, as a word.
    pub reason: String,
}

/// The moves of these calls after these revisions, in the order of their times.
///
/// `OFFSET 0` makes Postgres look up each call by its key; without it, a join reads the whole history instead.
///
/// # Errors
///
/// The view cannot be read.
pub async fn moves_since(pool: &PgPool, known: &[(Uuid, i32)]) -> Result<Vec<NewMove>, StoreError> {
    let (calls, revisions): (Vec<Uuid>, Vec<i32>) = known.iter().copied().unzip();
    sqlx::query_as(
        "SELECT e.call_id, e.revision, row_to_json(e)::text AS event,
                e.to_state IN ('succeeded', 'failed', 'cancelled', 'expired') AS over
         FROM unnest($1::uuid[], $2::integer[]) AS known (call_id, revision)
         CROSS JOIN LATERAL (
             SELECT * FROM toolfleet.call_events e
             WHERE e.call_id = known.call_id AND e.revision > known.revision
             OFFSET 0) e
         ORDER BY e.at, e.call_id, e.revision",
    )
    .bind(calls)
    .bind(revisions)
    .fetch_all(pool)
    .await
    .map_err(|error| StoreError::from_sqlx("read events", error))
}

/// How far each call has been followed.
#[derive(Debug, Default)]
pub struct Followed {
    calls: HashMap<Uuid, Reached>,
    /// The tools of those calls, and of calls that are new.
    tools: HashMap<Uuid, String>,
}

#[derive(Debug, Clone, Copy)]
struct Reached {
    revision: i32,
    over: bool,
}

impl Followed {
    /// Records the tools of these calls.
    pub fn meet(&mut self, current: &[(Uuid, String)]) {
        for (call, tool) in current {
            self.tools.entry(*call).or_insert_with(|| tool.clone());
        }
    }

    /// The tool of a recorded call.
    pub fn tool(&self, call: Uuid) -> &str {
        self.tools.get(&call).map_or("-", String::as_str)
    }

    /// Every call that may have moved, with its last known revision.
    pub fn question(&self, current: &[Uuid]) -> Vec<(Uuid, i32)> {
        let new = current.iter().filter(|call| !self.calls.contains_key(call));
        let known = self.calls.iter().filter(|(_, reached)| !reached.over);
        let known = known.map(|(call, reached)| (*call, reached.revision));
        known.chain(new.map(|call| (*call, -1))).collect()
    }

    /// Records the moves that were found. A call that is over and no longer current does not move any more.
    pub fn learn(&mut self, current: &[Uuid], moves: &[NewMove]) {
        let current: HashSet<&Uuid> = current.iter().collect();
        for NewMove {
            call_id,
            revision,
            over,
            ..
        } in moves
        {
            let reached = self.calls.entry(*call_id).or_insert(Reached {
                revision: *revision,
                over: *over,
            });
            reached.revision = reached.revision.max(*revision);
            reached.over |= *over;
        }
        self.calls
            .retain(|call, reached| !reached.over || current.contains(call));
        self.tools.retain(|call, _| self.calls.contains_key(call));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(call_id: Uuid, revision: i32, over: bool) -> NewMove {
        NewMove {
            call_id,
            revision,
            over,
            event: String::new().into(),
        }
    }

    #[test]
    fn a_call_is_followed_to_its_end_and_told_once() {
        let (call, other) = (Uuid::now_v7(), Uuid::now_v7());
        let mut followed = Followed::default();
        followed.meet(&[(call, "look_up".to_owned()), (other, "charge".to_owned())]);
        assert_eq!(
            (followed.tool(call), followed.tool(other)),
            ("look_up", "charge")
        );
        assert_eq!(followed.question(&[call]), [(call, -1)]);
        followed.learn(&[call], &[moved(call, 0, false), moved(call, 1, false)]);
        // No longer among the current ones, because it has ended meanwhile: it is asked about all the same.
        let mut asked = followed.question(&[other]);
        asked.sort_by_key(|(_, revision)| *revision);
        assert_eq!(asked, [(other, -1), (call, 1)]);
        followed.learn(&[other], &[moved(call, 2, true), moved(other, 0, true)]);
        // Over and still current: it is known, so it is not reported again.
        assert!(followed.question(&[other]).is_empty());
        followed.learn(&[], &[]);
        assert!(followed.calls.is_empty() && followed.tools.is_empty());
    }
}

//! Postpone: a queued call that cannot run here and now waits in the ledger, not in NATS.
//!
//! A message that is refused with a delay keeps its place among the messages in flight, so thousands of them would stop a whole
//! queue. A row in the ledger blocks nothing: the sweep publishes the call again when its pause is over.

use std::{sync::LazyLock, time::Duration};

use sqlx::PgPool;

use super::{StoreError, answer::listen, statement::EXPIRES_AT};
use crate::{ids::CallId, obstacle::Obstacle};

/// How long a call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostponedFor {
    /// So long.
    Exactly(Duration),
    /// Two seconds, and where it was accepted longer ago an eighth of that, up to 30 s.
    ///
    /// Ten thousand calls that no worker can run for hours do not keep the fleet busy, and a call that one can run again after
    /// a minute does not wait for another.
    Growing,
}

impl PostponedFor {
    /// The shortest and the longest it may be, in seconds. In between it is an eighth of the call's age.
    const fn bounds(self) -> (f64, f64) {
        match self {
            Self::Exactly(pause) => (pause.as_secs_f64(), pause.as_secs_f64()),
            Self::Growing => (2.0, 30.0),
        }
    }
}

/// A call that is to wait.
#[derive(Debug, Clone, Copy)]
pub struct Postponed<'a> {
    /// The call.
    pub call: CallId,
    /// Its revision when it was read.
    pub rev: i32,
    /// How long it waits.
    pub pause: PostponedFor,
    /// The reason.
    pub obstacle: &'a Obstacle,
    /// The author: `worker <id>`.
    pub actor: &'a str,
}

/// Postpones a queued call and writes the reason.
///
/// A reason that its history does not have yet is a remark there too, unless it [passes](crate::obstacle::Lack::passes) by
/// itself: so a call has as many remarks as there are reasons, however often it waits.
///
/// Own autocommit statement; guard: queued, not held, not waiting for its time already, and not moved since `rev`; false: one of
/// these is not so. A message that came late neither shortens nor prolongs a pause between two attempts. Repeating it changes
/// nothing. It is no move: the revision changes only with a remark.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn postpone(pool: &PgPool, postponed: Postponed<'_>) -> Result<bool, StoreError> {
    let doing = "postpone a call";
    let passes = postponed.obstacle.lack.passes();
    let sql = if passes {
        "UPDATE toolfleet.open_calls o \
         SET (not_before, due_at) = (SELECT p.again_at, p.again_at FROM ( \
                 SELECT now() + make_interval(secs => least(greatest($3, extract(epoch FROM now() - o.accepted_at) / 8), $5)) AS again_at) AS p), \
             publish_n = o.publish_n + 1, obstacle = $4::text::json \
         WHERE o.call_id = $1 AND o.rev = $2 AND o.state = 'queued' AND NOT o.held AND o.due_at IS NULL \
         RETURNING o.call_id"
    } else {
        include_str!("sql/postpone.sql")
    };
    let obstacle = serde_json::to_string(postponed.obstacle)
        .map_err(|error| StoreError::unreadable(doing, error))?;
    let (pause_min, pause_max) = postponed.pause.bounds();
    let query = sqlx::query(sql)
        .bind(postponed.call.0)
        .bind(postponed.rev)
        .bind(pause_min)
        .bind(obstacle)
        .bind(pause_max);
    let query = if passes {
        query
    } else {
        query.bind(postponed.actor)
    };
    let done = listen(query.fetch_optional(pool)).await;
    done.map(|done| done.is_some())
        .map_err(|error| StoreError::from_sqlx(doing, error))
}

static PUT_BACK: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE toolfleet.open_calls o \
         SET (not_before, due_at) = ( \
                 SELECT due.at, due.at \
                 FROM (SELECT {EXPIRES_AT} AS expires_at) AS time, \
                      LATERAL (SELECT least(now() + i.pause_ms * interval '1 millisecond', \
                                            greatest(time.expires_at - interval '1 second', now() + interval '500 ms')) AS at) AS due), \
             publish_n = o.publish_n + 1, obstacle = $3::text::json \
         FROM (SELECT unnest($1::uuid[]) AS call_id, unnest($2::bigint[]) AS pause_ms) AS i \
         WHERE o.call_id = ANY($1) AND o.call_id = i.call_id AND o.state = 'queued' AND NOT o.held AND o.due_at IS NULL"
    )
});

/// Postpones each of these calls by its own pause, for a lack that passes by itself, and writes the reason.
///
/// A call that would expire before that comes again a second before its time is over, but no sooner than after half a second.
///
/// Own autocommit statement; guard: queued, not held and not postponed already; a call that has moved is left as it is.
/// Repeating it changes nothing. It is no move and no remark, so the revisions stay.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn put_back(
    pool: &PgPool,
    calls: &[(CallId, Duration)],
    obstacle: &Obstacle,
) -> Result<(), StoreError> {
    let doing = "put calls back";
    let obstacle =
        serde_json::to_string(obstacle).map_err(|error| StoreError::unreadable(doing, error))?;
    let millis = |pause: Duration| i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
    listen(
        sqlx::query(PUT_BACK.as_str())
            .bind(calls.iter().map(|(call, _)| call.0).collect::<Vec<_>>())
            .bind(
                calls
                    .iter()
                    .map(|(_, pause)| millis(*pause))
                    .collect::<Vec<_>>(),
            )
            .bind(obstacle)
            .execute(pool),
    )
    .await
    .map(drop)
    .map_err(|error| StoreError::from_sqlx(doing, error))
}

//! Controls: reads those that hold, and asks the ledger to set one or to take one away.
//!
//! `toolfleet.set_control` and `toolfleet.unset_control` in the database decide whether that is allowed, for people with psql,
//! at the command line and over NATS alike, and write the log of it. They answer with the control as a row of the view
//! `controls`, in JSON.

use std::time::Duration;

use sqlx::{PgExecutor, PgPool, Row as _, postgres::PgRow};
use tokio::time::Instant;

use super::{
    DecisionError, StoreError,
    answer::listen,
    columns::{parsed, parsed_if_any},
    decision::decide,
};
use crate::{
    breaker::ForcedBreaker,
    call::words,
    controls::{ArgumentEquals, ControlId, Controls, Pause, PauseMode, PauseScope},
    ids::{Label, ToolName},
    modes::{InterceptMode, ModeControl, ModeSaid, ModeScope, Modes},
};

words! {
    /// What controls are there for.
    ControlKind {
        /// Keeps calls from running.
        Pause = "pause",
        /// Says what an interceptor may do.
        Mode = "mode",
        /// Says which interceptors remain.
        Only = "only",
        /// Forces a breaker open or closed.
        Breaker = "breaker",
        /// Says how many attempts start in a time.
        Limit = "limit",
    }
}

/// What a control is about, as a person names it. The ledger says what is wrong with it.
#[derive(Debug, Clone, Copy, Default)]
pub struct ControlScope<'a> {
    /// A tool.
    pub tool: Option<&'a str>,
    /// A queue.
    pub queue: Option<&'a str>,
    /// A tenant.
    pub tenant: Option<&'a str>,
    /// JSON pointer into the arguments.
    pub pointer: Option<&'a str>,
    /// The value there: JSON text, as [`ArgumentEquals::canonical`] makes it. The ledger has its own one spelling for a number.
    pub value: Option<&'a str>,
    /// What it is about besides calls.
    pub subject: Option<&'a str>,
}

/// A control that somebody wants to set.
#[derive(Debug, Clone, Copy)]
pub struct NewControl<'a> {
    /// Its kind.
    pub kind: ControlKind,
    /// What it is about.
    pub scope: ControlScope<'a>,
    /// JSON text: what it does there.
    pub setting: &'a str,
    /// What a model may read.
    pub told: Option<&'a str>,
    /// The author.
    pub actor: &'a str,
    /// Why.
    pub note: &'a str,
    /// How long it holds, in milliseconds; `None`: until somebody takes it away.
    pub for_ms: Option<i64>,
    /// The tenant whose controls the author may set; `None`: all.
    pub in_tenant: Option<&'a Label>,
}

/// Whether a control was set. Each with the one that is there now, as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlSet {
    /// It is set.
    Set(String),
    /// Another one with the same scope was there, and is this one now.
    Changed(String),
    /// The very same one was there.
    Already(String),
    /// One with the same scope is there, and it is another: nothing was changed.
    Conflict(String),
}

/// Which control is to go.
#[derive(Debug, Clone, Copy)]
pub enum WhichControl<'a> {
    /// The one with this id.
    Id(ControlId),
    /// The one with this id, if it is of this kind.
    IdOf(ControlKind, ControlId),
    /// The one of this kind and scope.
    Scope(ControlKind, ControlScope<'a>),
}

/// A control that somebody wants to take away.
#[derive(Debug, Clone, Copy)]
pub struct Unset<'a> {
    /// Which.
    pub which: WhichControl<'a>,
    /// The author.
    pub actor: &'a str,
    /// Why.
    pub note: &'a str,
    /// The tenant whose controls the author may take away; `None`: all.
    pub in_tenant: Option<&'a Label>,
}

/// Sets a control.
///
/// Own autocommit statement; guards: it makes sense, and none with its scope is there. Safe to repeat: the same control is
/// recognised. Locks the fleet's row, so that changes are numbered in the order of their commits.
///
/// # Errors
///
/// [`DecisionError::Invalid`] says what is wrong with it; otherwise Postgres does not answer.
pub async fn set(
    ledger: impl PgExecutor<'_>,
    control: &NewControl<'_>,
) -> Result<ControlSet, DecisionError> {
    put(ledger, control, false).await
}

/// Sets a control, or changes the one with the same scope that is there: it keeps its id, and what waits for it waits on.
///
/// Own autocommit statement; guard: it makes sense, otherwise the one that is there stays. Safe to repeat; the time of one with an
/// end begins anew with each. Locks the fleet's row.
///
/// # Errors
///
/// As for [`set`].
pub async fn replace(
    ledger: impl PgExecutor<'_>,
    control: &NewControl<'_>,
) -> Result<ControlSet, DecisionError> {
    put(ledger, control, true).await
}

async fn put(
    ledger: impl PgExecutor<'_>,
    control: &NewControl<'_>,
    replaces: bool,
) -> Result<ControlSet, DecisionError> {
    let NewControl { scope, .. } = control;
    let asking = sqlx::query(
        "SELECT verdict, control::text FROM toolfleet.set_control( \
             $1, $2::json, $3, $4, $5, $6, $7, $8, $9::json, $10, $11, $12, $13, $14)",
    )
    .bind(control.kind.as_str())
    .bind(control.setting)
    .bind(control.actor)
    .bind(control.note)
    .bind(scope.tool)
    .bind(scope.queue)
    .bind(scope.tenant)
    .bind(scope.pointer)
    .bind(scope.value)
    .bind(scope.subject)
    .bind(control.told)
    .bind(control.for_ms)
    .bind(control.in_tenant.map(Label::as_str))
    .bind(replaces);
    decide("set a control", ledger, asking, set_answer).await
}

fn set_answer(row: &PgRow) -> Result<ControlSet, sqlx::Error> {
    let control = row.try_get("control")?;
    Ok(match row.try_get("verdict")? {
        "set" => ControlSet::Set(control),
        "changed" => ControlSet::Changed(control),
        "already" => ControlSet::Already(control),
        "conflict" => ControlSet::Conflict(control),
        other => return Err(unknown(other)),
    })
}

/// Takes a control away, and returns the one that was there as JSON; `None`: there is none.
///
/// Own autocommit statement. Safe to repeat: then it finds none. Locks the fleet's row.
///
/// # Errors
///
/// [`DecisionError::Invalid`] says what is wrong with the request; otherwise Postgres does not answer.
pub async fn unset(
    ledger: impl PgExecutor<'_>,
    unset: &Unset<'_>,
) -> Result<Option<String>, DecisionError> {
    let (id, kind, scope) = match unset.which {
        WhichControl::Id(id) => (Some(id.0), None, ControlScope::default()),
        WhichControl::IdOf(kind, id) => (Some(id.0), Some(kind.as_str()), ControlScope::default()),
        WhichControl::Scope(kind, scope) => (None, Some(kind.as_str()), scope),
    };
    let asking = sqlx::query(
        "SELECT verdict, control::text FROM toolfleet.unset_control( \
             $1, $2, $3, $4, $5, $6, $7, $8, $9::json, $10, $11)",
    )
    .bind(unset.actor)
    .bind(unset.note)
    .bind(id)
    .bind(kind)
    .bind(scope.tool)
    .bind(scope.queue)
    .bind(scope.tenant)
    .bind(scope.pointer)
    .bind(scope.value)
    .bind(scope.subject)
    .bind(unset.in_tenant.map(Label::as_str));
    decide("unset a control", ledger, asking, |row| {
        Ok(match row.try_get("verdict")? {
            "unset" => Some(row.try_get("control")?),
            "not_found" => None,
            other => return Err(unknown(other)),
        })
    })
    .await
}

/// The controls that hold, the newest first, each as JSON; of this tenant, or of all.
///
/// Those of a tenant are without the notes of the fleet's operators. One statement.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn listed(pool: &PgPool, tenant: Option<&Label>) -> Result<Vec<String>, StoreError> {
    let listing = sqlx::query_scalar(
        "SELECT row_to_json(listed)::text FROM ( \
             SELECT c.control_id, c.kind, c.tool, c.queue, c.tenant, c.pointer, c.value, c.subject, c.setting, c.told, c.actor, \
                    toolfleet.note_for(c.note, l.set_in, $1) AS note, c.role, c.set_at, c.expires_at, c.waiting \
             FROM toolfleet.controls c JOIN toolfleet.live_controls l USING (control_id) \
             WHERE $1::text IS NULL OR c.tenant = $1 ORDER BY c.control_id DESC LIMIT 1000) listed",
    )
    .bind(tenant.map(Label::as_str))
    .fetch_all(pool);
    listen(listing)
        .await
        .map_err(|error| StoreError::from_sqlx("list controls", error))
}

fn unknown(verdict: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("{verdict:?} is not a known verdict").into())
}

/// How many queued calls a scope covers now; at most 100,000 are counted. One statement, which reads the open calls.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn covered(
    ledger: impl PgExecutor<'_>,
    scope: &ControlScope<'_>,
) -> Result<i64, StoreError> {
    let unescaped = |segment: &str| segment.replace("~1", "/").replace("~0", "~");
    let path = scope.pointer.map(|pointer| {
        let segments = pointer.split('/').skip(1);
        segments.map(unescaped).collect::<Vec<_>>()
    });
    sqlx::query_scalar(
        "SELECT count(*) FROM ( \
             SELECT FROM toolfleet.open_calls \
             WHERE state = 'queued' AND ($1::text IS NULL OR tool = $1) AND ($2::text IS NULL OR queue = $2) \
               AND ($3::text IS NULL OR tenant = $3) AND ($4::text[] IS NULL OR toolfleet.plain_number((args #> $4)::text) = toolfleet.plain_number($5)) \
             LIMIT 100000) covered",
    )
    .bind(scope.tool)
    .bind(scope.queue)
    .bind(scope.tenant)
    .bind(path)
    .bind(scope.value)
    .fetch_one(ledger)
    .await
    .map_err(|error| StoreError::from_sqlx("count what a control covers", error))
}

/// Takes away the controls that are over, with a line each in the log; returns their number.
///
/// Own autocommit statement; safe to repeat, for any number of dispatchers at once.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn expire(pool: &PgPool) -> Result<u64, StoreError> {
    let expiring = sqlx::query_scalar("SELECT toolfleet.expire_controls()").fetch_one(pool);
    let expired: i64 = listen(expiring)
        .await
        .map_err(|error| StoreError::from_sqlx("end controls that are over", error))?;
    Ok(expired.unsigned_abs())
}

/// The controls that hold. One statement; controls of kinds that this program does not know are left out.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn holding(pool: &PgPool) -> Result<Controls, StoreError> {
    let doing = "read controls";
    let rows = listen(
        sqlx::query(
            "SELECT control_id, kind, tool, queue, tenant, pointer, value, subject, setting #>> '{}' AS mode, told, \
                    ceil(extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint AS left_ms \
             FROM toolfleet.live_controls WHERE kind = ANY($1)",
        )
        .bind(ControlKind::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>())
        .fetch_all(pool),
    )
    .await;
    // After the answer: what the ledger counts from its own clock is never over here before it is over there.
    let read_at = Instant::now();
    let rows = rows.map_err(|error| StoreError::from_sqlx(doing, error))?;
    let (mut pauses, mut modes, mut forced, mut has_expired) =
        (Vec::new(), Vec::new(), Vec::new(), false);
    let mut ledgers_end: Option<Instant> = None;
    for row in &rows {
        let left_ms: Option<i64> = row
            .try_get("left_ms")
            .map_err(|error| StoreError::unreadable(doing, error))?;
        if left_ms.is_some_and(|left| left <= 0) {
            has_expired = true;
            continue;
        }
        let until = left_ms.map(|left| read_at + Duration::from_millis(left.unsigned_abs()));
        let kind: Result<ControlKind, _> = parsed(row, "kind");
        let read = kind.and_then(|kind| match kind {
            ControlKind::Pause => pause(row, until).map(|pause| pauses.push(pause)),
            ControlKind::Mode | ControlKind::Only => {
                mode(row, kind, until).map(|mode| modes.push(mode))
            }
            ControlKind::Breaker => forced_breaker(row, until).map(|one| forced.push(one)),
            // The ledger has its numbers; somebody has to take it away when it is over.
            ControlKind::Limit => {
                ledgers_end = ledgers_end.into_iter().chain(until).min();
                Ok(())
            }
        });
        // The others hold all the same.
        if let Err(error) = read {
            tracing::warn!(%error, "a control cannot be read by this program and is left out");
        }
    }
    let controls = Controls::new(pauses, has_expired);
    let controls = controls.with_modes(Modes::new(modes)).with_forced(forced);
    Ok(controls.with_ledgers_end(ledgers_end))
}

fn forced_breaker(
    row: &PgRow,
    until: Option<Instant>,
) -> Result<(ToolName, ForcedBreaker), sqlx::Error> {
    let is_open = match row.try_get("mode")? {
        "open" => true,
        "closed" => false,
        other => {
            return Err(sqlx::Error::Decode(
                format!("{other:?} forces no breaker").into(),
            ));
        }
    };
    Ok((parsed(row, "tool")?, ForcedBreaker { is_open, until }))
}

fn pause(row: &PgRow, until: Option<Instant>) -> Result<Pause, sqlx::Error> {
    let id = ControlId(row.try_get("control_id")?);
    let pointer: Option<String> = row.try_get("pointer")?;
    let value: Option<&str> = row.try_get("value")?;
    let holds = pointer.map(|pointer| {
        let value = value.and_then(|value| ArgumentEquals::parse(value).ok());
        if value.is_none() {
            tracing::warn!(control = %id, "the value of a pause cannot be read: it pauses every call of its scope");
        }
        ArgumentEquals { pointer, value }
    });
    // A word of a newer release: what is paused must not run.
    let mode = parsed(row, "mode").unwrap_or(PauseMode::Wait);
    Ok(Pause {
        id,
        scope: PauseScope {
            tool: parsed_if_any(row, "tool")?,
            queue: parsed_if_any(row, "queue")?,
            tenant: parsed_if_any(row, "tenant")?,
            holds,
        },
        mode,
        told: row.try_get("told")?,
        until,
    })
}

fn mode(
    row: &PgRow,
    kind: ControlKind,
    until: Option<Instant>,
) -> Result<ModeControl, sqlx::Error> {
    let setting: String = row.try_get("mode")?;
    let says = if kind == ControlKind::Only {
        let names = serde_json::from_str(&setting);
        ModeSaid::Only(names.map_err(|error| sqlx::Error::Decode(Box::new(error)))?)
    } else {
        // A word of a newer release: what guards goes on to guard.
        let mode = setting.parse().unwrap_or(InterceptMode::Enforce);
        ModeSaid::Mode(row.try_get("subject")?, mode)
    };
    Ok(ModeControl {
        scope: ModeScope {
            tool: parsed_if_any(row, "tool")?,
            tenant: parsed_if_any(row, "tenant")?,
        },
        says,
        until,
    })
}

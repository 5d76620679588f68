//! What keeps calls from starting: pauses, forced breakers, rates, equal calls, and who waits for them.

use anyhow::{Context as _, Result};
use fleet::manifest::{CacheSpec, RateLimit};
use serde_json::Value;
use sqlx::PgPool;

use super::{Row, rows};
use crate::oracle::{
    clock::Clock,
    facts::{BreakerRow, Forced, Held, Moment, Pause, Rate},
};

/// How often a tool's attempts may start, as its manifest says.
pub(super) fn rate(written: &Value) -> Result<Option<Rate>> {
    if written.is_null() {
        return Ok(None);
    }
    let limit: RateLimit = serde_json::from_value(written.clone()).context("a tool's rate")?;
    let per = limit.per.context("a rate has a time")?;
    Ok(Some(Rate {
        calls: limit.calls.context("a rate has a number")?.into(),
        per_ms: u64::try_from(per.as_millis())?,
        burst: limit.burst.unwrap_or(1).into(),
    }))
}

/// How long a tool's answers count, as its manifest says, in milliseconds.
pub(super) fn ttl_ms(written: &Value) -> Result<Option<Moment>> {
    if written.is_null() {
        return Ok(None);
    }
    let cache: CacheSpec = serde_json::from_value(written.clone()).context("a tool's cache")?;
    Ok(Some(Moment::try_from(cache.ttl.as_millis())?))
}

/// Every control of a kind that was set, with its end.
const SET: &str = "SELECT json_build_object('control_id', s.control_id, 'tool', s.tool, 'has_value', s.pointer IS NOT NULL, \
    'setting', s.setting #>> '{}', 'set_at', (extract(epoch FROM s.at) * 1000)::bigint, \
    'ended_at', (extract(epoch FROM least(s.expires_at, e.at)) * 1000)::bigint) \
    FROM toolfleet.control_log s \
    LEFT JOIN toolfleet.control_log e ON e.control_id = s.control_id AND e.change <> 'set' \
    WHERE s.kind = $1 AND s.change = 'set'";

/// A control from its beginning to its end.
struct Lasted {
    row: Value,
    control_id: i64,
    set_at: Moment,
    ended_at: Moment,
}

async fn lasted(pool: &PgPool, clock: &Clock, kind: &str) -> Result<Vec<Lasted>> {
    let inwards = clock.ran_back();
    let rows: Vec<sqlx::types::Json<Value>> = sqlx::query_scalar(SET)
        .bind(kind)
        .fetch_all(pool)
        .await
        .context("read view control_log")?;
    let lasted = rows.into_iter().map(|row| {
        let row = Row { row: row.0, clock };
        Ok(Lasted {
            control_id: row.row["control_id"].as_i64().context("control_id")?,
            set_at: row.moment("set_at").context("set_at")? + inwards,
            ended_at: row.moment("ended_at").unwrap_or(Moment::MAX) - inwards,
            row: row.row,
        })
    });
    lasted.collect()
}

/// Every pause that was set.
pub(super) async fn pauses(pool: &PgPool, clock: &Clock) -> Result<Vec<Pause>> {
    let lasted = lasted(pool, clock, "pause").await?.into_iter();
    let pauses = lasted.map(|one| {
        Ok(Pause {
            control_id: one.control_id,
            tool: one.row["tool"].as_str().map(str::to_owned),
            has_value: one.row["has_value"].as_bool().context("has_value")?,
            set_at: one.set_at,
            ended_at: one.ended_at,
        })
    });
    pauses.collect()
}

/// Every breaker that was forced.
pub(super) async fn forced(pool: &PgPool, clock: &Clock) -> Result<Vec<Forced>> {
    let lasted = lasted(pool, clock, "breaker").await?.into_iter();
    let forced = lasted.map(|one| {
        Ok(Forced {
            control_id: one.control_id,
            tool: one.row["tool"].as_str().context("tool")?.to_owned(),
            is_open: one.row["setting"] == "open",
            set_at: one.set_at,
            ended_at: one.ended_at,
        })
    });
    forced.collect()
}

/// Every breaker that there is.
pub(super) async fn breakers(pool: &PgPool) -> Result<Vec<BreakerRow>> {
    let sql =
        "SELECT json_build_object('tool', tool, 'generation', generation) FROM toolfleet.breakers";
    let rows = rows(pool, "view breakers", sql).await?.into_iter();
    let breakers = rows.map(|row| {
        Ok(BreakerRow {
            tool: row["tool"].as_str().context("tool")?.to_owned(),
            generation: row["generation"].as_u64().context("generation")?,
        })
    });
    breakers.collect()
}

/// The calls that are held now, and whether they wait for something.
///
/// That is a pause that lasts; a breaker that is forced open, is open or has permits out, neither for longer than its time and
/// some; a start of their tool's rate, where one was given out just now; an equal call that is open and follows none itself.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn held(pool: &PgPool) -> Result<Vec<Held>> {
    let sql = "SELECT json_build_object('call_id', o.call_id, 'line', o.line, 'has_cause', EXISTS ( \
            SELECT FROM toolfleet.live_controls c \
            WHERE 'pause/' || c.control_id = o.line AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp()) \
            UNION ALL \
            SELECT FROM toolfleet.breakers b \
            WHERE 'breaker/' || b.breaker_id = o.line AND (coalesce(b.forced, '') = 'open' \
                OR b.state = 'open' AND b.open_until > clock_timestamp() - interval '5 seconds' \
                OR b.state = 'half_open' AND b.round_until > clock_timestamp() - interval '5 seconds') \
            UNION ALL \
            SELECT FROM toolfleet.limits l \
            WHERE o.line = 'tool/' || o.tool AND o.tool = ANY(l.tools) \
                AND l.used_at > clock_timestamp() - interval '2 seconds' \
            UNION ALL \
            SELECT FROM toolfleet.open_calls f \
            WHERE 'after/' || f.call_id = o.line AND f.state IN ('queued', 'running') AND NOT (f.held AND f.line LIKE 'after/%'))) \
        FROM toolfleet.open_calls o WHERE o.held AND o.state = 'queued'";
    let rows = rows(pool, "held calls", sql).await?.into_iter();
    let held = rows.map(|row| {
        Ok(Held {
            call_id: row["call_id"].as_str().context("call_id")?.to_owned(),
            line: row["line"].as_str().context("line")?.to_owned(),
            has_cause: row["has_cause"].as_bool().context("has_cause")?,
        })
    });
    held.collect()
}

//! Reads the facts: from the files, the views and the sessions of Postgres.

mod brakes;
mod waits;

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context as _, Result};
use fleet::{
    call::{Effect, State},
    manifest::RetryPolicy,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::PgPool;

pub use self::brakes::held;
use super::{
    clock::{Clock, ClockMove},
    facts::{
        Attempt, Call, Doubt, Event, Exit, Facts, Held, Injected, Ledger, Moment, Session, ToolRow,
        WorkerRow,
    },
};
use crate::{effects::Mark, history::Entry};

/// What a run leaves behind, and what its runner knows.
#[derive(Debug, Clone, Default)]
pub struct Ends {
    /// The file of the clients' history.
    pub history: PathBuf,
    /// The file of effects.
    pub effects: PathBuf,
    /// What the tools of Postgres did: the tool, the clients' call, how often.
    pub tables: Vec<(String, u64, u64)>,
    /// What all accounts had together at first, and what they have now.
    pub totals: Option<(i64, i64)>,
    /// What was done to the fleet.
    pub injected: Injected,
    /// Metrics by name and labels, summed over all processes and incarnations.
    pub metrics: BTreeMap<String, f64>,
    /// What the processes wrote, by their names.
    pub logs: Vec<(String, String)>,
    /// Processes of tools that were still there after their time.
    pub leftover_processes: Vec<String>,
    /// A text that no log may hold.
    pub secret_marker: Option<String>,
    /// How Postgres's time of day was moved, in the order of time.
    pub clock_moves: Vec<ClockMove>,
    /// Calls that were held when everything had had the time to come to rest.
    pub held: Vec<Held>,
    /// When the last fault was over, where clients went on after that.
    pub healed_at: Option<Moment>,
    /// Processes that ended although they were neither killed nor told to leave.
    pub exits: Vec<Exit>,
    /// Processes that did not leave in order when they were told to, after everything had healed.
    pub stayed: Vec<String>,
    /// Whether every process of the fleet has ended by now.
    pub stopped: bool,
}

/// Loads everything, through a connection without a wire.
///
/// `monotonic_ms` reads the clock of the file of effects: what Postgres says of moments is put in its terms.
///
/// # Errors
///
/// A file cannot be read, Postgres does not answer, or its answer is not understood.
pub async fn load(ends: Ends, pool: &PgPool, monotonic_ms: impl Fn() -> Moment) -> Result<Facts> {
    let clock = Clock::new(ahead(pool, monotonic_ms).await?, &ends.clock_moves);
    Ok(Facts {
        history: lines::<Entry>(&ends.history)?,
        marks: lines::<Mark>(&ends.effects)?,
        tables: ends.tables,
        totals: ends.totals,
        ledger: Ledger {
            held: ends.held,
            ..ledger(pool, &clock).await?
        },
        injected: ends.injected,
        metrics: ends.metrics,
        logs: ends.logs,
        sessions: sessions(pool).await?,
        leftover_processes: ends.leftover_processes,
        secret_marker: ends.secret_marker,
        healed_at: ends.healed_at,
        exits: ends.exits,
        stayed: ends.stayed,
        stopped: ends.stopped,
    })
}

/// The lines of a file. What stands in the last one without its end was being written when the writer was stopped.
fn lines<T: DeserializeOwned>(file: &PathBuf) -> Result<Vec<T>> {
    let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let read = |(number, line): (usize, &str)| {
        serde_json::from_str(line)
            .with_context(|| format!("line {} of {}", number + 1, file.display()))
    };
    whole.lines().enumerate().map(read).collect()
}

/// How far Postgres's milliseconds are ahead of the monotonic ones: of a few looks, the one that took least.
async fn ahead(pool: &PgPool, monotonic_ms: impl Fn() -> Moment) -> Result<Moment> {
    let mut best = (Moment::MAX, 0);
    for _ in 0..5 {
        let before = monotonic_ms();
        let now: i64 =
            sqlx::query_scalar("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
                .fetch_one(pool)
                .await
                .context("read Postgres's clock")?;
        let after = monotonic_ms();
        best = best.min((after - before, now - (before + after) / 2));
    }
    Ok(best.1)
}

/// All rows of a query as JSON objects.
async fn rows(pool: &PgPool, what: &'static str, sql: &'static str) -> Result<Vec<Value>> {
    let rows: Vec<sqlx::types::Json<Value>> = sqlx::query_scalar(sql)
        .fetch_all(pool)
        .await
        .with_context(|| format!("read {what}"))?;
    Ok(rows.into_iter().map(|row| row.0).collect())
}

async fn ledger(pool: &PgPool, clock: &Clock) -> Result<Ledger> {
    let mut ledger = Ledger::default();
    let calls = "SELECT json_build_object('call_id', call_id, 'tenant', tenant, 'tool', tool, 'effect', effect, 'state', state, \
                 'source', source, 'told', args->>'n', 'n', CASE WHEN run LIKE 'n-%' THEN substr(run, 3) ELSE args->>'n' END, \
                 'answer', CASE WHEN tool = 'cached_look' THEN result END, 'amount', args->'amount', 'run', run, 'effect_known', effect_known, 'key_hash', idempotency_key_hash, 'code', error->>'code', \
                 'attempts', attempts, 'probe_of', probe_of, 'accepted_at', (extract(epoch FROM accepted_at) * 1000)::bigint, \
                 'deadline_at', (extract(epoch FROM deadline_at) * 1000)::bigint, \
                 'finished_at', (extract(epoch FROM finished_at) * 1000)::bigint) FROM toolfleet.calls";
    for row in rows(pool, "view calls", calls).await? {
        let row = Row { row, clock };
        ledger.calls.push(Call {
            call_id: row.needed("call_id")?,
            tenant: row.needed("tenant")?,
            tool: row.needed("tool")?,
            effect: row.word::<Effect>("effect")?,
            state: row.word::<State>("state")?,
            source: row.text("source"),
            // A probe asks about a number; it is not that number's call.
            n: row
                .text("n")
                .filter(|_| row.text("probe_of").is_none())
                .and_then(|n| n.parse().ok()),
            told: row.text("told").and_then(|told| told.parse().ok()),
            amount: row.row["amount"].as_u64(),
            run: row.text("run"),
            effect_known: row.text("effect_known"),
            answer: row
                .row
                .get("answer")
                .filter(|answer| !answer.is_null())
                .cloned(),
            key_hash: row.text("key_hash"),
            code: row.text("code"),
            attempts: row.number("attempts")?,
            probe_of: row.text("probe_of"),
            accepted_at: row.moment("accepted_at").context("accepted_at")?,
            deadline_at: row.moment("deadline_at").context("deadline_at")?,
            finished_at: row.moment("finished_at"),
        });
    }
    let attempts = "SELECT json_build_object('call_id', call_id, 'attempt_id', attempt_id, 'number', number, \
                    'worker_id', worker_id, 'started_at', (extract(epoch FROM started_at) * 1000)::bigint, \
                    'finished_at', (extract(epoch FROM finished_at) * 1000)::bigint, 'timeout_ms', timeout_ms, \
                    'outcome', outcome, 'code', error->>'code', 'message', error->>'message', 'late', late) \
                    FROM toolfleet.attempts";
    for row in rows(pool, "view attempts", attempts).await? {
        let row = Row { row, clock };
        ledger.attempts.push(Attempt {
            call_id: row.needed("call_id")?,
            attempt_id: row.needed("attempt_id")?,
            number: row.number("number")?,
            worker_id: row.text("worker_id"),
            started_at: row.moment("started_at").context("started_at")?,
            finished_at: row.moment("finished_at"),
            timeout_ms: row.row["timeout_ms"].as_i64().context("timeout_ms")?,
            outcome: row.text("outcome"),
            code: row.text("code"),
            message: row.text("message"),
            late: row.row["late"].as_bool().context("late")?,
        });
    }
    let events = "SELECT json_build_object('call_id', call_id, 'revision', revision, 'at', (extract(epoch FROM at) * 1000)::bigint, \
                  'from', from_state, 'to', to_state, 'actor', actor, 'reason', reason, 'attempt_id', attempt_id, \
                  'spent', details->'spent', 'copied_from', details->>'from') FROM toolfleet.call_events";
    for row in rows(pool, "view call_events", events).await? {
        let row = Row { row, clock };
        ledger.events.push(Event {
            call_id: row.needed("call_id")?,
            revision: row.row["revision"].as_i64().context("revision")?,
            at: row.moment("at").context("at")?,
            from: row.text("from").map(|_| row.word("from")).transpose()?,
            to: row.word("to")?,
            actor: row.needed("actor")?,
            reason: row.needed("reason")?,
            attempt_id: row.text("attempt_id"),
            spent: row.row["spent"].as_bool(),
            copied_from: row.text("copied_from"),
        });
    }
    let doubts = "SELECT json_build_object('call_id', call_id, 'worker_fenced', worker_fenced) FROM toolfleet.in_doubt";
    for row in rows(pool, "view in_doubt", doubts).await? {
        let row = Row { row, clock };
        ledger.doubts.push(Doubt {
            call_id: row.needed("call_id")?,
            worker_fenced: row.row["worker_fenced"]
                .as_bool()
                .context("worker_fenced")?,
        });
    }
    let workers = "SELECT json_build_object('worker_id', worker_id, 'pid', pid, 'state', state, \
                   'started_at', (extract(epoch FROM started_at) * 1000)::bigint, \
                   'ended_at', (extract(epoch FROM ended_at) * 1000)::bigint, 'ended_by', ended_by, \
                   'fenced_at', (extract(epoch FROM fenced_at) * 1000)::bigint) FROM toolfleet.workers";
    for row in rows(pool, "view workers", workers).await? {
        let row = Row { row, clock };
        ledger.workers.push(WorkerRow {
            worker_id: row.needed("worker_id")?,
            pid: row.number("pid")?,
            state: row.needed("state")?,
            started_at: row.moment("started_at").context("started_at")?,
            ended_at: row.moment("ended_at"),
            ended_by: row.text("ended_by"),
            fenced_at: row.moment("fenced_at"),
        });
    }
    let tools = "SELECT json_build_object('tool', tool, 'effect', effect, 'executor', manifest->'executor', \
                 'retry', manifest->'retry', 'rate', manifest->'rate_limit', 'cache', manifest->'cache', \
                 'approval', manifest->'approval', 'policy', manifest->'policy') FROM toolfleet.tools WHERE current";
    for row in rows(pool, "view tools", tools).await? {
        let row = Row { row, clock };
        let executor = row.row["executor"]
            .as_object()
            .and_then(|executor| executor.keys().next());
        // Nobody tries again what its caller runs.
        let retry: Option<RetryPolicy> =
            serde_json::from_value(row.row["retry"].clone()).context("a tool's retry")?;
        ledger.tools.push(ToolRow {
            tool: row.needed("tool")?,
            effect: row.word("effect")?,
            executor: executor.context("a tool's executor")?.clone(),
            attempts_max: retry.map_or(1, |retry| retry.attempts_max()),
            rate: brakes::rate(&row.row["rate"])?,
            ttl_ms: brakes::ttl_ms(&row.row["cache"])?,
            approval: waits::approval(&row.row["approval"])?,
            policy: serde_json::from_value(row.row["policy"].clone()).context("a tool's policy")?,
        });
    }
    ledger.decisions = waits::decisions(pool, clock).await?;
    ledger.pauses = brakes::pauses(pool, clock).await?;
    ledger.forced = brakes::forced(pool, clock).await?;
    ledger.breakers = brakes::breakers(pool).await?;
    Ok(ledger)
}

async fn sessions(pool: &PgPool) -> Result<Vec<Session>> {
    let sql = "SELECT json_build_object('pid', pid, 'application', coalesce(application_name, ''), 'state', coalesce(state, ''), \
               'for_ms', coalesce((extract(epoch FROM clock_timestamp() - state_change) * 1000)::bigint, 0)) \
               FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let mut sessions = Vec::new();
    for row in rows(pool, "sessions", sql).await? {
        let row = Row {
            row,
            clock: &Clock::default(),
        };
        sessions.push(Session {
            pid: row.number("pid")?,
            application: row.needed("application")?,
            state: row.needed("state")?,
            for_ms: row.row["for_ms"].as_i64().context("for_ms")?,
        });
    }
    Ok(sessions)
}

/// A row of a view.
struct Row<'a> {
    row: Value,
    clock: &'a Clock,
}

impl Row<'_> {
    fn text(&self, name: &str) -> Option<String> {
        self.row
            .get(name)
            .and_then(Value::as_str)
            .map(str::to_owned)
    }

    fn needed(&self, name: &'static str) -> Result<String> {
        self.text(name)
            .with_context(|| format!("a row has no {name}"))
    }

    fn word<T>(&self, name: &'static str) -> Result<T>
    where
        T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>,
    {
        Ok(self.needed(name)?.parse()?)
    }

    fn number<T: TryFrom<i64>>(&self, name: &'static str) -> Result<T> {
        let number = self.row.get(name).and_then(Value::as_i64);
        let number = number.and_then(|number| T::try_from(number).ok());
        number.with_context(|| format!("a row has no {name}"))
    }

    fn moment(&self, name: &str) -> Option<Moment> {
        Some(self.clock.moment(self.row.get(name)?.as_i64()?))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use fleet_tests::{
        fleet::{Fleet, Spec},
        run_folder::RunFolder,
        witness::{Reply, Witness},
    };
    use serde_json::json;

    use super::*;
    use crate::oracle::{judge, rules};

    #[tokio::test]
    async fn what_a_real_fleet_did_is_loaded_and_breaks_no_rule_of_the_ledger() {
        let began = Instant::now();
        let now = || Moment::try_from(began.elapsed().as_millis()).unwrap();
        let witness = Witness::start().await;
        let numbered = |name: &str, effect: &str| {
            let manifest = witness.tool(name, effect);
            manifest.replace(
                "{what: {type: string}}",
                "{what: {type: string}, n: {type: integer}}",
            )
        };
        let tools = [numbered("look", "read"), numbered("charge", "once")];
        let fleet = Fleet::start(Spec::with(tools)).await;
        witness.first("again", [Reply::Status(503)]);
        witness.always("broken", Reply::DoneThenClose);
        let again = json!({"what": "again", "n": 1});
        assert_eq!(
            fleet.submit("look", &again).wait().await["state"],
            "succeeded"
        );
        let broken = json!({"what": "broken", "n": 2});
        let doubt = fleet.submit("charge", &broken).key("k").wait().await;
        assert_eq!(doubt["state"], "in_doubt");

        let folder = RunFolder::create().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let mark = format!(
            "{{\"at\":1,\"did\":\"applied\",\"tool\":\"charge\",\"call\":{},\"attempt\":1,\"key\":\"k\",\"n\":2,\"mode\":\"reset_after\"}}\n",
            doubt["call_id"]
        );
        let ends = Ends {
            history: file("history", "{\"at_ms\":1,\"cli"),
            effects: file("effects", &mark),
            ..Ends::default()
        };
        let facts = load(ends, &fleet.database.pool, now).await.unwrap();

        assert_eq!(
            (facts.history.len(), facts.marks.len()),
            (0, 1),
            "a torn line is left out"
        );
        let mut calls = facts.ledger.calls.clone();
        calls.sort_by_key(|call| call.n);
        let told: Vec<_> = calls
            .iter()
            .map(|call| (call.n, call.state, call.attempts))
            .collect();
        assert_eq!(
            told,
            [(Some(1), State::Succeeded, 2), (Some(2), State::InDoubt, 1)]
        );
        for call in &calls {
            assert!(
                (0..=now()).contains(&call.accepted_at),
                "{} of {}",
                call.accepted_at,
                now()
            );
            assert_eq!(call.deadline_at - call.accepted_at, 300_000);
        }
        let back = facts
            .ledger
            .events
            .iter()
            .find(|event| event.spent.is_some())
            .unwrap();
        assert_eq!((back.to, back.spent), (State::Queued, Some(true)));
        let unknown = facts
            .ledger
            .attempts
            .iter()
            .filter(|a| a.outcome.as_deref() == Some("unknown"));
        assert_eq!(unknown.count(), 1);
        assert_eq!(facts.ledger.doubts.len(), 1);
        assert_eq!(facts.ledger.workers[0].pid, std::process::id());
        let mut tools: Vec<_> = facts
            .ledger
            .tools
            .iter()
            .map(|tool| {
                (
                    tool.tool.as_str(),
                    tool.executor.as_str(),
                    tool.attempts_max,
                )
            })
            .collect();
        tools.sort_unstable();
        assert_eq!(tools, [("charge", "http", 3), ("look", "http", 3)]);
        assert!(
            facts
                .sessions
                .iter()
                .any(|session| session.application.starts_with("toolfleet"))
        );

        // There is no history, so only rules about clients can find a breach, and rules about events without a cause.
        let broken = judge(&facts).rules();
        let expected = [
            "known_was_asked",
            "most_undisturbed_calls_succeed",
            "nothing_is_unknown_without_a_cause",
        ];
        assert_eq!(broken.into_iter().collect::<Vec<_>>(), expected);
        assert!(rules::ALL.len() > expected.len());
    }
}

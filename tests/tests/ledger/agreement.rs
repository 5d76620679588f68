//! The tables and `fleet/src/state.rs` hold the same list of moves, and every way into the history fills the same columns.

use std::collections::BTreeSet;

use fleet::{call::State, ids::CallId, state::is_legal};
use fleet_tests::postgres::Database;
use sqlx::{PgConnection, postgres::PgQueryResult};

type Answer = Result<PgQueryResult, sqlx::Error>;

#[tokio::test]
async fn the_tables_accept_the_moves_of_the_code_and_no_others() {
    let database = Database::fresh().await;
    let mut connection = database.connect().await;
    for from in State::ALL {
        for to in State::ALL {
            if from == to && !from.is_terminal() {
                // A change that leaves an open call where it stands is not a move.
                continue;
            }
            let answer = match (from.is_terminal(), to.is_terminal()) {
                (false, false) => move_open(&mut connection, *from, *to).await,
                (false, true) => finish(&mut connection, *from, *to)
                    .await
                    .map(|(_, done)| done),
                (true, _) => move_finished(&mut connection, *from, *to).await,
            };
            let accepted = accepted(answer, &format!("{from} to {to}"));
            assert_eq!(accepted, is_legal(*from, *to), "{from} to {to}");
        }
    }
}

#[tokio::test]
async fn an_open_call_cannot_be_stored_as_finished_nor_the_reverse() {
    let database = Database::fresh().await;
    let mut connection = database.connect().await;
    for state in State::ALL {
        let open = insert_open(&mut connection, *state).await;
        assert_eq!(
            accepted(open.map(|(_, done)| done), "open"),
            !state.is_terminal(),
            "{state} as open"
        );
        let finished = finish(&mut connection, State::Queued, *state).await;
        assert_eq!(
            accepted(finished.map(|(_, done)| done), "finished"),
            state.is_terminal(),
            "{state} as finished"
        );
    }
}

#[tokio::test]
async fn history_refuses_every_change() {
    let database = Database::fresh().await;
    let mut connection = database.connect().await;
    let (call, _) = finish(&mut connection, State::Running, State::Failed)
        .await
        .unwrap();
    for insert in [
        "INSERT INTO toolfleet.ended_attempts (call_id, attempt_id, number, claim_rev, worker_id, started_at, timeout_ms, outcome, effect_known, over) \
         VALUES ($1, gen_random_uuid(), 1, 1, gen_random_uuid(), now(), 1, 'unknown', 'unknown', true)",
        "INSERT INTO toolfleet.call_notes (call_id, rev, from_state, to_state, actor, reason) \
         VALUES ($1, 1, 'running', 'queued', 'test', 'test')",
    ] {
        sqlx::query(insert)
            .bind(call.0)
            .execute(&mut connection)
            .await
            .unwrap();
    }
    for change in [
        "UPDATE toolfleet.finished_calls SET reason = 'other' WHERE call_id = $1",
        "DELETE FROM toolfleet.finished_calls WHERE call_id = $1",
        "UPDATE toolfleet.ended_attempts SET number = 2 WHERE call_id = $1",
        "DELETE FROM toolfleet.ended_attempts WHERE call_id = $1",
        "UPDATE toolfleet.call_notes SET reason = 'other' WHERE call_id = $1",
        "DELETE FROM toolfleet.call_notes WHERE call_id = $1",
    ] {
        let answer = sqlx::query(change)
            .bind(call.0)
            .execute(&mut connection)
            .await;
        assert!(!accepted(answer, change), "{change}");
    }
}

/// Whether the tables accepted it; anything but a refusal by a check is a mistake of this test.
fn accepted(answer: Answer, what: &str) -> bool {
    match answer {
        Ok(done) => {
            assert_eq!(done.rows_affected(), 1, "{what}");
            true
        }
        Err(sqlx::Error::Database(refusal)) if refusal.code().as_deref() == Some("23514") => false,
        Err(other) => panic!("{what}: {other}"),
    }
}

async fn move_open(connection: &mut PgConnection, from: State, to: State) -> Answer {
    let (call, _) = insert_open(connection, from).await?;
    sqlx::query(
        "UPDATE toolfleet.open_calls SET state = $2::toolfleet.call_state, \
         awaiting = CASE WHEN $2 = 'awaiting_client' THEN 'completion' END, approval = '{\"count\": 0}', \
         attempt_id = CASE WHEN $2 <> 'queued' THEN gen_random_uuid() END WHERE call_id = $1",
    )
    .bind(call.0)
    .bind(to.as_str())
    .execute(connection)
    .await
}

async fn move_finished(connection: &mut PgConnection, from: State, to: State) -> Answer {
    // As itself the row could only have come from a state that is already over.
    let again = finish(connection, from, to).await.map(|(_, done)| done);
    assert!(!accepted(again, "a second end"), "{from} ended as {to}");
    let by = if is_legal(State::Queued, from) {
        State::Queued
    } else {
        State::Running
    };
    let (call, _) = finish(connection, by, from).await?;
    sqlx::query(
        "UPDATE toolfleet.finished_calls SET state = $2::toolfleet.call_state WHERE call_id = $1",
    )
    .bind(call.0)
    .bind(to.as_str())
    .execute(connection)
    .await
}

async fn insert_open(
    connection: &mut PgConnection,
    state: State,
) -> Result<(CallId, PgQueryResult), sqlx::Error> {
    let call = CallId::generate();
    let done = sqlx::query(
        "INSERT INTO toolfleet.open_calls (call_id, state, tenant, tool, tool_version, effect, queue, line, priority, \
         key_retention_ms, args, args_hash, language, dispatcher_id, accepted_at, deadline_at, not_before, \
         attempt_id, worker_id, attempt_until, doubt_since, doubt_reason, awaiting, approval) \
         VALUES ($1, $2::toolfleet.call_state, 't', 't', 1, 'once', 'q', 'q', 1, 0, '{}', '', 'en', gen_random_uuid(), \
         now(), now(), now(), CASE WHEN $2 <> 'queued' THEN gen_random_uuid() END, gen_random_uuid(), now(), now(), 'r', \
         CASE WHEN $2 = 'awaiting_client' THEN 'approval' END, '{\"count\": 0}')",
    )
    .bind(call.0)
    .bind(state.as_str())
    .execute(connection)
    .await?;
    Ok((call, done))
}

async fn finish(
    connection: &mut PgConnection,
    from: State,
    to: State,
) -> Result<(CallId, PgQueryResult), sqlx::Error> {
    let call = CallId::generate();
    let done = sqlx::query(
        "INSERT INTO toolfleet.finished_calls (call_id, rev, from_state, state, outcome, source, effect_known, tenant, \
         tool, tool_version, effect, queue, priority, key_retention_ms, args, args_hash, language, accepted_at, \
         deadline_at, finished_at, queued_ms, run_ms, attempts, actor, reason) \
         VALUES ($1, 1, $2::toolfleet.call_state, $3::toolfleet.call_state, 'success', 'live', 'applied', 't', 't', 1, \
         'once', 'q', 1, 0, '{}', '', 'en', now(), now(), now(), 0, 0, 0, 'test', 'test')",
    )
    .bind(call.0)
    .bind(from.as_str())
    .bind(to.as_str())
    .execute(connection)
    .await?;
    Ok((call, done))
}

/// The columns that a text writes into the history.
fn written(text: &str) -> BTreeSet<&str> {
    let (_, list) = text
        .split_once("INSERT INTO toolfleet.finished_calls (")
        .unwrap();
    let (list, _) = list.split_once(')').unwrap();
    list.split(',').map(str::trim).collect()
}

/// A statement moves many calls to the history, a function one, and a function of the tools' role one of a transaction: as one
/// they would cost each call a fifth more.
#[tokio::test]
async fn every_way_into_the_history_fills_the_columns_there_are() {
    let database = Database::fresh().await;
    let pool = &database.pool;
    let columns: Vec<String> = sqlx::query_scalar(
        "SELECT attname::text FROM pg_attribute \
         WHERE attrelid = 'toolfleet.finished_calls'::regclass AND attnum > 0 AND NOT attisdropped",
    )
    .fetch_all(pool)
    .await
    .unwrap();
    let columns: BTreeSet<&str> = columns.iter().map(String::as_str).collect();
    let statement = include_str!("../../../fleet/src/store/sql/finish.sql");
    let mut ways = vec![("the statement", statement.to_owned(), vec![])];
    for (function, without) in [
        ("toolfleet.finish", vec!["degraded", "preview"]),
        (
            "toolfleet.answer_calls",
            vec!["degraded", "error", "attempt_id", "attempt_outcome"],
        ),
        (
            "toolfleet_tool.succeed",
            vec!["degraded", "details", "error", "preview"],
        ),
    ] {
        let text = sqlx::query_scalar("SELECT pg_get_functiondef($1::regproc)")
            .bind(function)
            .fetch_one(pool)
            .await
            .unwrap();
        ways.push((function, text, without));
    }
    for (way, text, without) in &ways {
        let mut expected = columns.clone();
        expected.retain(|column| !without.contains(column));
        assert_eq!(written(text), expected, "{way}");
    }
}

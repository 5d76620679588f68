//! The end of a `transaction` call, committed with its effect: by the attempt that holds the call, or not at all.

use fleet::{
    call::{Effect, EffectKnown, State},
    ids::{AttemptId, CallId},
    outcome::OutcomeWord,
    store::{
        accept::NewCall,
        cancel,
        complete::{AttemptCost, EndedAttempt, Ending, EndingKind, Guard},
        read::CallState,
        tool_role::{self, ToolRole},
        transaction::{BAD_RESULT, NOT_OURS},
    },
};
use fleet_tests::{running::succeed, wait};
use secrecy::SecretString;
use sqlx::{Connection as _, PgConnection};

use crate::support::{Ledger, Worker, end_in, ending, new_call, repeated, run, until_blocked};

async fn running(ledger: &Ledger, worker: &Worker) -> (CallId, AttemptId) {
    let call = NewCall {
        effect: Effect::Transaction,
        ..new_call()
    };
    let call = ledger.accepted(call).await;
    (call, worker.claims(call).await)
}

/// A connection of the role of the tools.
async fn tool(ledger: &Ledger) -> PgConnection {
    let url = ledger.database.tool_url();
    PgConnection::connect(&url).await.unwrap()
}

/// A transaction that has had its effect, one more row in `tools.effects`.
async fn acted(ledger: &Ledger, call: CallId) -> PgConnection {
    let mut connection = tool(ledger).await;
    run(&mut connection, "BEGIN").await;
    sqlx::query("INSERT INTO tools.effects VALUES ($1)")
        .bind(call.0)
        .execute(&mut connection)
        .await
        .unwrap();
    connection
}

async fn with_effects() -> (Ledger, Worker) {
    let mut ledger = Ledger::fresh().await;
    let create = "CREATE TABLE tools.effects (call_id uuid)";
    run(&mut ledger.database.connect().await, create).await;
    let worker = ledger.worker().await;
    (ledger, worker)
}

async fn effects(ledger: &Ledger, call: CallId) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM tools.effects WHERE call_id = $1")
        .bind(call.0)
        .fetch_one(&ledger.database.pool)
        .await
        .unwrap()
}

fn state_of(error: &sqlx::Error) -> String {
    let raised = error.as_database_error().expect("the server answered");
    raised.code().unwrap().into_owned()
}

async fn refused(
    connection: &mut PgConnection,
    call: CallId,
    attempt: AttemptId,
    result: &str,
) -> String {
    let succeeding = succeed(connection, call, attempt, result).await;
    state_of(&succeeding.unwrap_err())
}

/// What the worker records of an attempt whose COMMIT was not answered.
fn unknown(call: CallId, attempt: AttemptId) -> Ending {
    let again = EndingKind::Again {
        pause_ms: 0,
        cost: AttemptCost::Spent,
    };
    Ending {
        attempt: Some(EndedAttempt {
            outcome: OutcomeWord::DefiniteFailure,
            effect: EffectKnown::NotApplied,
            error: None,
            has_stopped: true,
        }),
        ..ending(call, Guard::Attempt(attempt), again)
    }
}

#[tokio::test]
async fn effect_and_outcome_are_one_commit() {
    let (ledger, worker) = with_effects().await;
    let (call, attempt) = running(&ledger, &worker).await;
    let mut connection = acted(&ledger, call).await;
    let result = r#"{"n":1.50,"text":"\\u0000 is not NUL"}"#;
    let ended = succeed(&mut connection, call, attempt, result)
        .await
        .unwrap();
    assert_eq!((ended.state, ended.attempts), (State::Succeeded, 1));
    assert_eq!(ledger.state(call).await, State::Running);
    run(&mut connection, "COMMIT").await;
    let row = ledger.find(call).await;
    assert_eq!(
        (row.state(), row.attempt_id()),
        (State::Succeeded, Some(attempt))
    );
    let CallState::Ended(over) = &row.state else {
        panic!("{row:?}");
    };
    assert_eq!(over.by, format!("worker {}", worker.id));
    assert_eq!(effects(&ledger, call).await, 1);
    let stored: (String, String, i64, i64) = sqlx::query_as(
        "SELECT result::text, attempt_outcome::text || ' ' || effect_known || ' ' || source, queued_ms, run_ms \
         FROM toolfleet.finished_calls WHERE call_id = $1",
    )
    .bind(call.0)
    .fetch_one(&ledger.database.pool)
    .await
    .unwrap();
    let said = (ended.timing.queued_ms, ended.timing.run_ms);
    assert_eq!(
        stored,
        (
            result.to_owned(),
            "applied applied live".to_owned(),
            said.0,
            said.1
        )
    );
    // Its own repetition, as of a COMMIT that was not answered, finds it done.
    let again = ledger
        .completing
        .complete(&unknown(call, attempt), wait::LONG)
        .await;
    assert!(again.unwrap().is_none());
    assert_eq!(ledger.state(call).await, State::Succeeded);
}

#[tokio::test]
async fn only_the_attempt_that_holds_the_call_ends_it() {
    let (ledger, worker) = with_effects().await;
    let (call, attempt) = running(&ledger, &worker).await;
    let (other, _) = running(&ledger, &worker).await;
    let mut connection = acted(&ledger, call).await;
    run(&mut connection, "SAVEPOINT s").await;
    for (call, attempt) in [(call, AttemptId::generate()), (other, attempt)] {
        assert_eq!(refused(&mut connection, call, attempt, "1").await, NOT_OURS);
        run(&mut connection, "ROLLBACK TO s").await;
    }
    // A call of another class is never ended like this.
    let (once, its) = ledger.running(&worker).await;
    assert_eq!(refused(&mut connection, once, its, "1").await, NOT_OURS);
    run(&mut connection, "ROLLBACK TO s").await;
    // Twice is once too often, and a savepoint takes it back like everything else.
    succeed(&mut connection, call, attempt, "1").await.unwrap();
    run(&mut connection, "SAVEPOINT twice").await;
    assert_eq!(refused(&mut connection, call, attempt, "2").await, NOT_OURS);
    run(&mut connection, "ROLLBACK TO s").await;
    run(&mut connection, "COMMIT").await;
    assert_eq!(ledger.state(call).await, State::Running);
    assert_eq!(ledger.state(once).await, State::Running);
}

#[tokio::test]
async fn an_attempt_that_lost_its_call_cannot_commit() {
    let (ledger, worker) = with_effects().await;
    let (call, first) = running(&ledger, &worker).await;
    let mut late = acted(&ledger, call).await;
    ledger.ends(unknown(call, first)).await;
    assert_eq!(refused(&mut late, call, first, "1").await, NOT_OURS);
    run(&mut late, "COMMIT").await;
    assert_eq!(effects(&ledger, call).await, 0);
    // Nor can it once another attempt has the call.
    let second = worker.claims(call).await;
    let (mut late, mut now) = (acted(&ledger, call).await, acted(&ledger, call).await);
    succeed(&mut now, call, second, "1").await.unwrap();
    assert_eq!(refused(&mut late, call, first, "1").await, NOT_OURS);
    run(&mut now, "COMMIT").await;
    run(&mut late, "COMMIT").await;
    assert_eq!(effects(&ledger, call).await, 1);
    assert_eq!(ledger.find(call).await.attempt_id(), Some(second));
}

#[tokio::test]
async fn two_commits_of_one_attempt_are_one() {
    let (ledger, worker) = with_effects().await;
    let (call, attempt) = running(&ledger, &worker).await;
    let (mut one, mut two) = (acted(&ledger, call).await, acted(&ledger, call).await);
    succeed(&mut one, call, attempt, "1").await.unwrap();
    let (said, ()) = tokio::join!(
        async {
            let said = refused(&mut two, call, attempt, "2").await;
            run(&mut two, "COMMIT").await;
            said
        },
        async {
            until_blocked(&ledger.database, 1).await;
            run(&mut one, "COMMIT").await;
        }
    );
    assert_eq!(said, NOT_OURS);
    assert_eq!(effects(&ledger, call).await, 1);
}

#[tokio::test]
async fn what_takes_the_call_back_waits_for_a_commit_and_finds_it() {
    let (ledger, worker) = with_effects().await;
    let (call, attempt) = running(&ledger, &worker).await;
    let mut connection = acted(&ledger, call).await;
    succeed(&mut connection, call, attempt, "1").await.unwrap();
    let again = unknown(call, attempt);
    let (moved, ()) = tokio::join!(ledger.completing.complete(&again, wait::LONG), async {
        until_blocked(&ledger.database, 1).await;
        run(&mut connection, "COMMIT").await;
    });
    assert!(moved.unwrap().is_none());
    assert_eq!(ledger.state(call).await, State::Succeeded);
    assert_eq!(effects(&ledger, call).await, 1);
}

#[tokio::test]
async fn a_cancel_comes_before_a_commit_or_after_it() {
    let (ledger, worker) = with_effects().await;
    let cancel = async |call| {
        let wish = cancel::Cancellation {
            call,
            tenant: None,
            actor: "test",
            reason: None,
        };
        cancel::cancel(&ledger.database.pool, &wish).await.unwrap();
    };
    // Asked for before the COMMIT: what the tool itself says stands.
    let (call, attempt) = running(&ledger, &worker).await;
    let mut connection = acted(&ledger, call).await;
    cancel(call).await;
    succeed(&mut connection, call, attempt, "1").await.unwrap();
    run(&mut connection, "COMMIT").await;
    assert_eq!(
        (ledger.state(call).await, effects(&ledger, call).await),
        (State::Succeeded, 1)
    );
    // Decided before the COMMIT: it is rolled back.
    let (call, attempt) = running(&ledger, &worker).await;
    let mut connection = acted(&ledger, call).await;
    cancel(call).await;
    let mut taken_back = unknown(call, attempt);
    taken_back.kind = end_in(State::Cancelled);
    ledger.ends(taken_back).await;
    assert_eq!(refused(&mut connection, call, attempt, "1").await, NOT_OURS);
    run(&mut connection, "COMMIT").await;
    assert_eq!(
        (ledger.state(call).await, effects(&ledger, call).await),
        (State::Cancelled, 0)
    );
}

#[tokio::test]
async fn a_result_that_could_not_be_read_is_not_kept() {
    let (ledger, worker) = with_effects().await;
    let (call, attempt) = running(&ledger, &worker).await;
    let large = format!("\"{}\"", "x".repeat(8 * 1024 * 1024));
    for (result, said) in [
        (r#""\u0000""#, BAD_RESULT),
        (r#"{"a":"\\\u0000"}"#, BAD_RESULT),
        (large.as_str(), BAD_RESULT),
        ("{", "22P02"),
    ] {
        let mut connection = acted(&ledger, call).await;
        assert_eq!(refused(&mut connection, call, attempt, result).await, said);
        run(&mut connection, "COMMIT").await;
    }
    assert_eq!(
        (ledger.state(call).await, effects(&ledger, call).await),
        (State::Running, 0)
    );
}

/// What a statement of a tool could do to its session before the function is called.
#[tokio::test]
async fn a_hostile_session_changes_nothing_of_what_is_stored() {
    let (ledger, worker) = with_effects().await;
    let (call, attempt) = running(&ledger, &worker).await;
    let mut connection = acted(&ledger, call).await;
    for trick in [
        "CREATE TEMP TABLE open_calls (call_id uuid, attempt_id uuid, state text, effect text)",
        "CREATE TEMP TABLE finished_calls (call_id uuid)",
        "CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz'",
        "CREATE FUNCTION pg_temp.octet_length(text) RETURNS int LANGUAGE sql AS 'SELECT 0'",
        "SET LOCAL search_path = pg_temp, pg_catalog",
        "SET LOCAL timezone = 'Asia/Shanghai'",
        "SET LOCAL datestyle = 'SQL, DMY'",
        "SET LOCAL intervalstyle = 'iso_8601'",
        "SET LOCAL standard_conforming_strings = off",
        "SET LOCAL transform_null_equals = on",
        "SET LOCAL extra_float_digits = -15",
        "SET LOCAL row_security = off",
        "SET LOCAL synchronous_commit = off",
    ] {
        run(&mut connection, trick).await;
    }
    succeed(&mut connection, call, attempt, "1").await.unwrap();
    let pinned: (String, String) = sqlx::query_as(
        "SELECT current_setting('synchronous_commit'), current_setting('idle_in_transaction_session_timeout')",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(pinned, ("on".to_owned(), "5s".to_owned()));
    run(&mut connection, "COMMIT").await;
    let sound: bool = sqlx::query_scalar(
        "SELECT finished_at BETWEEN now() - interval '1 minute' AND now() AND run_ms BETWEEN 0 AND 60000 \
           AND result::text = '1' AND actor = 'worker ' || worker_id \
         FROM toolfleet.finished_calls WHERE call_id = $1",
    )
    .bind(call.0)
    .fetch_one(&ledger.database.pool)
    .await
    .unwrap();
    assert!(sound);
}

#[tokio::test]
async fn the_tables_refuse_a_transaction_in_doubt() {
    let (ledger, worker) = with_effects().await;
    let (call, attempt) = running(&ledger, &worker).await;
    let mut doubtful = repeated(call, attempt);
    doubtful.attempt = doubtful.attempt.map(|attempt| EndedAttempt {
        outcome: OutcomeWord::Unknown,
        ..attempt
    });
    for ending in [doubtful, crate::support::doubted(call, attempt)] {
        let done = ledger.completing.complete(&ending, wait::LONG).await;
        assert!(done.is_err(), "{done:?}");
    }
    assert_eq!(ledger.state(call).await, State::Running);
}

/// The whole of what the role of the tools may do with what is ours.
#[tokio::test]
async fn the_role_of_the_tools_reaches_one_function() {
    let ledger = Ledger::fresh().await;
    let may: Vec<String> = sqlx::query_scalar(
        "SELECT 'function ' || p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
         WHERE n.nspname IN ('toolfleet', 'toolfleet_tool') AND has_function_privilege('toolfleet_tool', p.oid, 'EXECUTE') \
         UNION ALL SELECT 'schema ' || n.nspname FROM pg_namespace n \
         WHERE n.nspname LIKE 'toolfleet%' AND (has_schema_privilege('toolfleet_tool', n.oid, 'USAGE') \
                                                OR has_schema_privilege('toolfleet_tool', n.oid, 'CREATE')) \
         UNION ALL SELECT 'relation ' || c.oid::regclass FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname IN ('toolfleet', 'toolfleet_tool') AND c.relkind IN ('r', 'p', 'v', 'm', 'S') \
           AND CASE c.relkind WHEN 'S' THEN has_sequence_privilege('toolfleet_tool', c.oid, 'USAGE, SELECT, UPDATE') \
               ELSE has_table_privilege('toolfleet_tool', c.oid, \
                   'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER') END \
         ORDER BY 1",
    )
    .fetch_all(&ledger.database.pool)
    .await
    .unwrap();
    assert_eq!(
        may,
        [
            // Granted to every role that may read the views that use them; without the schema they cannot be named.
            "function below(text[],text)",
            "function held_why(boolean,text)",
            "function is_fenced(uuid)",
            "function is_fetching(uuid)",
            "function kept(json,json)",
            "function rate_base(timestamp with time zone,timestamp with time zone,timestamp with time zone,bigint,integer)",
            "function rate_of(text)",
            "function shown(json,json)",
            "function shown_hash(bytea,json)",
            "function toolfleet_tool.succeed(uuid,uuid,json)",
            "function veiled(json,text[],text)",
            "function veiled_below(json,text[],text)",
            "schema toolfleet_tool",
        ]
    );
    let mut connection = tool(&ledger).await;
    for forbidden in [
        "SELECT count(*) FROM toolfleet.open_calls",
        "SELECT toolfleet.is_fenced(gen_random_uuid())",
        "SELECT toolfleet.cancel(gen_random_uuid(), 'me')",
        "CREATE TABLE toolfleet_tool.mine (x int)",
        "CREATE TABLE public.mine (x int)",
        "CREATE TABLE tools.mine (x int)",
        "CREATE SCHEMA mine",
        "CREATE OR REPLACE FUNCTION toolfleet_tool.succeed(uuid, uuid, json) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "SET ROLE toolfleet",
        "SET session_replication_role = replica",
    ] {
        let said = sqlx::query(forbidden).execute(&mut connection).await;
        assert_eq!(state_of(&said.unwrap_err()), "42501", "{forbidden}");
    }
}

#[tokio::test]
async fn only_what_readers_need_may_be_executed_by_everybody() {
    let ledger = Ledger::fresh().await;
    let open: Vec<String> = sqlx::query_scalar(
        "SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
         WHERE n.nspname IN ('toolfleet', 'toolfleet_tool') \
           AND EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a WHERE a.grantee = 0) \
         ORDER BY p.proname = 'is_fenced' DESC, 1",
    )
    .fetch_all(&ledger.database.pool)
    .await
    .unwrap();
    // What the views ask; but for the first, `is_fetching` and `rate_of`, which reads what its caller may, they are pure.
    assert_eq!(
        open,
        [
            "is_fenced(uuid)",
            "below(text[],text)",
            "held_why(boolean,text)",
            "is_fetching(uuid)",
            "kept(json,json)",
            "rate_base(timestamp with time zone,timestamp with time zone,timestamp with time zone,bigint,integer)",
            "rate_of(text)",
            "shown(json,json)",
            "shown_hash(bytea,json)",
            "veiled(json,text[],text)",
            "veiled_below(json,text[],text)",
        ]
    );
}

#[tokio::test]
async fn a_role_that_could_do_more_is_found_out() {
    let ledger = Ledger::fresh().await;
    let database = &ledger.database;
    let mut owner = database.connect().await;
    let mark = uuid::Uuid::new_v4().simple();
    let findings = async |owner: &mut PgConnection, name: &str| {
        let role = ToolRole::look(owner, name).await.unwrap();
        let found = role
            .findings()
            .into_iter()
            .map(|finding| finding.to_string());
        (found.collect::<Vec<_>>().join("; "), role.is_granted())
    };
    let (fit, granted) = findings(&mut owner, "toolfleet_tool").await;
    assert_eq!((fit.as_str(), granted), ("", true));
    let missing = format!("missing_{mark}");
    assert!(
        findings(&mut owner, &missing)
            .await
            .0
            .contains("CREATE ROLE")
    );
    let (boss, name) = (format!("boss_{mark}"), format!("role_{mark}"));
    for (made_by, said) in [
        (
            format!("CREATE ROLE {boss}; CREATE ROLE {name} LOGIN CREATEROLE"),
            "has CREATEROLE",
        ),
        (
            format!("ALTER ROLE {name} NOCREATEROLE NOLOGIN"),
            "cannot log in",
        ),
        (
            format!("ALTER ROLE {name} LOGIN; ALTER ROLE {boss} CREATEDB; GRANT {boss} TO {name}"),
            "has CREATEDB by its membership",
        ),
        (
            format!("ALTER ROLE {boss} NOCREATEDB; GRANT USAGE ON SCHEMA toolfleet TO {boss}"),
            "reaches schema toolfleet",
        ),
        (
            format!(
                "REVOKE USAGE ON SCHEMA toolfleet FROM {boss}; GRANT SELECT ON toolfleet.calls TO {name}"
            ),
            "reaches table calls",
        ),
        (
            format!("REVOKE ALL ON toolfleet.calls FROM {name}; GRANT pg_read_all_data TO {boss}"),
            "member of pg_read_all_data",
        ),
        (
            format!("REVOKE pg_read_all_data FROM {boss}; GRANT toolfleet TO {boss}"),
            "may become, the owner of schema toolfleet",
        ),
        (
            format!("REVOKE toolfleet FROM {boss}; ALTER ROLE {name} NOINHERIT"),
            "",
        ),
    ] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(made_by))
            .execute(&mut owner)
            .await
            .unwrap();
        let (found, granted) = findings(&mut owner, &name).await;
        assert!(
            found.contains(said) && found.is_empty() == said.is_empty(),
            "{said}: {found}"
        );
        assert_eq!(granted, said.contains("the owner of"), "{said}");
    }
    tool_role::grant(&database.postgres, &name).await.unwrap();
    tool_role::grant(&database.postgres, &name).await.unwrap();
    assert!(findings(&mut owner, &name).await.1);
    let drop = format!("DROP OWNED BY {name}, {boss}; DROP ROLE {name}, {boss}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(drop))
        .execute(&mut owner)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_url_of_tools_leads_to_the_ledgers_own_database_by_another_role() {
    let ledger = Ledger::fresh().await;
    let other = Ledger::fresh().await;
    let unfit = async |url: String| {
        let found = tool_role::unfit(&ledger.database.postgres, &SecretString::from(url)).await;
        let found: Vec<String> = found.unwrap().iter().map(ToString::to_string).collect();
        found.join("; ")
    };
    assert_eq!(unfit(ledger.database.tool_url()).await, "");
    assert!(
        unfit(other.database.tool_url())
            .await
            .contains("another database")
    );
    assert!(
        unfit(ledger.database.url.clone())
            .await
            .contains("the role of DATABASE_URL")
    );
    assert!(
        unfit("nonsense".to_owned())
            .await
            .contains("not a postgres:// URL")
    );
}

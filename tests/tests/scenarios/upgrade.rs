//! Two releases on one schema: processes go on while a newer one migrates, and stop writing when it has left them behind.

use std::time::Duration;

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    load::Load,
    postgres::Database,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::json;
use sqlx::Row;
use uuid::Uuid;

/// What a later release may add while this one runs. The names are those that our own statements use for other things.
const ADDITIONS: [&str; 6] = [
    "ALTER TABLE toolfleet.open_calls ADD COLUMN outcome text, ADD COLUMN actor text, ADD COLUMN kind text, \
         ADD COLUMN error json, ADD COLUMN from_state text, ADD COLUMN id uuid, ADD COLUMN until timestamptz, \
         ADD COLUMN shard integer NOT NULL DEFAULT 0",
    "ALTER TABLE toolfleet.finished_calls ADD COLUMN new_state text, ADD COLUMN shard integer NOT NULL DEFAULT 0",
    "ALTER TABLE toolfleet.worker_processes ADD COLUMN region text, ADD COLUMN call_id uuid",
    "ALTER TABLE toolfleet.ended_attempts ADD COLUMN kind text; ALTER TABLE toolfleet.call_notes ADD COLUMN kind text",
    "DO $$ BEGIN \
         EXECUTE 'CREATE OR REPLACE VIEW toolfleet.calls AS SELECT old.*, 0 AS shard FROM (' \
             || rtrim(pg_get_viewdef('toolfleet.calls'::regclass), ';') || ') old'; \
     END $$",
    "DO $$ BEGIN \
         EXECUTE (SELECT pg_get_functiondef('toolfleet.finish'::regproc)); \
         EXECUTE (SELECT pg_get_functiondef('toolfleet.cancel'::regproc)); \
     END $$",
];

#[tokio::test]
async fn a_fleet_goes_on_while_a_newer_release_adds_to_the_schema() {
    let witness = Witness::start().await;
    let retry = "retry: {strategy: fixed, max_attempts: 20, base: 20ms}\n";
    let tools = [
        witness.tool("charge", "once"),
        witness.tool("look", "read") + retry,
        witness.tool("put", "idempotent") + retry,
    ];
    let mut fleet = Fleet::start(Spec::with(tools).dispatchers(2).workers(2, &[])).await;
    witness.always("slow", Reply::DoneAfter(Duration::from_millis(30)));
    let wobble = (0..1_000).map(|n| [Reply::Status(503), Reply::Done][n % 2].clone());
    witness.first("wobbly", wobble);
    let calls = [("charge", "slow"), ("look", "wobbly"), ("put", "slow")];
    let calls = calls.map(|(tool, what)| fleet.submit(tool, &json!({"what": what})));
    // One session that has used the functions before and uses them after.
    let mut session = fleet.database.connect().await;
    assert_eq!(cancel_one(&fleet, &mut session).await, "cancelled");

    let load = Load::start(8, calls.to_vec());
    load.until_answered(20).await;
    for (number, addition) in (1..).zip(ADDITIONS) {
        fleet.database.upgrade(number, addition).await.unwrap();
        load.until_answered(20).await;
        assert_eq!(cancel_one(&fleet, &mut session).await, "cancelled");
    }
    // Programs of this release start on the newer schema too.
    fleet.dispatchers[0].drain().await;
    fleet.workers[0].drain().await;
    fleet.add_dispatcher().await;
    fleet.add_worker(&[]).await;
    load.until_answered(20).await;
    let answered = load.stop().await;

    for answer in &answered.answers {
        assert_eq!(answer["state"], "succeeded", "{}", **answer);
    }
    println!(
        "{} calls while {} migrations were applied; asked again {} times",
        answered.answers.len(),
        ADDITIONS.len(),
        answered.repeated
    );
    assert_eq!(fleet.call(answered.answers[0].call_id()).await["shard"], 0);
    invariants::hold(&fleet, &witness).await;
}

/// Cancels a call that no worker can run yet, through the function; returns its verdict.
async fn cancel_one(fleet: &Fleet, session: &mut sqlx::PgConnection) -> String {
    let call = Uuid::now_v7();
    sqlx::query(
        "INSERT INTO toolfleet.open_calls (call_id, tenant, tool, tool_version, effect, queue, line, priority, key_retention_ms, \
         args, args_hash, language, dispatcher_id, accepted_at, deadline_at, not_before, due_at) \
         VALUES ($1, 'default', 'charge', 1, 'once', 'default', 'default', 1, 0, '{}', '', 'en', gen_random_uuid(), now(), \
         now() + interval '1 hour', now() + interval '1 hour', now() + interval '1 hour')",
    )
    .bind(call)
    .execute(&fleet.database.pool)
    .await
    .unwrap();
    let answer = sqlx::query("SELECT verdict FROM toolfleet.cancel($1, 'test')")
        .bind(call)
        .fetch_one(session)
        .await;
    answer.unwrap().get(0)
}

#[tokio::test]
async fn nothing_is_migrated_under_a_worker_that_could_not_record_what_it_runs() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    witness.always("a", Reply::DoneWhenReleased);
    let call = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .asynchronous()
        .await
        .call_id();
    witness.until_asked("a", 1).await;
    let refused = leave_behind(&fleet.database).await.unwrap_err();
    assert!(refused.contains("worker-1"), "{refused}");
    witness.release("a");
    fleet.until_state(call, "succeeded").await;
    fleet.workers[0].drain().await;
    leave_behind(&fleet.database).await.unwrap();
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_process_that_the_schema_has_left_behind_writes_nothing_more() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let charge = fleet.submit("charge", &json!({"what": "a"}));
    let answer = charge.clone().key("before").wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    fleet.workers[0].drain().await;
    leave_behind(&fleet.database).await.unwrap();
    until_so("the sessions of the old release to be over", async || {
        0 == fleet
            .count(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                 AND application_name LIKE 'toolfleet%' \
                 AND backend_start < (SELECT max(installed_on) FROM toolfleet._migrations)",
            )
            .await
    })
    .await;
    let answer = charge.key("after").wait().await;
    assert_eq!(answer.code(), "store_unavailable", "{}", *answer);
    let calls = "SELECT count(*) FROM toolfleet.calls";
    assert_eq!(fleet.count(calls).await, 1);
    invariants::hold(&fleet, &witness).await;
}

/// Applies a migration that no program of today survives.
async fn leave_behind(database: &Database) -> Result<(), String> {
    let sql = "SELECT toolfleet.require_program(29990101000001)";
    let done = database.upgrade(1, sql).await;
    done.map_err(|error| error.to_string())
}

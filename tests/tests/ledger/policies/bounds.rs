//! How much a policy reads, however long a run is, and for how long it looks back.

use std::time::{Duration, Instant};

use fleet::{
    call::{EffectKnown, State},
    ending::Guard,
    ids::CallId,
    store::{accept::NewCall, policies::BrokenRule},
};
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::{Came, Scene, of};
use crate::support::{claim_of, end_in, ending, run};

fn all_rules() -> Value {
    json!({"at_most": {"calls": 100, "per": "session"}, "after": ["confirm"], "never_after": ["secrets", "keys"]})
}

/// A connection that plans like one that claims (`Session::connect_lane`).
async fn planning(scene: &Scene) -> PgConnection {
    let mut connection = scene.ledger.database.connect().await;
    for without in [
        "SET jit = off",
        "SET enable_seqscan = off",
        "SET enable_mergejoin = off",
        "SET enable_bitmapscan = off",
        "SET enable_nestloop = off",
        "SET plan_cache_mode = force_generic_plan",
    ] {
        run(&mut connection, without).await;
    }
    connection
}

/// So many calls like this one, which has ended, in its run and session, with what is noted of them.
async fn repeat(connection: &mut PgConnection, call: CallId, times: i32, from: i32) {
    const REPEAT: [&str; 2] = [
        "INSERT INTO toolfleet.finished_calls SELECT (row).* FROM ( \
             SELECT jsonb_populate_record(f, jsonb_build_object('call_id', toolfleet.uuid_floor(date_trunc('day', now()) + (n + $3) * interval '10 ms'))) AS row \
             FROM toolfleet.finished_calls f, generate_series(1, $2) n WHERE f.call_id = $1 OFFSET 0) made",
        "INSERT INTO toolfleet.happenings (tenant, scope, label, tool, what, call_id) \
             SELECT h.tenant, h.scope, h.label, h.tool, h.what, toolfleet.uuid_floor(date_trunc('day', now()) + (n + $3) * interval '10 ms') \
             FROM toolfleet.happenings h, generate_series(1, $2) n WHERE h.call_id = $1 \
             ON CONFLICT DO NOTHING",
    ];
    for repeat in REPEAT {
        let repeat = sqlx::query(repeat).bind(call.0).bind(times).bind(from);
        repeat.execute(&mut *connection).await.unwrap();
    }
}

/// How many rows of these tables were read in this transaction.
async fn rows_read(connection: &mut PgConnection) -> i64 {
    sqlx::query_scalar(
        "SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(c.oid) + pg_stat_get_xact_tuples_fetched(c.oid)), 0)::bigint \
         FROM pg_class c WHERE c.relnamespace = 'toolfleet'::regnamespace \
           AND (c.relname LIKE 'happenings%' OR c.relname LIKE 'finished_calls%' OR c.relname LIKE 'open_calls%' OR c.relname LIKE 'policy_locks%')",
    )
    .fetch_one(connection)
    .await
    .unwrap()
}

const POLICY_SAYS: &str =
    "SELECT count(*) FROM toolfleet.policy_says($1, 'mail', $2, $3, false, true)";

async fn asked(connection: &mut PgConnection, tenant: &str, run_: &str, session: &str) -> i64 {
    run(connection, "BEGIN").await;
    let before = rows_read(connection).await;
    let said: i64 = sqlx::query_scalar(POLICY_SAYS)
        .bind(tenant)
        .bind(run_)
        .bind(session)
        .fetch_one(&mut *connection)
        .await
        .unwrap();
    assert_eq!(said, 1);
    let read = rows_read(connection).await - before;
    run(connection, "COMMIT").await;
    read
}

#[tokio::test]
async fn a_rule_reads_its_own_number_of_rows_however_long_a_run_is() {
    let scene = Scene::with(all_rules()).await;
    let ledger = &scene.ledger;
    let connection = &mut ledger.database.connect().await;
    let confirmed = scene.succeeded(of("confirm", "r-long", "s-long")).await;
    let mailed = scene.succeeded(of("mail", "r-long", "s-long")).await;
    // It has happened fifty thousand times and never succeeded.
    let half = EffectKnown::Unknown;
    let looked = scene
        .came(
            of("look", "r-long", "s-long"),
            Came::Ended(State::Failed, half),
        )
        .await;
    for (n, call) in [confirmed, mailed, looked].into_iter().enumerate() {
        repeat(connection, call, 50_000, n as i32 * 50_000).await;
    }
    run(connection, "ANALYZE toolfleet.happenings").await;
    let connection = &mut planning(&scene).await;
    scene.succeeded(of("confirm", "r-short", "s-short")).await;
    let long = asked(connection, "tenant", "r-long", "s-long").await;
    let short = asked(connection, "tenant", "r-short", "s-short").await;
    // A hundred for `at_most`, and a few for the others, each counted in the index and in its table.
    assert!(long <= 250, "{long} rows of the long run were read");
    assert!(short <= 50, "{short} rows of the short run were read");
    // The run of another tenant that has the same name is none of it.
    let other = asked(connection, "other", "r-long", "s-long").await;
    assert!(other <= 20, "{other} rows were read for another tenant");
}

/// One statement claims for all of them.
#[tokio::test]
async fn a_long_run_of_one_tenant_delays_the_claim_of_no_other() {
    let mut scene = Scene::with(all_rules()).await;
    scene.apply_to("limited", json!({"concurrency": 10})).await;
    let connection = &mut scene.ledger.database.connect().await;
    for session in 0..50 {
        let session = format!("s-{session}");
        scene.succeeded(of("confirm", "r-long", &session)).await;
    }
    let mailed = scene.succeeded(of("mail", "r-long", "s-0")).await;
    repeat(connection, mailed, 50_000, 0).await;
    // Fifty thousand more wait in the run, and have not happened.
    let waiting = scene.ledger.accepted(of("mail", "r-long", "s-0")).await;
    let more = "INSERT INTO toolfleet.open_calls SELECT (row).* FROM ( \
                    SELECT jsonb_populate_record(o, jsonb_build_object('call_id', gen_random_uuid(), 'held', true)) AS row \
                    FROM toolfleet.open_calls o, generate_series(1, 50000) WHERE o.call_id = $1 OFFSET 0) made";
    let more = sqlx::query(more).bind(waiting.0);
    more.execute(&mut *connection).await.unwrap();
    let mut calls = Vec::new();
    for session in 0..50 {
        let session = format!("s-{session}");
        let call = scene.ledger.accepted(of("mail", "r-long", &session)).await;
        scene.broken_by(call).await;
        calls.push(call);
    }
    let of_another = NewCall {
        tenant: "other".parse().unwrap(),
        ..of("limited", "r-long", "")
    };
    calls.push(scene.ledger.accepted(of_another).await);
    let other = scene.ledger.worker().await;
    let connection = &mut planning(&scene).await;
    let began = Instant::now();
    let said =
        super::claims::together(connection, &other, &calls, fleet::store::lane::Locks::Wait).await;
    let took = began.elapsed();
    assert_eq!((said[0], said[50]), ("forbidden", "starts"));
    assert_eq!(said[1..50], ["starts"; 49]);
    // Some milliseconds; to read the run once for each call takes seconds.
    assert!(took < Duration::from_secs(1), "the claim took {took:?}");
}

#[tokio::test]
async fn what_fails_without_an_effect_leaves_nothing_that_is_read() {
    let scene = Scene::with(json!({"never_after": ["secrets"]})).await;
    let noted = "SELECT count(*) FROM toolfleet.happenings";
    for known in [EffectKnown::None, EffectKnown::NotApplied] {
        scene
            .came(of("secrets", "r", "s"), Came::Ended(State::Failed, known))
            .await;
    }
    let counted: i64 = sqlx::query_scalar(noted)
        .fetch_one(&scene.ledger.database.pool)
        .await
        .unwrap();
    assert_eq!(counted, 0);
}

/// Answers of a cache, and what stands in for a tool.
#[tokio::test]
async fn an_answer_that_no_attempt_has_got_counts_like_one_of_the_tool() {
    let scene = Scene::with(json!({"after": ["confirm"], "never_after": ["secrets"]})).await;
    let answered = async |tool: &str, run: &str| {
        let call = scene.ledger.accepted(of(tool, run, "")).await;
        let kind = end_in(State::Succeeded);
        scene
            .ledger
            .ends(ending(call, Guard::Queued(0), kind))
            .await;
    };
    assert_ne!(scene.broken(of("mail", "r", "")).await, None);
    answered("confirm", "r").await;
    assert_eq!(scene.broken(of("mail", "r", "")).await, None);
    answered("secrets", "r").await;
    let tool = "secrets".parse().unwrap();
    let expected = Some(BrokenRule::NeverAfter { tool });
    assert_eq!(scene.broken(of("mail", "r", "")).await, expected);
}

#[tokio::test]
async fn only_what_a_policy_of_a_newest_version_names_is_noted() {
    let scene = Scene::with(json!({"after": ["confirm"]})).await;
    let watched = async || -> Vec<String> {
        sqlx::query_scalar("SELECT unnest(watched_tools) FROM toolfleet.fleet")
            .fetch_all(&scene.ledger.database.pool)
            .await
            .unwrap()
    };
    let noted = async || -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM toolfleet.happenings")
            .fetch_one(&scene.ledger.database.pool)
            .await
            .unwrap()
    };
    assert_eq!(watched().await, ["confirm"]);
    for call in [
        of("mail", "r", "s"),
        of("look", "r", "s"),
        of("confirm", "", ""),
    ] {
        scene.succeeded(call).await;
    }
    assert_eq!(noted().await, 0);
    scene.succeeded(of("confirm", "r", "s")).await;
    assert_eq!(noted().await, 4);
    let at_most = json!({"calls": 1, "per": "run"});
    scene
        .apply(
            2,
            json!({"policy": {"at_most": at_most, "never_after": ["secrets"]}}),
        )
        .await;
    assert_eq!(watched().await, ["mail", "secrets"]);
    scene.apply(3, json!({})).await;
    assert!(watched().await.is_empty());
}

/// A call that was accepted before the rule was is noted by its claim.
#[tokio::test]
async fn a_rule_counts_what_starts_after_it_was_applied() {
    let scene = Scene::with(json!({})).await;
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(scene.ledger.accepted(of("mail", "r", "")).await);
    }
    let start = async |call: CallId| {
        scene.broken_by(call).await;
        let claiming = scene
            .worker
            .claiming
            .claim_limited(claim_of(call), fleet::modes::InterceptMode::Off);
        super::claims::word(claiming.await.unwrap().as_ref())
    };
    assert_eq!(start(calls[0]).await, "starts");
    let policy = json!({"policy": {"at_most": {"calls": 1, "per": "run"}}});
    scene.apply(2, policy).await;
    assert_eq!(start(calls[1]).await, "starts");
    assert_eq!(start(calls[2]).await, "forbidden");
}

#[tokio::test]
async fn what_is_noted_goes_with_the_history() {
    let scene = Scene::with(json!({"never_after": ["secrets"]})).await;
    scene.succeeded(of("secrets", "r", "")).await;
    let connection = &mut scene.ledger.database.connect().await;
    for older in [
        "CREATE TABLE toolfleet.finished_calls_20200101 PARTITION OF toolfleet.finished_calls \
             FOR VALUES FROM (toolfleet.uuid_floor('2020-01-01Z')) TO (toolfleet.uuid_floor('2020-01-02Z'))",
        "CREATE TABLE toolfleet.ended_attempts_20200101 PARTITION OF toolfleet.ended_attempts \
             FOR VALUES FROM (toolfleet.uuid_floor('2020-01-01Z')) TO (toolfleet.uuid_floor('2020-01-02Z'))",
        "CREATE TABLE toolfleet.call_notes_20200101 PARTITION OF toolfleet.call_notes \
             FOR VALUES FROM (toolfleet.uuid_floor('2020-01-01Z')) TO (toolfleet.uuid_floor('2020-01-02Z'))",
        "INSERT INTO toolfleet.happenings SELECT tenant, scope, 'r-old', tool, what, toolfleet.uuid_floor('2020-01-01T12:00Z') \
             FROM toolfleet.happenings",
        "INSERT INTO toolfleet.policy_locks (tenant, scope, label, tool, made_at) \
             VALUES ('tenant', 'run', 'r-old', 'mail', '2020-01-01Z'), ('tenant', 'run', 'r', 'mail', now())",
    ] {
        run(connection, older).await;
    }
    let broken = async |run| scene.broken(of("mail", run, "")).await;
    assert!(broken("r").await.is_some() && broken("r-old").await.is_some());
    run(connection, "SELECT toolfleet.drop_history('2020-02-01Z')").await;
    assert!(broken("r").await.is_some());
    assert_eq!(broken("r-old").await, None);
    let locks: Vec<String> = sqlx::query_scalar("SELECT label FROM toolfleet.policy_locks")
        .fetch_all(connection)
        .await
        .unwrap();
    assert_eq!(locks, ["r"]);
}

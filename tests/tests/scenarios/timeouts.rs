//! Timeouts that the fleet learns: what is counted, what comes of it, and what an operator can do about it.

use std::time::Duration;

use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use futures_util::future::join_all;
use serde_json::{Value, json};

const LEARNED: &str =
    "timeout: {learned: p95x2, floor: 200ms, ceiling: 20s, initial: 5s}\ndeadline: 1m\n";

async fn look(fleet: &Fleet, what: &str) -> Answer {
    fleet.submit("look", &json!({ "what": what })).wait().await
}

/// So many samples as attempts of an hour ago would have left, and the look at them that is due.
async fn remembered(fleet: &Fleet, limit_ms: i64, took_ms: i64, count: i64) {
    let sql = "INSERT INTO toolfleet.run_times VALUES ('look', 1, date_trunc('hour', now()), $1, $2, false, $3)";
    let adding = sqlx::query(sql).bind(limit_ms).bind(took_ms).bind(count);
    adding.execute(&fleet.database.pool).await.unwrap();
    look_again(fleet).await;
}

async fn look_again(fleet: &Fleet) {
    let sql = "UPDATE toolfleet.timeout_looks SET looked_at = now() - interval '11 minutes'";
    sqlx::query(sql)
        .execute(&fleet.database.pool)
        .await
        .unwrap();
}

/// The timeout that an attempt gets now.
async fn given(fleet: &Fleet) -> Value {
    let call = look(fleet, "a").await.call_id();
    let sql = "SELECT timeout_ms FROM toolfleet.attempts WHERE call_id = $1";
    fleet.rows(sql, call).await[0]["timeout_ms"].clone()
}

async fn until_given(fleet: &Fleet, timeout_ms: i64) {
    until_so("attempts to be given what was learned", async || {
        given(fleet).await == timeout_ms
    })
    .await;
}

async fn set(fleet: &Fleet, mode: &str) -> Value {
    let wish = json!({"do": "set", "interceptor": "learned_timeout", "mode": mode, "actor": "ada", "note": "why"});
    let set = fleet.ask("toolfleet.admin.control", &wish).await;
    assert_eq!(set["result"], "set", "{}", *set);
    set["control"]["control_id"].clone()
}

async fn unset(fleet: &Fleet, control: Value) {
    let wish = json!({"do": "unset", "control_id": control, "actor": "ada", "note": "why"});
    let unset = fleet.ask("toolfleet.admin.control", &wish).await;
    assert_eq!(unset["result"], "unset", "{}", *unset);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_fleet_learns_is_what_the_next_attempt_gets() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read") + LEARNED];
    let fleet = Fleet::start(Spec::with(tools).dispatchers(2).workers(2, &[])).await;
    assert_eq!(given(&fleet).await, 5_000);
    let looks = "SELECT count(*) FROM toolfleet.current_timeouts";
    until_so("a dispatcher to look", async || {
        fleet.count(looks).await == 1
    })
    .await;
    remembered(&fleet, 5_000, 2_000, 500).await;
    until_given(&fleet, 4_200).await;
    remembered(&fleet, 5_000, 1_000, 500).await;
    // What took 2 s is still within the last day, and it is more than a hundredth.
    until_so("another look", async || {
        let seen = "SELECT samples FROM toolfleet.current_timeouts";
        fleet.count(seen).await >= 1_000
    })
    .await;
    let changes = "SELECT count(*) FROM toolfleet.learned_timeouts";
    assert_eq!(fleet.count(changes).await, 1);
    let change = "SELECT timeout_ms, before_ms, why, samples >= 500 AS enough, p95_ms FROM toolfleet.learned_timeouts WHERE $1 IS NOT NULL";
    let change = fleet.rows(change, look(&fleet, "a").await.call_id()).await;
    assert_eq!(
        change[0],
        json!({"timeout_ms": 4200, "before_ms": 5000, "why": "faster", "enough": true, "p95_ms": 2000})
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_is_cut_off_counts_as_one_and_what_says_nothing_does_not() {
    let witness = Witness::start().await;
    // Long beside what a quick call takes on a busy machine.
    let short = "timeout: {learned: p95x2, floor: 100ms, initial: 3s}\nretry: {max_attempts: 2, base: 1ms, cap: 1ms}\n";
    let tools = [witness.tool("look", "read") + short];
    let mut fleet = Fleet::start(Spec::with(tools)).await;
    witness.first("late", [Reply::Hang]);
    witness.always("down", Reply::Status(503));
    witness.always("no", Reply::No("no such place"));
    let answers = join_all(["quick", "quick", "late", "down", "no"].map(|what| look(&fleet, what)));
    let states = answers
        .await
        .into_iter()
        .map(|answer| answer["state"].clone());
    let states: Vec<_> = states.collect();
    assert_eq!(
        states,
        ["succeeded", "succeeded", "succeeded", "failed", "failed"]
    );
    // A worker that leaves tells what it has counted.
    fleet.workers[0].drain().await;
    let counted = |what: &str| {
        let sql = format!(
            "SELECT coalesce(sum(count), 0)::bigint FROM toolfleet.run_times WHERE limit_ms = 3000 AND {what}"
        );
        let pool = fleet.database.pool.clone();
        async move {
            sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(sql))
                .fetch_one(&pool)
                .await
                .unwrap()
        }
    };
    assert_eq!(counted("cut_off AND took_ms = 3000").await, 1);
    assert_eq!(counted("NOT cut_off AND took_ms <= 3000").await, 3);
    assert_eq!(counted("true").await, 4);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_watches_it_or_switches_it_off() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read") + LEARNED];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let looks = "SELECT count(*) FROM toolfleet.current_timeouts";
    until_so("a dispatcher to look", async || {
        fleet.count(looks).await == 1
    })
    .await;
    let control = set(&fleet, "observe").await;
    remembered(&fleet, 5_000, 2_000, 500).await;
    let learned = "SELECT count(*) FROM toolfleet.learned_timeouts WHERE timeout_ms = 4200";
    until_so("a timeout to be learned", async || {
        fleet.count(learned).await == 1
    })
    .await;
    assert_eq!(given(&fleet).await, 5_000);
    unset(&fleet, control).await;
    until_given(&fleet, 4_200).await;
    let control = set(&fleet, "off").await;
    until_given(&fleet, 5_000).await;
    unset(&fleet, control).await;
    until_given(&fleet, 4_200).await;
    invariants::hold(&fleet, &witness).await;
}

/// A tool with a fixed timeout costs nothing of this: no row, no look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_counted_of_a_fixed_timeout() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read") + "timeout: 3s\n"];
    let mut fleet = Fleet::start(Spec::with(tools)).await;
    assert_eq!(given(&fleet).await, 3_000);
    fleet.workers[0].drain().await;
    let rows = "SELECT (SELECT count(*) FROM toolfleet.run_times) + (SELECT count(*) FROM toolfleet.timeout_looks)";
    assert_eq!(fleet.count(rows).await, 0);
}

/// What a call has left bounds its attempt, whatever was learned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_bounds_a_learned_timeout() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read") + LEARNED];
    let mut fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("a", Reply::Hang);
    let call = fleet.submit("look", &json!({"what": "a"}));
    let answer = call.deadline(Duration::from_secs(2)).wait().await;
    assert_eq!(answer["state"], "failed", "{}", *answer);
    let sql = "SELECT timeout_ms FROM toolfleet.attempts WHERE call_id = $1";
    let given = fleet.rows(sql, answer.call_id()).await[0]["timeout_ms"].clone();
    assert!(given.as_i64().unwrap() <= 2_000, "{given}");
    // It says nothing of how long an answer takes. One that came within a shorter time says it of the timeout that it was to have.
    let call = fleet.submit("look", &json!({"what": "b"}));
    let answer = call.deadline(Duration::from_secs(3)).wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    fleet.workers[0].drain().await;
    let counted = "SELECT sum(count)::bigint FROM toolfleet.run_times";
    assert_eq!(fleet.count(counted).await, 1);
    let whole = "SELECT count(*) FROM toolfleet.run_times WHERE limit_ms = 5000 AND NOT cut_off";
    assert_eq!(fleet.count(whole).await, 1);
}

//! Whatever a message, a stream or a process loses, Postgres still has, and the sweep finds.

use std::time::Duration;

use async_nats::jetstream;
use fleet::{
    call::{Effect, Language, Priority},
    canonical,
    ids::{CallId, DispatcherId},
    store::{accept::NewCall, lane::Reply as Told, ledger::Accepting},
    wire::trace::TraceContext,
};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::{until_so, until_within},
    witness::{Reply, Witness},
};
use serde_json::json;
use tokio::task::JoinSet;

/// Accepts this many calls for effects `0`, `1`, …
async fn accept(fleet: &Fleet, tool: &str, calls: usize) -> Vec<CallId> {
    let mut accepted = Vec::new();
    for what in 0..calls {
        let what = what.to_string();
        let call = fleet.submit(tool, &json!({"what": what})).key(&what);
        accepted.push(call.asynchronous().await.call_id());
    }
    accepted
}

/// Waits until all have succeeded, each with one attempt and one effect.
async fn all_ran_once(fleet: &Fleet, witness: &Witness, calls: &[CallId]) {
    for (what, call) in calls.iter().enumerate() {
        let row = fleet.until_state(*call, "succeeded").await;
        assert_eq!(row["attempts"], 1);
        assert_eq!(witness.asked(&what.to_string()), 1);
    }
    invariants::hold(fleet, witness).await;
}

#[tokio::test]
async fn a_call_whose_dispatcher_died_before_publishing_is_run() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let args = json!({"what": "0"}).to_string();
    let call = NewCall {
        call_id: CallId::generate(),
        tenant: "default".parse().unwrap(),
        tool: "charge".parse().unwrap(),
        tool_version: 1,
        effect: Effect::Once,
        queue: "default".parse().unwrap(),
        priority: Priority::Normal,
        waits: None,
        line: "default".parse().unwrap(),
        rate_key: None,
        held: false,
        key: None,
        key_retention_ms: 86_400_000,
        args_hash: canonical::hash_text(&args),
        kept_args: None,
        original_args: None,
        files: Vec::new(),
        no_store: false,
        coercions: Vec::new(),
        args,
        session: None,
        run: None,
        meta: None,
        language: Language::En,
        trace: TraceContext::default(),
        dispatcher: DispatcherId::generate(),
        done_secret: fleet::wire::proof::DoneSecret::generate(),
        deadline_ms: 60_000,
        run_deadline: None,
        queue_wait_ms: None,
    };
    let mut lanes = JoinSet::new();
    let accepting = Accepting::start(&fleet.database.postgres, &mut lanes);
    let id = call.call_id;
    assert!(matches!(accepting.accept(call).await, Told::Done(_)));
    all_ran_once(&fleet, &witness, &[id]).await;
}

#[tokio::test]
async fn nats_may_lose_everything_it_has() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("charge", "once")]).workers(0, &[]);
    let mut fleet = Fleet::start(spec).await;
    let calls = accept(&fleet, "charge", 5).await;
    fleet.stop_nats().await;
    fleet.wipe_nats();
    fleet.start_nats().await;
    fleet.add_worker(&[]).await;
    all_ran_once(&fleet, &witness, &calls).await;
}

#[tokio::test]
async fn what_runs_while_nats_is_away_is_recorded() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    witness.always("0", Reply::DoneWhenReleased);
    let calls = accept(&fleet, "charge", 1).await;
    witness.until_asked("0", 1).await;
    fleet.stop_nats().await;
    witness.release("0");
    fleet.until_state(calls[0], "succeeded").await;
    fleet.start_nats().await;
    until_so("the dispatcher to be back", async || {
        fleet.dispatchers_heard().await == 1
    })
    .await;
    let answer = fleet.get(&json!({"call_id": calls[0]})).await;
    assert_eq!(answer["state"], "succeeded");
    all_ran_once(&fleet, &witness, &calls).await;
}

#[tokio::test]
async fn a_stream_that_is_deleted_comes_back_and_calls_run() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let jetstream = jetstream::new(fleet.client.clone());
    jetstream.delete_stream("TOOLFLEET_JOBS").await.unwrap();
    let calls = accept(&fleet, "charge", 3).await;
    all_ran_once(&fleet, &witness, &calls).await;
}

#[tokio::test]
async fn a_consumer_that_is_deleted_comes_back_and_calls_run() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let stream = fleet.stream().await.unwrap();
    stream.delete_consumer("q_default").await.unwrap();
    let calls = accept(&fleet, "charge", 3).await;
    all_ran_once(&fleet, &witness, &calls).await;
}

#[tokio::test]
async fn messages_that_are_purged_are_published_again() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("charge", "once")]).workers(0, &[]);
    let mut fleet = Fleet::start(spec).await;
    let calls = accept(&fleet, "charge", 5).await;
    until_so("all pointers to be there", async || {
        fleet.pointers().await == Some(5)
    })
    .await;
    fleet.stream().await.unwrap().purge().await.unwrap();
    fleet.add_worker(&[]).await;
    all_ran_once(&fleet, &witness, &calls).await;
}

#[tokio::test]
async fn a_call_that_waits_too_long_expires() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("charge", "once")]).workers(0, &[]);
    let mut fleet = Fleet::start(spec).await;
    let call = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let answer = call.deadline(Duration::from_millis(300)).wait().await;
    assert_eq!(
        (&answer["state"], answer.code()),
        (&json!("expired"), "deadline_exceeded")
    );
    assert_eq!(
        (&answer["effect"], &answer["attempts"]),
        (&json!("not_applied"), &json!(0))
    );
    // Its pointer finds nothing to do.
    fleet.add_worker(&[]).await;
    invariants::hold(&fleet, &witness).await;
    assert_eq!(witness.asked("a"), 0);
}

#[tokio::test]
async fn dispatchers_that_sweep_at_once_double_nothing() {
    let witness = Witness::start().await;
    let retry = "retry: {strategy: fixed, max_attempts: 2, base: 100ms}\n";
    let tools = [
        witness.tool("charge", "once"),
        witness.tool("look", "read") + retry,
    ];
    let spec = Spec::with(tools).dispatchers(3).workers(0, &[]);
    let mut fleet = Fleet::start(spec).await;
    let calls = accept(&fleet, "charge", 30).await;
    let retried = fleet
        .submit("look", &json!({"what": "again"}))
        .asynchronous()
        .await;
    witness.first("again", [Reply::Status(503)]);
    fleet.stream().await.unwrap().purge().await.unwrap();
    fleet.add_worker(&[]).await;
    fleet.add_worker(&[]).await;
    fleet.until_state(retried.call_id(), "succeeded").await;
    assert_eq!(witness.asked("again"), 2);
    all_ran_once(&fleet, &witness, &calls).await;
}

#[tokio::test]
async fn a_call_whose_first_attempt_does_not_start_in_time_expires() {
    let witness = Witness::start().await;
    let tool = witness.tool("note", "once") + "max_queue_wait: 1s\n";
    let mut fleet = Fleet::start(Spec::with([tool]).workers(0, &[])).await;
    let answer = fleet
        .submit("note", &json!({"what": "a"}))
        .key("a")
        .wait()
        .await;
    assert_eq!(
        (&answer["state"], answer.code(), &answer["effect"]),
        (
            &json!("expired"),
            "deadline_exceeded",
            &json!("not_applied")
        ),
        "{}",
        *answer
    );
    // The worker that gets its pointer throws it away.
    fleet.add_worker(&[]).await;
    invariants::hold(&fleet, &witness).await;
    assert_eq!(witness.asked("a"), 0);
}

/// Kills every worker and says so, as a supervisor does; then starts as many anew.
async fn replace_killed_workers(fleet: &mut Fleet) {
    let workers = fleet.workers.len();
    for worker in fleet.workers.drain(..) {
        worker.kill().await;
    }
    fleet
        .sql(
            "UPDATE toolfleet.worker_processes SET state = 'dead', ended_at = now(), ended_by = 'test' \
             WHERE state IN ('live', 'draining')",
        )
        .await;
    for _ in 0..workers {
        fleet.add_worker(&[]).await;
    }
}

#[tokio::test]
async fn a_call_that_loses_more_workers_than_its_tool_allows_is_set_aside() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look", "read") + "losses: 1\n",
        witness.tool("put", "idempotent") + "losses: 1\n",
    ];
    let mut fleet = Fleet::start(Spec::with(tools)).await;
    let mut calls = Vec::new();
    for (tool, what) in [("look", "l"), ("put", "p")] {
        witness.always(what, Reply::Hang);
        let call = fleet.submit(tool, &json!({"what": what})).key(what);
        calls.push(call.asynchronous().await.call_id());
    }
    for times in 1..=2 {
        for what in ["l", "p"] {
            witness.until_asked(what, times).await;
        }
        replace_killed_workers(&mut fleet).await;
    }
    for (call, state) in calls.into_iter().zip(["failed", "in_doubt"]) {
        let row = fleet.until_state(call, state).await;
        assert_eq!(row["attempts"], 2, "{row}");
        let message = row["error"]["message"].as_str().unwrap_or_default();
        assert!(
            message.starts_with(
                "Its worker was lost 2 times while it ran, and its tool allows 1, so it is not tried again."
            ),
            "{message}"
        );
        let last = fleet.events(call).await.pop().expect("events");
        assert_eq!(
            (&last["reason"], &last["to_state"]),
            (&json!("poison"), &json!(state)),
            "{last}"
        );
    }
    assert_eq!((witness.asked("l"), witness.asked("p")), (2, 2));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn reads_bear_that_all_workers_are_killed_five_times() {
    const READS: usize = 400;
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("look", "read")]).workers(2, &[]);
    let mut fleet = Fleet::start(spec).await;
    witness.always("a", Reply::DoneWhenReleased);
    for _ in 0..READS {
        let call = fleet.submit("look", &json!({"what": "a"}));
        call.asynchronous().await;
    }
    // The worst case: each of them runs at each of the kills.
    for times in 1..=5 {
        witness.until_asked("a", READS * times).await;
        replace_killed_workers(&mut fleet).await;
    }
    witness.until_asked("a", READS * 6).await;
    witness.release("a");
    let open = "SELECT count(*) FROM toolfleet.open_calls";
    until_so("all reads to be over", async || {
        fleet.count(open).await == 0
    })
    .await;
    let succeeded =
        "SELECT count(*) FROM toolfleet.calls WHERE state = 'succeeded' AND attempts = 6";
    assert_eq!(fleet.count(succeeded).await, i64::try_from(READS).unwrap());
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_worker_that_was_leaving_is_not_lost() {
    let witness = Witness::start().await;
    let tool = witness.tool("look", "read") + "losses: 0\n";
    let mut fleet = Fleet::start(Spec::with([tool])).await;
    witness.always("a", Reply::Hang);
    let call = fleet.submit("look", &json!({"what": "a"}));
    let call = call.asynchronous().await.call_id();
    witness.until_asked("a", 1).await;
    fleet.workers[0].ask_to_stop();
    let leaving = "SELECT count(*) FROM toolfleet.workers WHERE state = 'draining'";
    until_so("the worker to leave", async || {
        fleet.count(leaving).await == 1
    })
    .await;
    replace_killed_workers(&mut fleet).await;
    witness.until_asked("a", 2).await;
    let left = fleet.events(call).await;
    let left = left.iter().find(|event| event["reason"] == "worker_left");
    assert_eq!(
        left.map(|event| (&event["to_state"], &event["details"]["spent"])),
        Some((&json!("queued"), &json!(false)))
    );
    replace_killed_workers(&mut fleet).await;
    let row = fleet.until_state(call, "failed").await;
    let message = row["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("lost 1 times"), "{message}");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn autovacuum_waits_for_more_dead_rows_while_a_snapshot_is_held_and_for_the_usual_number_afterwards()
 {
    let fleet = Fleet::start(Spec::with([]).roles()).await;
    let pool = &fleet.database.pool;
    let mut holder = fleet.database.connect().await;
    for statement in ["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1"] {
        sqlx::query(statement).execute(&mut holder).await.unwrap();
    }
    for statement in [
        "INSERT INTO toolfleet.open_counts SELECT 'tenant' || n, 1, 0 FROM generate_series(1, 3000) n",
        "DELETE FROM toolfleet.open_counts",
    ] {
        sqlx::query(statement).execute(pool).await.unwrap();
    }
    let waits_for = async || -> i64 {
        let option = "SELECT option_value::bigint FROM pg_class c, pg_options_to_table(c.reloptions) \
                      WHERE c.oid = 'toolfleet.open_counts'::regclass AND option_name = 'autovacuum_vacuum_threshold'";
        sqlx::query_scalar(option).fetch_one(pool).await.unwrap()
    };
    // Half a minute is what a snapshot is held before it counts.
    let patience = Duration::from_secs(90);
    until_within(
        patience,
        "autovacuum to wait for twice of them",
        async || (waits_for().await >= 6_000).then_some(()),
    )
    .await;
    sqlx::query("COMMIT").execute(&mut holder).await.unwrap();
    until_so("autovacuum is as usual", async || {
        waits_for().await == 1_000
    })
    .await;
}

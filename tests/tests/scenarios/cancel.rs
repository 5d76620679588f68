//! A caller cancels a call: before it ran, while it runs, and when it is unknown whether it runs.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use fleet::{ids::CallId, lease::BEAT, wire::subjects::Subjects};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use toolfleet::servers::free_ports;
use uuid::Uuid;

/// Asks for the call to be stopped, on this connection; answers the verdict and the worker to be told.
async fn ask(connection: &mut PgConnection, call: CallId) -> (String, Option<Uuid>) {
    let asking = "SELECT verdict, worker_id FROM toolfleet.cancel($1, 'a test', 'because')";
    let asked = sqlx::query_as(asking).bind(call.0).fetch_one(connection);
    asked.await.unwrap()
}

/// Asks, and rings no bell.
async fn cancel_silently(fleet: &Fleet, call: CallId) -> String {
    ask(&mut fleet.database.connect().await, call).await.0
}

/// Asks, and rings the bell of the worker that runs it.
async fn cancel(fleet: &Fleet, call: CallId) -> String {
    let (verdict, worker) = ask(&mut fleet.database.connect().await, call).await;
    if let Some(worker) = worker {
        ring(fleet, worker, &call.to_string()).await;
    }
    verdict
}

async fn ring(fleet: &Fleet, worker: Uuid, payload: &str) {
    let subjects = Subjects::new("toolfleet".parse().unwrap());
    let bell = subjects.cancel_of_worker(fleet::ids::WorkerId(worker));
    let payload = payload.to_owned().into();
    fleet.client.publish(bell, payload).await.unwrap();
    fleet.client.flush().await.unwrap();
}

/// Submits and waits until the tool has been asked.
async fn running(fleet: &Fleet, witness: &Witness, tool: &str, what: &str) -> CallId {
    let call = fleet.submit(tool, &json!({"what": what})).key(what);
    let call = call.asynchronous().await.call_id();
    witness.until_asked(what, 1).await;
    call
}

/// Lets a tool that runs answer in such a way that its worker records it after the call was asked to stop and before the
/// worker can know: the row is locked meanwhile.
async fn answered_just_before(fleet: &Fleet, witness: &Witness, call: CallId, what: &str) {
    let mut connection = fleet.database.connect().await;
    let mut asking = connection.begin().await.unwrap();
    let (verdict, _) = ask(&mut asking, call).await;
    assert_eq!(verdict, "cancel_requested");
    witness.release(what);
    until_so("the worker to wait for the row", async || {
        let blocked = "SELECT count(*) FROM pg_stat_activity \
                       WHERE datname = current_database() AND wait_event_type = 'Lock'";
        fleet.count(blocked).await > 0
    })
    .await;
    asking.commit().await.unwrap();
}

/// The reason of the last move.
async fn reason(fleet: &Fleet, call: CallId) -> Value {
    fleet.events(call).await.pop().unwrap()["reason"].clone()
}

async fn envelope(fleet: &Fleet, call: CallId) -> Value {
    (*fleet.get(&json!({"call_id": call})).await).clone()
}

#[tokio::test]
async fn a_call_that_waits_is_cancelled_and_never_runs() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("charge", "once")]).workers(0, &[]);
    let mut fleet = Fleet::start(spec).await;
    let accepted = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let (answer, ()) = tokio::join!(accepted.wait(), async {
        let waiting = "SELECT count(*) FROM toolfleet.calls WHERE state = 'queued'";
        until_so("the call to be there", async || {
            fleet.count(waiting).await == 1
        })
        .await;
        let call = "SELECT call_id FROM toolfleet.open_calls";
        let call: Uuid = sqlx::query_scalar(call)
            .fetch_one(&fleet.database.pool)
            .await
            .unwrap();
        assert_eq!(cancel(&fleet, CallId(call)).await, "cancelled");
    });
    assert_eq!(
        (&answer["state"], answer.code(), &answer["effect"]),
        (&json!("cancelled"), "cancelled", &json!("not_applied"))
    );
    // Its pointer finds nothing to do.
    fleet.add_worker(&[]).await;
    invariants::hold(&fleet, &witness).await;
    assert_eq!(witness.asked("a"), 0);
}

#[tokio::test]
async fn a_read_that_is_cancelled_loses_its_connection_at_once() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let began = Instant::now();
    // The heartbeats alone would need a beat for each of them after the first.
    for what in ["1", "2", "3", "4", "5"] {
        witness.always(what, Reply::Hang);
        let call = running(&fleet, &witness, "look", what).await;
        assert_eq!(cancel(&fleet, call).await, "cancel_requested");
        fleet.until_state(call, "cancelled").await;
        witness
            .until("the connection to be closed", |seen| seen.running == 0)
            .await;
        let told = envelope(&fleet, call).await;
        assert_eq!(
            (&told["effect"], &told["error"]["code"]),
            (&json!("none"), &json!("cancelled")),
            "{told}"
        );
        assert_eq!(reason(&fleet, call).await, "cancelled");
        let attempts = fleet.attempts(call).await;
        assert_eq!(attempts[0]["error"]["code"], "cancelled", "{attempts:?}");
    }
    assert!(began.elapsed() < 3 * BEAT, "{:?}", began.elapsed());
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_bell_that_was_not_heard_is_made_good_by_the_heartbeat() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    witness.always("a", Reply::Hang);
    let call = running(&fleet, &witness, "look", "a").await;
    assert_eq!(cancel_silently(&fleet, call).await, "cancel_requested");
    fleet.until_state(call, "cancelled").await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn whoever_only_rings_the_bell_stops_nothing() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    witness.always("a", Reply::DoneWhenReleased);
    let call = running(&fleet, &witness, "look", "a").await;
    let worker: Uuid = sqlx::query_scalar("SELECT worker_id FROM toolfleet.workers")
        .fetch_one(&fleet.database.pool)
        .await
        .unwrap();
    let other = CallId::generate().to_string();
    for _ in 0..2_000 {
        for payload in [&call.to_string(), &other, "", "\u{0}", "*"] {
            ring(&fleet, worker, payload).await;
        }
    }
    // A real one comes behind all of these.
    witness.always("b", Reply::Hang);
    let stopped = running(&fleet, &witness, "look", "b").await;
    cancel(&fleet, stopped).await;
    fleet.until_state(stopped, "cancelled").await;
    witness.release("a");
    let row = fleet.until_state(call, "succeeded").await;
    assert_eq!((&row["attempts"], witness.asked("a")), (&json!(1), 1));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_write_that_hangs_and_is_cancelled_is_in_doubt() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("charge", "once"),
        witness.tool("put", "idempotent"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    for tool in ["charge", "put"] {
        witness.always(tool, Reply::DoneThenHang);
        let call = running(&fleet, &witness, tool, tool).await;
        assert_eq!(cancel(&fleet, call).await, "cancel_requested");
        fleet.until_state(call, "in_doubt").await;
        witness
            .until("the connection to be closed", |seen| seen.running == 0)
            .await;
        assert_eq!(reason(&fleet, call).await, "cancelled");
        // Nothing of it can act any more, so it may be settled once its time is over.
        let doubt = "SELECT * FROM toolfleet.in_doubt WHERE call_id = $1";
        let doubt = fleet.rows(doubt, call).await;
        assert_eq!(
            (&doubt[0]["why"], &doubt[0]["worker_fenced"]),
            (&json!("cancelled"), &json!(true))
        );
        assert_eq!(cancel(&fleet, call).await, "in_doubt");
        assert_eq!(witness.asked(tool), 1);
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_the_tool_itself_said_stands_although_the_call_was_cancelled() {
    let witness = Witness::start().await;
    let tools = ["read", "idempotent", "once"].map(|effect| witness.tool(effect, effect));
    let fleet = Fleet::start(Spec::with(tools)).await;
    for tool in ["read", "idempotent", "once"] {
        for (reply, state, code) in [
            (Reply::DoneWhenReleased, "succeeded", Value::Null),
            (
                Reply::StatusWhenReleased(409),
                "failed",
                json!("tool_error"),
            ),
        ] {
            let what = format!("{tool}-{state}");
            witness.always(&what, reply);
            let call = running(&fleet, &witness, tool, &what).await;
            answered_just_before(&fleet, &witness, call, &what).await;
            fleet.until_state(call, state).await;
            let told = envelope(&fleet, call).await;
            assert_eq!(told["error"]["code"], code, "{what}: {told}");
            assert_eq!(witness.asked(&what), 1, "{what}");
        }
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_retry_that_was_due_is_not_made_for_a_call_that_was_cancelled() {
    let witness = Witness::start().await;
    let retry =
        "not_applied_statuses: [429]\nretry: {strategy: fixed, max_attempts: 3, base: 10ms}\n";
    let tools = ["read", "idempotent", "once"].map(|tool| witness.tool(tool, tool) + retry);
    let fleet = Fleet::start(Spec::with(tools)).await;
    for (tool, state, effect) in [
        ("read", "failed", "none"),
        ("idempotent", "cancelled", "not_applied"),
        ("once", "failed", "not_applied"),
    ] {
        witness.always(tool, Reply::StatusWhenReleased(429));
        let call = running(&fleet, &witness, tool, tool).await;
        answered_just_before(&fleet, &witness, call, tool).await;
        fleet.until_state(call, state).await;
        let told = envelope(&fleet, call).await;
        // A read that was refused has its own answer: to a read the status is no proof of anything else.
        let code = if tool == "read" {
            "unavailable"
        } else {
            "cancelled"
        };
        assert_eq!(
            (&told["error"]["code"], &told["effect"]),
            (&json!(code), &json!(effect)),
            "{tool}: {told}"
        );
        assert_eq!(reason(&fleet, call).await, code);
        assert_eq!((&told["attempts"], witness.asked(tool)), (&json!(1), 1));
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_call_that_waits_for_its_next_attempt_is_cancelled() {
    let witness = Witness::start().await;
    let nobody = format!("http://127.0.0.1:{}/effects", free_ports(1).unwrap()[0]);
    let retry = "retry: {strategy: fixed, max_attempts: 3, base: 20s}\n";
    let tool = witness
        .tool("charge", "once")
        .replace(&witness.url(), &nobody);
    let fleet = Fleet::start(Spec::with([tool + retry])).await;
    let call = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let call = call.asynchronous().await.call_id();
    until_so("the first attempt to be over", async || {
        let row = fleet.call(call).await;
        row["state"] == "queued" && row["attempts"] == 1
    })
    .await;
    assert_eq!(cancel(&fleet, call).await, "cancelled");
    let told = envelope(&fleet, call).await;
    assert_eq!(
        (&told["state"], &told["effect"], &told["attempts"]),
        (&json!("cancelled"), &json!("not_applied"), &json!(1))
    );
    assert_eq!(cancel(&fleet, call).await, "already_terminal");
    invariants::hold(&fleet, &witness).await;
}

/// A tool that writes down in this folder what it is told.
fn program(name: &str, effect: &str, folder: &Path) -> String {
    let script = format!(
        "trap 'echo > {name}.told; echo 7; exit 0' TERM; echo > {name}.up; while :; do sleep 0.05; done"
    );
    let command = json!(["sh", "-c", script]);
    format!(
        "name: {name}\nversion: 1\ndescription: Waits.\neffect: {effect}\ninput_schema: {{type: object}}\n\
         executor: {{process: {{command: {command}, cwd: {}}}}}\n",
        json!(folder)
    )
}

#[tokio::test]
async fn a_program_is_asked_to_end() {
    let witness = Witness::start().await;
    let folder = tempfile::tempdir().unwrap();
    let tools = [("look", "read"), ("charge", "once")];
    let tools = tools.map(|(name, effect)| program(name, effect, folder.path()));
    let fleet = Fleet::start(Spec::with(tools)).await;
    let is_there = |name: String| folder.path().join(name).exists();
    for (tool, state) in [("look", "cancelled"), ("charge", "in_doubt")] {
        let call = fleet.submit(tool, &json!({})).key(tool);
        let call = call.asynchronous().await.call_id();
        until_so("the program to run", async || {
            is_there(format!("{tool}.up"))
        })
        .await;
        assert_eq!(cancel(&fleet, call).await, "cancel_requested");
        fleet.until_state(call, state).await;
        assert!(is_there(format!("{tool}.told")), "{tool} got no TERM");
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_cancelled_call_whose_worker_dies_comes_to_an_end() {
    let witness = Witness::start().await;
    let tools = ["read", "idempotent", "once"].map(|effect| witness.tool(effect, effect));
    let mut fleet = Fleet::start(Spec::with(tools)).await;
    let mut calls = Vec::new();
    for tool in ["read", "idempotent", "once"] {
        witness.always(tool, Reply::Hang);
        calls.push(running(&fleet, &witness, tool, tool).await);
    }
    fleet.workers.remove(0).kill().await;
    for call in &calls {
        assert_eq!(cancel(&fleet, *call).await, "cancel_requested");
    }
    fleet.add_worker(&[]).await;
    let dead = "UPDATE toolfleet.worker_processes SET state = 'dead', ended_at = now(), ended_by = 'test' \
                WHERE worker_id = (SELECT worker_id FROM toolfleet.worker_processes ORDER BY started_at LIMIT 1)";
    assert_eq!(fleet.sql(dead).await, 1);
    for (call, state) in calls.iter().zip(["cancelled", "in_doubt", "in_doubt"]) {
        fleet.until_state(*call, state).await;
    }
    assert_eq!(reason(&fleet, calls[0]).await, "cancelled");
    for tool in ["read", "idempotent", "once"] {
        assert_eq!(witness.asked(tool), 1, "{tool}");
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn nothing_is_started_for_a_call_that_was_cancelled_after_its_claim() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read"), witness.tool("charge", "once")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    // The wish comes with the claim itself: no worker can be faster.
    let asks = "CREATE FUNCTION public.ask() RETURNS trigger LANGUAGE plpgsql AS $$ \
                BEGIN NEW.cancel_requested := true; RETURN NEW; END $$";
    fleet.sql(asks).await;
    let asked = "CREATE TRIGGER asked BEFORE UPDATE ON toolfleet.open_calls FOR EACH ROW \
                 WHEN (NEW.state = 'running') EXECUTE FUNCTION public.ask()";
    fleet.sql(asked).await;
    for (tool, state, effect) in [
        ("look", "cancelled", "none"),
        ("charge", "failed", "not_applied"),
    ] {
        let call = fleet.submit(tool, &json!({"what": tool})).key(tool);
        let answer = call.patience(Duration::from_secs(20)).wait().await;
        assert_eq!(
            (&answer["state"], answer.code(), &answer["effect"]),
            (&json!(state), "cancelled", &json!(effect)),
            "{}",
            *answer
        );
        assert_eq!(witness.asked(tool), 0, "{tool}");
        assert_eq!(reason(&fleet, answer.call_id()).await, "cancelled");
    }
    invariants::hold(&fleet, &witness).await;
}

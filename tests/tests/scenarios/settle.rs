//! A doubt that a person settles, and calls that are cancelled: what callers, waiters and replays are told.

use fleet::ids::CallId;
use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec, counter},
    invariants,
    wait::{LONG, until_so},
    witness::{Reply, Witness},
};
use futures_util::StreamExt;
use serde_json::{Value, json};

const SETTLE: &str = "toolfleet.v1.default.admin.settle";
const CANCEL: &str = "toolfleet.v1.default.cancel";

/// A settlement that says why.
fn settlement(call: CallId, outcome: &str, more: &Value) -> Value {
    let mut body =
        json!({"call_id": call, "outcome": outcome, "actor": "ann", "note": "looked it up"});
    for (field, value) in more.as_object().unwrap() {
        body[field] = value.clone();
    }
    body
}

#[tokio::test]
async fn applied_with_its_result_is_the_answer_for_ever_and_everywhere() {
    let witness = Witness::start().await;
    let tool = witness.tool("charge", "once") + "timeout: 300ms\n";
    let fleet = Fleet::start(Spec::with([tool]).dispatchers(2)).await;
    witness.always("a", Reply::DoneThenHang);
    let submission = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let doubt = submission.clone().wait().await;
    assert_eq!(doubt["state"], "in_doubt");
    let call = doubt.call_id();

    let body = settlement(call, "applied", &json!({"result": {"id": 7}}));
    let settled = fleet.ask(SETTLE, &body).await;
    for (field, value) in [
        ("state", "succeeded"),
        ("outcome", "success"),
        ("source", "settled"),
        ("effect", "applied"),
    ] {
        assert_eq!(settled[field], value, "{}", *settled);
    }
    assert_eq!(settled["result"], json!({"id": 7}));

    // The same bytes for a client that settles again, asks, or repeats the call; at either dispatcher.
    for _ in 0..4 {
        let again = fleet.ask(SETTLE, &body).await;
        assert_eq!(again.bytes, settled.bytes);
        let got = fleet.get(&json!({"call_id": call, "wait_ms": 1000})).await;
        assert_eq!(got.bytes, settled.bytes);
        let replay = submission.clone().wait().await;
        assert_eq!(replay["replayed"], true);
        assert_eq!(replay.first_bytes().as_bytes(), settled.bytes);
    }
    let different = fleet
        .ask(SETTLE, &settlement(call, "not_applied", &json!({})))
        .await;
    refused(&different, "conflict", "409");
    let details = &different["error"]["details"];
    assert_eq!(
        (&details["state"], &details["decided_by"]),
        (&json!("succeeded"), &json!("ann (_INBOX)"))
    );
    assert!(
        details["decided_at"].as_str().unwrap().ends_with('Z'),
        "{details}"
    );
    assert_eq!(witness.asked("a"), 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn not_applied_is_refused_until_it_can_be_known() {
    let witness = Witness::start().await;
    let tool = witness.tool("charge", "once") + "timeout: 3s\n";
    let mut fleet = Fleet::start(Spec::with([tool])).await;
    witness.always("a", Reply::DoneWhenReleased);
    let submission = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let accepted = submission.clone().asynchronous().await;
    let call = accepted.call_id();
    witness.until_asked("a", 1).await;
    let running = fleet
        .ask(SETTLE, &settlement(call, "applied", &json!({})))
        .await;
    refused(&running, "conflict", "409");
    assert_eq!(running["error"]["details"]["state"], "running");

    // The worker is killed, and a person declares it dead: that alone proves nothing.
    fleet.workers.remove(0).kill().await;
    fleet
        .sql("UPDATE toolfleet.worker_processes SET state = 'dead', ended_at = now(), ended_by = 'test'")
        .await;
    fleet.until_state(call, "in_doubt").await;
    let body = settlement(call, "not_applied", &json!({}));
    let unproven = fleet.ask(SETTLE, &body).await;
    refused(&unproven, "worker_not_fenced", "409");
    let by_time = settlement(call, "not_applied", &json!({"by_time_only": true}));
    let early = fleet.ask(SETTLE, &by_time).await;
    if early["state"] == "refused" {
        refused(&early, "conflict", "409");
        assert!(
            early["error"]["retry_after_ms"].as_u64().unwrap() <= 3000,
            "{}",
            *early
        );
        assert_eq!(early["error"]["retryable"], true);
    }
    until_so("the attempt's time to be over", async || {
        fleet.ask(SETTLE, &by_time).await["state"] == "failed"
    })
    .await;
    let replay = submission.wait().await;
    assert_eq!(
        (replay.code(), &replay["source"], &replay["effect"]),
        ("not_applied", &json!("settled"), &json!("not_applied"))
    );
    let events = fleet.events(call).await;
    let last = &events.last().unwrap()["details"];
    assert_eq!(
        (&last["by_time_only"], &last["note"]),
        (&json!(true), &json!("looked it up"))
    );
    assert_eq!(witness.asked("a"), 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_is_not_ones_own_or_makes_no_sense_is_refused() {
    let witness = Witness::start().await;
    let tool = witness.tool("charge", "once") + "timeout: 300ms\n";
    let fleet = Fleet::start(Spec::with([tool])).await;
    witness.always("a", Reply::DoneThenHang);
    let submission = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let call = submission.tenant("acme").wait().await.call_id();
    let body = settlement(call, "applied", &json!({}));
    refused(&fleet.ask(SETTLE, &body).await, "not_found", "404");
    let foreign = fleet.ask(CANCEL, &json!({"call_id": call})).await;
    let unknown = fleet
        .ask(CANCEL, &json!({"call_id": CallId::generate()}))
        .await;
    refused(&foreign, "not_found", "404");
    assert_eq!(foreign.bytes, unknown.bytes);
    for (more, code) in [
        (json!({"note": " "}), "invalid_arguments"),
        (json!({"actor": ""}), "invalid_arguments"),
        (json!({"note": "n".repeat(2001)}), "invalid_arguments"),
        (json!({"force": true}), "invalid_arguments"),
        (
            json!({"outcome": "not_applied", "result": 1}),
            "invalid_arguments",
        ),
        (json!({"call_id": "x"}), "invalid_id"),
        (json!({"result": "\0"}), "nul_not_allowed"),
    ] {
        let body = settlement(call, "applied", &more);
        let subject = "toolfleet.v1.acme.admin.settle";
        refused(&fleet.ask(subject, &body).await, code, "400");
    }
    let long = json!({"call_id": call, "reason": "r".repeat(2001)});
    refused(&fleet.ask(CANCEL, &long).await, "invalid_arguments", "400");
    let in_doubt = fleet
        .ask("toolfleet.v1.acme.cancel", &json!({"call_id": call}))
        .await;
    assert_eq!(
        *in_doubt,
        json!({"call_id": call, "state": "in_doubt", "result": "in_doubt"})
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_is_taken_back_before_it_runs_never_runs_and_its_waiters_know_at_once() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("charge", "once")]).dispatchers(2);
    let mut fleet = Fleet::start(spec.workers(0, &[])).await;
    let submission = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let call = submission.clone().asynchronous().await.call_id();
    let said = format!("toolfleet.done.*.{call}");
    let mut words = fleet.client.subscribe(said).await.unwrap();
    // So many that each dispatcher holds some.
    let waiters = futures_util::future::join_all((0..8).map(|_| submission.clone().wait()));
    let (answers, cancelled) = tokio::join!(waiters, async {
        until_so("callers to wait", async || {
            counter("toolfleet_waiters") >= 1.0
        })
        .await;
        let wish = json!({"call_id": call, "reason": "changed my mind"});
        fleet.ask(CANCEL, &wish).await
    });
    let cancelled_now = json!({"call_id": call, "state": "cancelled", "result": "cancelled"});
    assert_eq!(*cancelled, cancelled_now);
    // Every dispatcher hears the bell and reads the whole answer.
    let word = tokio::time::timeout(LONG, words.next()).await.unwrap();
    assert!(word.unwrap().payload.is_empty());
    for answer in answers {
        assert_eq!(
            (&answer["state"], answer.code(), &answer["effect"]),
            (&json!("cancelled"), "cancelled", &json!("not_applied")),
            "{}",
            *answer
        );
    }
    let again = fleet.ask(CANCEL, &json!({"call_id": call})).await;
    assert_eq!(again["result"], "already_terminal");
    assert_eq!(again["state"], "cancelled");
    fleet.add_worker(&[]).await;
    until_so("the pointer to be gone", async || {
        fleet.pointers().await == Some(0)
    })
    .await;
    assert_eq!(witness.asked("a"), 0);
    let events = fleet.events(call).await;
    assert_eq!(events[1]["details"]["reason"], "changed my mind");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn the_worker_of_a_running_call_hears_that_it_is_to_stop() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    witness.always("a", Reply::DoneWhenReleased);
    let mut bells = fleet.client.subscribe("toolfleet.cancel.*").await.unwrap();
    fleet.client.flush().await.unwrap();
    let submission = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let call = submission.asynchronous().await.call_id();
    witness.until_asked("a", 1).await;
    let wanted = fleet.ask(CANCEL, &json!({"call_id": call})).await;
    assert_eq!(
        *wanted,
        json!({"call_id": call, "state": "running", "result": "cancel_requested"})
    );
    let bell = tokio::time::timeout(LONG, bells.next()).await;
    let bell = bell.unwrap().unwrap();
    let worker = &fleet
        .rows(
            "SELECT worker_id FROM toolfleet.workers WHERE $1 IS NOT NULL",
            call,
        )
        .await[0]["worker_id"];
    assert_eq!(
        bell.subject.as_str(),
        format!("toolfleet.cancel.{}", worker.as_str().unwrap())
    );
    assert_eq!(bell.payload, call.to_string());
    assert_eq!(fleet.call(call).await["cancel_requested"], true);
    witness.release("a");
    until_so("the call to be decided", async || {
        fleet.call(call).await["state"] != "running"
    })
    .await;
    assert_ne!(fleet.call(call).await["state"], "cancelled");
    invariants::hold(&fleet, &witness).await;
}

/// A refusal: the envelope's code, and the number in the service's headers.
fn refused(answer: &Answer, code: &str, number: &str) {
    assert_eq!(
        (&answer["state"], answer.code()),
        (&json!("refused"), code),
        "{}",
        **answer
    );
    let headers = answer.headers.as_ref().unwrap();
    let told = headers.get("Nats-Service-Error-Code").unwrap();
    assert_eq!(told.as_str(), number);
}

#[tokio::test]
async fn an_abandoned_doubt_is_out_of_the_inbox_and_its_key_answers_for_ever() {
    let witness = Witness::start().await;
    let tool = witness.tool("charge", "once") + "timeout: 300ms\n";
    let fleet = Fleet::start(Spec::with([tool]).dispatchers(2)).await;
    witness.always("a", Reply::DoneThenHang);
    let submission = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let doubt = submission.clone().wait().await;
    assert_eq!(doubt["state"], "in_doubt");
    let call = doubt.call_id();

    let body = settlement(call, "abandoned", &json!({}));
    // Its attempt's own time has to be over first.
    let mut settled = fleet.ask(SETTLE, &body).await;
    until_so("its time to be over", async || {
        if settled.code() == "conflict" {
            settled = fleet.ask(SETTLE, &body).await;
        }
        settled.code() != "conflict"
    })
    .await;
    for (field, value) in [
        ("state", "failed"),
        ("outcome", "system_error"),
        ("source", "settled"),
        ("effect", "unknown"),
        ("settled_by", "person"),
    ] {
        assert_eq!(settled[field], value, "{}", *settled);
    }
    assert_eq!(settled["error"]["suggestion"], "do_not_repeat");
    assert_eq!(settled["error"]["details"]["abandoned"], true);
    assert_eq!(
        fleet.count("SELECT count(*) FROM toolfleet.in_doubt").await,
        0
    );
    assert_eq!(
        fleet
            .count("SELECT count(*) FROM toolfleet.abandoned")
            .await,
        1
    );
    assert_eq!(
        fleet
            .count("SELECT count(*) FROM toolfleet.dead_letters")
            .await,
        0
    );

    // Long after the key of any other call would have lapsed.
    for lapse in [
        "ALTER TABLE toolfleet.finished_calls DISABLE TRIGGER insert_only",
        "UPDATE toolfleet.finished_calls SET key_retention_ms = 0, finished_at = finished_at - interval '400 days'",
        "ALTER TABLE toolfleet.finished_calls ENABLE TRIGGER insert_only",
    ] {
        fleet.sql(lapse).await;
    }
    for _ in 0..2 {
        let replay = submission.clone().wait().await;
        assert_eq!(replay["replayed"], true);
        assert_eq!(replay.first_bytes().as_bytes(), settled.bytes);
    }
    let different = fleet
        .ask(SETTLE, &settlement(call, "applied", &json!({})))
        .await;
    assert_eq!(different.code(), "conflict", "{}", *different);
    let again = fleet.ask(SETTLE, &body).await;
    assert_eq!(again.bytes, settled.bytes);
    assert_eq!(witness.applied("a"), 1);
}

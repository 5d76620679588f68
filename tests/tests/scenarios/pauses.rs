//! Pauses: what they cover does not start, everything else goes on, and afterwards all of it runs, each call once.

use std::time::{Duration, Instant};

use fleet::store::{
    PgPool,
    controls::{self, ControlKind, ControlScope, ControlSet, NewControl, Unset, WhichControl},
};
use fleet_history::explain;
use fleet_tests::{
    fleet::{FLEET_WIDE, Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use futures_util::future::join_all;
use serde_json::{Value, json};

const PAUSED: &str = "SELECT count(*) FROM toolfleet.calls WHERE held_why = 'pause'";
const OPEN: &str = "SELECT count(*) FROM toolfleet.open_calls";
const TOOL: ControlScope<'_> = ControlScope {
    tool: Some("charge"),
    queue: None,
    tenant: None,
    pointer: None,
    value: None,
    subject: None,
};

fn pause_of(scope: ControlScope<'_>) -> NewControl<'_> {
    NewControl {
        kind: ControlKind::Pause,
        scope,
        setting: "\"wait\"",
        told: None,
        actor: "ada",
        note: "the bank migrates",
        for_ms: None,
        in_tenant: None,
    }
}

async fn set(pool: &PgPool, control: &NewControl<'_>) {
    let set = controls::set(pool, control).await.unwrap();
    assert!(matches!(set, ControlSet::Set(_)), "{set:?}");
}

async fn resume(fleet: &Fleet, scope: ControlScope<'_>) {
    let unset = Unset {
        which: WhichControl::Scope(ControlKind::Pause, scope),
        actor: "ada",
        note: "done",
        in_tenant: None,
    };
    let was = controls::unset(&fleet.database.pool, &unset).await.unwrap();
    assert!(was.is_some());
    fleet.ring().await;
}

/// Makes this many calls for this effect; their ids are the fleet's accepted ones.
async fn submit(fleet: &Fleet, tool: &str, what: &str, calls: usize) {
    let calls = (0..calls).map(|n| {
        let call = fleet.submit(tool, &json!({"what": what}));
        let key = format!("{tool}-{what}-{n}").replace(' ', "-");
        call.key(&key).asynchronous()
    });
    for answer in join_all(calls).await {
        assert_eq!(answer["state"], "queued", "{}", *answer);
    }
}

async fn until_paused(fleet: &Fleet, calls: i64) {
    let what = format!("{calls} calls to be put aside");
    until_so(&what, async || fleet.count(PAUSED).await == calls).await;
}

async fn until_all_is_done(fleet: &Fleet) {
    until_so("every call to be over", async || {
        fleet.count(OPEN).await == 0
    })
    .await;
}

/// Waits until every dispatcher makes such calls wait, which are not started then.
async fn until_every_dispatcher_knows(fleet: &Fleet) {
    let mut in_a_row = 0;
    until_so("every dispatcher to know of the pause", async || {
        let call = fleet.submit("charge", &json!({"what": "asking"}));
        let key = uuid::Uuid::new_v4().to_string();
        let call = call.key(&key).asynchronous().await.call_id();
        let waits = fleet.call(call).await["held_why"] == "pause";
        in_a_row = if waits { in_a_row + 1 } else { 0 };
        in_a_row == 12
    })
    .await;
}

async fn charging(spec: impl FnOnce(Spec) -> Spec) -> (Fleet, Witness) {
    let witness = Witness::start().await;
    let tools = [witness.tool("charge", "once"), witness.tool("look", "read")];
    let fleet = Fleet::start(spec(Spec::with(tools))).await;
    (fleet, witness)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_holds_on_every_process_with_the_bell_and_without() {
    let (fleet, witness) = charging(|spec| spec.dispatchers(2).workers(2, &[])).await;
    for (what, rings) in [("rung", true), ("not rung", false)] {
        let began = Instant::now();
        set(&fleet.database.pool, &pause_of(TOOL)).await;
        if rings {
            fleet.ring().await;
        }
        until_every_dispatcher_knows(&fleet).await;
        println!("{what}: known after {:?}", began.elapsed());
        assert!(began.elapsed() < 3 * FLEET_WIDE, "{:?}", began.elapsed());
        submit(&fleet, "charge", what, 20).await;
        // Other calls go on beside them.
        let other = fleet.submit("look", &json!({"what": "other"})).wait().await;
        assert_eq!(other["state"], "succeeded", "{}", *other);
        assert_eq!(witness.asked(what), 0);
        resume(&fleet, TOOL).await;
        until_all_is_done(&fleet).await;
        assert_eq!(witness.applied(what), 20);
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_call_that_was_published_is_put_aside_at_the_gate_and_runs_once_afterwards() {
    let (mut fleet, witness) = charging(|spec| spec.workers(0, &[])).await;
    submit(&fleet, "charge", "a", 10).await;
    assert_eq!(fleet.count(PAUSED).await, 0, "they are published");
    set(&fleet.database.pool, &pause_of(TOOL)).await;
    fleet.add_worker(&[]).await;
    fleet.add_worker(&[]).await;
    until_paused(&fleet, 10).await;
    assert_eq!(witness.asked("a"), 0);
    let call = fleet.accepted()[0];
    let row = fleet.call(call).await;
    assert_eq!(
        (&row["state"], &row["attempts"]),
        (&json!("queued"), &json!(0))
    );
    let facts = explain::facts(&fleet.database.pool, call).await.unwrap();
    let why = explain::explain(&facts.unwrap().read().unwrap());
    assert_eq!(why.reason, "paused", "{why:?}");
    assert!(
        why.because.contains("by ada, until somebody ends it"),
        "{why:?}"
    );
    assert!(why.because.ends_with(": the bank migrates"), "{why:?}");
    resume(&fleet, TOOL).await;
    until_all_is_done(&fleet).await;
    assert_eq!((witness.asked("a"), witness.applied("a")), (10, 10));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_pause_survives_that_every_process_starts_anew() {
    let (mut fleet, witness) = charging(|spec| spec).await;
    set(&fleet.database.pool, &pause_of(TOOL)).await;
    until_every_dispatcher_knows(&fleet).await;
    fleet.dispatchers[0].drain().await;
    fleet.workers[0].drain().await;
    fleet.add_dispatcher().await;
    fleet.add_worker(&[]).await;
    submit(&fleet, "charge", "a", 5).await;
    let other = fleet.submit("look", &json!({"what": "other"})).wait().await;
    assert_eq!(other["state"], "succeeded");
    assert_eq!(witness.asked("a"), 0);
    // Nobody who could hand the calls back is there when the pause ends.
    fleet.dispatchers[1].drain().await;
    resume(&fleet, TOOL).await;
    fleet.add_dispatcher().await;
    until_all_is_done(&fleet).await;
    assert_eq!(witness.applied("a"), 5);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_calls_with_the_value_wait() {
    let (mut fleet, witness) = charging(|spec| spec.workers(0, &[])).await;
    submit(&fleet, "charge", "stop", 8).await;
    submit(&fleet, "charge", "go", 8).await;
    let of_stop = ControlScope {
        pointer: Some("/what"),
        value: Some("\"stop\""),
        ..TOOL
    };
    set(&fleet.database.pool, &pause_of(of_stop)).await;
    fleet.ring().await;
    fleet.add_worker(&[]).await;
    // Those that were published, and then new ones.
    until_paused(&fleet, 8).await;
    let new = |what: &str, n: usize| {
        let call = fleet.submit("charge", &json!({"what": what}));
        call.key(&format!("new-{what}-{n}"))
    };
    let stopped = join_all((0..4).map(|n| new("stop", n).asynchronous())).await;
    let gone = join_all((0..4).map(|n| new("go", n).wait())).await;
    assert!(gone.iter().all(|answer| answer["state"] == "succeeded"));
    until_paused(&fleet, 12).await;
    assert!(stopped.iter().all(|answer| answer["state"] == "queued"));
    witness.until_asked("go", 12).await;
    assert_eq!(witness.asked("stop"), 0);
    resume(&fleet, of_stop).await;
    until_all_is_done(&fleet).await;
    assert_eq!((witness.applied("stop"), witness.applied("go")), (12, 12));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_paused_call_is_cancelled_and_expires_as_any_other_that_waits() {
    let (fleet, witness) = charging(|spec| spec).await;
    set(&fleet.database.pool, &pause_of(TOOL)).await;
    until_every_dispatcher_knows(&fleet).await;
    let call = |what: &str| fleet.submit("charge", &json!({"what": what})).key(what);
    let cancelled = call("cancelled").asynchronous().await.call_id();
    let asked = json!({"call_id": cancelled});
    let answer = fleet.ask("toolfleet.v1.default.cancel", &asked).await;
    assert_eq!(answer["result"], "cancelled", "{}", *answer);
    let expired = call("expired")
        .deadline(Duration::from_millis(1_200))
        .wait()
        .await;
    assert_eq!(expired["state"], "expired", "{}", *expired);
    resume(&fleet, TOOL).await;
    until_all_is_done(&fleet).await;
    assert_eq!(witness.asked("cancelled") + witness.asked("expired"), 0);
    assert_eq!(fleet.call(cancelled).await["state"], "cancelled");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_tool_is_in_nobodys_way_and_nothing_is_lost_on_resume() {
    let (mut fleet, witness) = charging(|spec| spec.workers(0, &[])).await;
    // More than the stream takes without a worker: the others are held in the line of their queue.
    submit(&fleet, "look", "first", 64).await;
    submit(&fleet, "charge", "a", 60).await;
    submit(&fleet, "look", "behind", 20).await;
    let held = "SELECT count(*) FROM toolfleet.calls WHERE held AND tool = 'charge'";
    let held = fleet.count(held).await;
    assert!(held > 0);
    set(&fleet.database.pool, &pause_of(TOOL)).await;
    fleet.ring().await;
    // Held ones are moved out of the way; published ones, if any, are put aside at the gate.
    until_paused(&fleet, held).await;
    fleet.add_worker(&["--concurrency", "4"]).await;
    witness.until_asked("behind", 20).await;
    until_so("all others to be over", async || {
        fleet.count(OPEN).await == 60
    })
    .await;
    assert_eq!(witness.asked("a"), 0);
    resume(&fleet, TOOL).await;
    until_all_is_done(&fleet).await;
    assert_eq!(witness.applied("a"), 60);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_refusing_pause_says_when_to_come_again_and_ends_by_itself() {
    let (fleet, witness) = charging(|spec| spec).await;
    let known = fleet
        .submit("charge", &json!({"what": "known"}))
        .key("known");
    assert_eq!(known.clone().wait().await["state"], "succeeded");
    let refuse = NewControl {
        setting: "\"refuse\"",
        told: Some("the bank is closed, tell the user"),
        for_ms: Some(8_000),
        ..pause_of(TOOL)
    };
    set(&fleet.database.pool, &refuse).await;
    fleet.ring().await;
    let call = fleet.submit("charge", &json!({"what": "a"})).key("a");
    let mut refused = None;
    until_so("calls to be refused", async || {
        let probe = fleet.submit("charge", &json!({"what": "probe"}));
        let key = uuid::Uuid::new_v4().to_string();
        // The worker may know of the pause before the dispatcher: then the call waits.
        let answer = probe.key(&key).asynchronous().await;
        let is_refused = answer["state"] == "refused";
        refused = is_refused.then_some(answer);
        is_refused
    })
    .await;
    let refused = refused.unwrap();
    assert_eq!(refused.code(), "tool_paused");
    assert_eq!(refused["outcome"], "system_error");
    assert_eq!(refused["error"]["suggestion"], "retry_later");
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("the bank is closed, tell the user"),
        "{message}"
    );
    assert!(
        !message.contains("migrates"),
        "the note is not told: {message}"
    );
    let wait_ms = refused["error"]["retry_after_ms"].as_u64().unwrap();
    assert!((1..=8_000).contains(&wait_ms), "{wait_ms}");
    // An item of a batch is refused by itself, and a known key is answered.
    let items = json!({"calls": [
        {"tool": "charge", "args": {"what": "b"}, "idempotency_key": "b"},
        {"tool": "look", "args": {"what": "c"}},
    ]});
    let batch = fleet.ask("toolfleet.v1.default.batch", &items).await;
    let codes = [0, 1].map(|n| batch["items"][n]["error"]["code"].clone());
    assert_eq!(codes, [json!("tool_paused"), Value::Null]);
    assert_eq!(known.wait().await["replayed"], true);
    // The key is free still, and the pause is over by itself.
    until_so("the pause to be over", async || {
        call.clone().wait().await["state"] == "succeeded"
    })
    .await;
    assert_eq!(witness.applied("a"), 1);
    until_so("the log to say so", async || {
        fleet
            .count("SELECT count(*) FROM toolfleet.control_log WHERE change = 'expired'")
            .await
            == 1
    })
    .await;
    assert_eq!(
        fleet.count("SELECT count(*) FROM toolfleet.controls").await,
        0
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_waiting_pause_that_ends_by_itself_lets_its_calls_go() {
    let (fleet, witness) = charging(|spec| spec.roles()).await;
    let pause = NewControl {
        for_ms: Some(10_000),
        ..pause_of(ControlScope {
            tenant: Some("acme"),
            ..ControlScope::default()
        })
    };
    set(&fleet.database.pool, &pause).await;
    fleet.ring().await;
    until_so("calls of the tenant to wait", async || {
        let call = fleet.submit("look", &json!({"what": "asking"}));
        let call = call.tenant("acme").asynchronous().await.call_id();
        fleet.call(call).await["held_why"] == "pause"
    })
    .await;
    let call = fleet.submit("charge", &json!({"what": "a"})).key("a");
    let of_acme = call.clone().tenant("acme").asynchronous().await.call_id();
    assert_eq!(call.wait().await["state"], "succeeded", "of another tenant");
    assert_eq!(fleet.call(of_acme).await["held_why"], "pause");
    fleet.until_state(of_acme, "succeeded").await;
    until_all_is_done(&fleet).await;
    assert_eq!(witness.applied("a"), 2);
    invariants::hold(&fleet, &witness).await;
}

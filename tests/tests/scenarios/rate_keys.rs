//! A limit of starts for each value of an argument: a busy value delays no other, and no tenant another.

use std::time::Duration;

use fleet::{
    ids::CallId,
    store::controls::{self, ControlKind, ControlScope, ControlSet, NewControl},
};
use fleet_history::explain;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_within,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(120);
/// The most calls of a batch.
const BATCH: usize = 1_000;

fn by_what(witness: &Witness, limit: &str) -> String {
    let look = witness.tool("look", "read");
    format!("{look}rate_limit: {{{limit}, by: /what}}\n")
}

/// Submits calls for this effect in one batch.
async fn submitted(fleet: &Fleet, tenant: &str, what: &str, calls: usize) -> Vec<CallId> {
    let item = |_| json!({"tool": "look", "args": {"what": what}, "deadline_ms": 600_000});
    let items: Vec<Value> = (0..calls).map(item).collect();
    let subject: &'static str = Box::leak(format!("toolfleet.v1.{tenant}.batch").into_boxed_str());
    let answer = fleet.ask(subject, &json!({"calls": items})).await;
    let items = answer["items"].as_array().unwrap();
    let id = |item: &Value| item["call_id"].as_str().unwrap().parse().unwrap();
    assert!(
        items.iter().all(|item| item["state"] == "queued"),
        "{}",
        *answer
    );
    items.iter().map(id).collect()
}

async fn ran(fleet: &Fleet, tenant: &str, what: &str) {
    let call = fleet
        .submit("look", &json!({ "what": what }))
        .tenant(tenant);
    let answer = call.wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
}

/// Waits until so many calls for this effect are held by the limit.
async fn until_held(fleet: &Fleet, what: &'static str, calls: usize) {
    until_within(PATIENCE, "calls to wait for their limit", async || {
        (held(fleet, what).await == calls).then_some(())
    })
    .await;
}

async fn held(fleet: &Fleet, what: &str) -> usize {
    let sql =
        "SELECT count(*) FROM toolfleet.calls WHERE held_why = 'limit' AND args->>'what' = $1";
    let held: i64 = sqlx::query_scalar(sql)
        .bind(what)
        .fetch_one(&fleet.database.pool)
        .await
        .unwrap();
    usize::try_from(held).unwrap()
}

async fn until_all_is_done(fleet: &Fleet) {
    const OPEN: &str = "SELECT count(*) FROM toolfleet.open_calls";
    until_within(PATIENCE, "everything to have run", async || {
        (fleet.count(OPEN).await == 0).then_some(())
    })
    .await;
}

async fn limit(fleet: &Fleet, calls: u32) {
    let control = NewControl {
        kind: ControlKind::Limit,
        scope: ControlScope {
            subject: Some("look"),
            ..ControlScope::default()
        },
        setting: &json!({"calls": calls, "per_ms": 1000, "burst": calls}).to_string(),
        told: None,
        actor: "test",
        note: "what it bears",
        for_ms: None,
        in_tenant: None,
    };
    let set = controls::replace(&fleet.database.pool, &control).await;
    assert!(matches!(set, Ok(ControlSet::Set(_))), "{set:?}");
}

/// One with a thousand waiting, one with one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_with_a_thousand_waiting_calls_delays_no_other_and_no_other_tenant() {
    let witness = Witness::start().await;
    let look = by_what(&witness, "calls: 2, per: 1s");
    let fleet = Fleet::start(Spec::with([look]).dispatchers(2).workers(2, &[])).await;
    submitted(&fleet, "acme", "busy", BATCH).await;
    witness.until_asked("busy", 1).await;
    ran(&fleet, "acme", "quiet").await;
    let before = witness.asked("busy");
    ran(&fleet, "beta", "busy").await;
    println!("{before} of {BATCH} of the busy value ran before the one of the quiet one");
    assert!(before < BATCH / 4, "{before}");
    assert!(witness.asked("busy") < BATCH / 2);
    assert!(held(&fleet, "busy").await > BATCH / 2);
    assert_eq!(held(&fleet, "quiet").await, 0);
    invariants::hold(&fleet, &witness).await;
}

/// There are as many lines as calls, each with nothing free but one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_values_without_a_start_keep_no_other_from_theirs() {
    const VALUES: usize = 1_200;
    let witness = Witness::start().await;
    let look = by_what(&witness, "calls: 1, per: 1h");
    let fleet = Fleet::start(Spec::with([look]).workers(2, &["--concurrency", "16"])).await;
    for step in (0..VALUES).collect::<Vec<_>>().chunks(BATCH / 2) {
        // The second of each waits for an hour.
        let item = |value: &usize| json!({"tool": "look", "args": {"what": format!("v{value}")}, "deadline_ms": 7_200_000});
        let items: Vec<Value> = step.iter().chain(step).map(item).collect();
        let answer = fleet
            .ask("toolfleet.v1.acme.batch", &json!({"calls": items}))
            .await;
        let items = answer["items"].as_array().unwrap();
        assert!(
            items.iter().all(|item| item["state"] == "queued"),
            "{}",
            *answer
        );
    }
    const LINES: &str =
        "SELECT count(DISTINCT line) FROM toolfleet.calls WHERE held AND line LIKE 'tool/look/%'";
    const RAN: &str = "SELECT count(*) FROM toolfleet.calls WHERE state = 'succeeded'";
    until_within(PATIENCE, "the first of each to have run", async || {
        let (ran, lines) = (fleet.count(RAN).await, fleet.count(LINES).await);
        (ran == 1_200 && lines == 1_200).then_some(())
    })
    .await;
    ran(&fleet, "acme", "last").await;
    ran(&fleet, "beta", "v7").await;
    assert_eq!(fleet.count(LINES).await, 1_200);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_take_from_their_value_and_a_remote_closes_that_one_alone() {
    let witness = Witness::start().await;
    let look = by_what(&witness, "calls: 1, per: 1h, burst: 2")
        + "retry: {max_attempts: 3, base: 1ms, cap: 1ms}\n";
    let fleet = Fleet::start(Spec::with([look]).workers(2, &[])).await;
    // Its second attempt takes the second start of the value.
    witness.first("a", [Reply::Status(503)]);
    ran(&fleet, "acme", "a").await;
    assert_eq!(witness.asked("a"), 2);
    let waits = submitted(&fleet, "acme", "a", 1).await[0];
    until_held(&fleet, "a", 1).await;
    ran(&fleet, "beta", "a").await;
    ran(&fleet, "acme", "b").await;

    // Of two starts one is left, and the remote wants none.
    witness.always("c", Reply::RetryAfter(429, 1_800));
    submitted(&fleet, "acme", "c", 3).await;
    let closed = "SELECT count(*) FROM toolfleet.limits WHERE closed_until > clock_timestamp()";
    until_within(PATIENCE, "the bucket to be closed", async || {
        (fleet.count(closed).await == 1).then_some(())
    })
    .await;
    for (tenant, what) in [("beta", "b"), ("acme", "b"), ("acme", "d")] {
        ran(&fleet, tenant, what).await;
    }
    assert!(witness.asked("c") <= 2, "{}", witness.asked("c"));
    assert_eq!(fleet.count(closed).await, 1);

    let facts = explain::facts(&fleet.database.pool, waits).await;
    let why = explain::explain(&facts.unwrap().unwrap().read().unwrap());
    assert_eq!(why.reason, "rate_limited", "{}", why.because);
    let told = "starts at most 1 in 1h for each value of /what of each tenant, and so for this one of acme; the next start is free at ";
    assert!(why.because.contains(told), "{}", why.because);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_a_value_outlast_a_pause_and_a_restart_and_new_numbers_are_for_all() {
    let witness = Witness::start().await;
    let look = by_what(&witness, "calls: 1, per: 1h");
    let mut fleet = Fleet::start(Spec::with([look]).workers(2, &[])).await;
    for what in ["a", "b"] {
        submitted(&fleet, "acme", what, 4).await;
    }
    until_held(&fleet, "a", 3).await;
    until_held(&fleet, "b", 3).await;
    // Else one that still runs is lost with its worker, and waits with the others.
    let over = "SELECT count(*) FROM toolfleet.finished_calls";
    until_within(PATIENCE, "the first of each to be over", async || {
        (fleet.count(over).await == 2).then_some(())
    })
    .await;
    let lines =
        "SELECT count(DISTINCT line) FROM toolfleet.calls WHERE held AND line LIKE 'tool/look/%'";
    assert_eq!(fleet.count(lines).await, 2);

    let control = |verb: &str| json!({"do": verb, "tool": "look", "actor": "ada", "note": "why"});
    let pause = fleet
        .ask("toolfleet.admin.control", &control("pause"))
        .await;
    assert_eq!(pause["result"], "set", "{}", *pause);
    submitted(&fleet, "acme", "a", 1).await;
    let paused = "SELECT count(*) FROM toolfleet.calls WHERE held_why = 'pause'";
    until_within(PATIENCE, "all to be put aside", async || {
        (fleet.count(paused).await == 7).then_some(())
    })
    .await;
    let resumed = fleet
        .ask("toolfleet.admin.control", &control("resume"))
        .await;
    assert_eq!(resumed["result"], "unset", "{}", *resumed);
    until_held(&fleet, "a", 4).await;
    until_held(&fleet, "b", 3).await;
    assert_eq!(
        fleet.count(lines).await,
        2,
        "each is back in the line of its value"
    );

    for process in fleet.dispatchers.drain(..).chain(fleet.workers.drain(..)) {
        process.kill().await;
    }
    fleet.add_dispatcher().await;
    fleet.add_worker(&[]).await;
    ran(&fleet, "acme", "c").await;
    assert_eq!((held(&fleet, "a").await, held(&fleet, "b").await), (4, 3));
    limit(&fleet, 100).await;
    until_all_is_done(&fleet).await;
    assert_eq!((witness.applied("a"), witness.applied("b")), (5, 4));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_value_goes_back_to_the_tools_line_when_values_have_no_limit_any_more() {
    let witness = Witness::start().await;
    let look = by_what(&witness, "calls: 1, per: 1h");
    let fleet = Fleet::start(Spec::with([look.clone()]).workers(2, &[])).await;
    submitted(&fleet, "acme", "a", 3).await;
    until_held(&fleet, "a", 2).await;
    // Else it would take the tenant's start.
    witness.until_asked("a", 1).await;
    let of_tenant = look.replace("by: /what", "by: tenant");
    fleet
        .apply(&of_tenant.replace("version: 1", "version: 2"))
        .await;
    let lines = "SELECT count(*) FROM toolfleet.calls WHERE held AND line = 'tool/look'";
    until_within(PATIENCE, "them to wait in the tool's line", async || {
        (fleet.count(lines).await == 1).then_some(())
    })
    .await;
    // The tenant's own bucket is a new one, and lets one start.
    witness.until_asked("a", 2).await;
    let none = witness.tool("look", "read");
    fleet.apply(&none.replace("version: 1", "version: 3")).await;
    until_all_is_done(&fleet).await;
    assert_eq!(witness.applied("a"), 3);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_without_a_start_is_refused_at_the_door_and_others_come_in() {
    let witness = Witness::start().await;
    let look = by_what(&witness, "calls: 1, per: 1h") + "on_limit: refuse\n";
    let fleet = Fleet::start(Spec::with([look])).await;
    ran(&fleet, "acme", "a").await;
    let again = fleet.submit("look", &json!({"what": "a"})).tenant("acme");
    let refused = again.wait().await;
    assert_eq!(refused.code(), "rate_limited", "{}", *refused);
    ran(&fleet, "beta", "a").await;
    let item = |what: &str| json!({"tool": "look", "args": {"what": what}});
    let items: Vec<Value> = ["a", "b", "b", "c"].map(item).into();
    let answer = fleet
        .ask("toolfleet.v1.acme.batch", &json!({"calls": items}))
        .await;
    let items = answer["items"].as_array().unwrap();
    let states: Vec<&str> = items
        .iter()
        .map(|item| item["state"].as_str().unwrap())
        .collect();
    assert_eq!(
        states,
        ["refused", "queued", "refused", "queued"],
        "{}",
        *answer
    );
    until_all_is_done(&fleet).await;
    invariants::hold(&fleet, &witness).await;
}

/// With places as well, all values share them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_share_the_places_of_their_tool() {
    let witness = Witness::start().await;
    let look = by_what(&witness, "calls: 1000, per: 1s, burst: 1000") + "concurrency: 2\n";
    let fleet = Fleet::start(Spec::with([look]).workers(2, &["--concurrency", "8"])).await;
    for what in ["a", "b", "c", "d"] {
        witness.always(what, Reply::DoneAfter(Duration::from_millis(20)));
        submitted(&fleet, "acme", what, 10).await;
    }
    until_all_is_done(&fleet).await;
    let applied = ["a", "b", "c", "d"].map(|what| witness.applied(what));
    assert_eq!(applied, [10; 4]);
    invariants::hold(&fleet, &witness).await;
}

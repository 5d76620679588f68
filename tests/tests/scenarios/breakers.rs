//! Breakers: a target that fails is left alone by the whole fleet, probed by as many calls as it says, and used again.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fleet::store::controls::{
    self, ControlKind, ControlScope, ControlSet, NewControl, Unset, WhichControl,
};
use fleet_history::explain;
use fleet_tests::{
    caller::Submission,
    fleet::{Fleet, Spec, counter},
    invariants,
    wait::{until, until_so},
    witness::{Reply, Witness},
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};
use worker::{Effect, Tool, ToolContext, ToolError, Worker, tool::Settings};

const STATE: &str = "SELECT coalesce((SELECT row_to_json(b) FROM toolfleet.breakers b WHERE tool = $1), 'null'::json)";

/// The breaker of a tool as the view has it.
async fn breaker(fleet: &Fleet, tool: &str) -> Value {
    sqlx::query_scalar(STATE)
        .bind(tool)
        .fetch_one(&fleet.database.pool)
        .await
        .unwrap()
}

async fn until_state(fleet: &Fleet, tool: &str, state: &str) -> Value {
    until(
        &format!("the breaker of {tool} to be {state}"),
        async || Some(breaker(fleet, tool).await).filter(|now| now["state"] == state),
    )
    .await
}

/// Makes calls until those of every worker wait.
async fn until_calls_wait(fleet: &Fleet, tool: &str, what: &str) {
    until_so("every worker to put calls aside", async || {
        let calls = (0..6).map(|_| {
            let key = uuid::Uuid::new_v4().to_string();
            fleet
                .submit(tool, &json!({ "what": what }))
                .key(&key)
                .asynchronous()
        });
        let mut waiting = 0;
        for answer in join_all(calls).await {
            let call = answer.call_id();
            let row = until("a call to wait or to run", async || {
                let row = fleet.call(call).await;
                (row["state"] != "queued" || row["held_why"] == "breaker").then_some(row)
            })
            .await;
            waiting += usize::from(row["held_why"] == "breaker");
        }
        // One may be a probe.
        waiting >= 5
    })
    .await;
}

/// A tool at the witness with these lines in its manifest; a failed attempt is not repeated.
fn tool(witness: &Witness, name: &str, effect: &str, lines: &str) -> String {
    let retries = if lines.contains("retry:") {
        ""
    } else {
        "retry: {strategy: none}\n"
    };
    format!("{}{retries}{lines}\n", witness.tool(name, effect))
}

/// Makes this call again and again, at this interval, until it is dropped.
fn load(call: Submission, every: Duration) -> JoinSet<()> {
    let mut load = JoinSet::new();
    load.spawn(async move {
        let mut calls = JoinSet::new();
        let mut ticks = tokio::time::interval(every);
        loop {
            ticks.tick().await;
            let call = call.clone();
            calls.spawn(async move { drop(call.try_wait().await) });
            while calls.try_join_next().is_some() {}
        }
    });
    load
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_workers_leave_a_failing_target_alone_probe_it_once_at_a_time_and_use_it_again() {
    let witness = Witness::start().await;
    let look = "breaker: {calls: 10, open: 2s, open_max: 2s}";
    let tools = [tool(&witness, "look", "read", look)];
    let mut fleet = Fleet::start(Spec::with(tools).dispatchers(2).workers(3, &[])).await;
    witness.always("x", Reply::Status(503));
    let calling = load(
        fleet.submit("look", &json!({"what": "x"})),
        Duration::from_millis(5),
    );
    witness.until_asked("x", 10).await;
    let threshold = Instant::now();
    until_state(&fleet, "look", "open").await;
    let opened = threshold.elapsed();
    println!(
        "open {opened:?} after the threshold, {} requests",
        witness.asked("x")
    );
    assert!(opened < Duration::from_secs(1), "{opened:?}");
    // Each time it is open, nothing reaches the target once every process knows it; then comes one probe.
    for round in 1..=3 {
        let open = until_state(&fleet, "look", "open").await;
        let generation = open["generation"].as_i64().unwrap();
        tokio::time::sleep(Duration::from_millis(1_000)).await;
        let asked = witness.asked("x");
        let again = until("the next round", async || {
            let now = breaker(&fleet, "look").await;
            (now["generation"].as_i64() >= Some(generation + 2) && now["state"] == "open")
                .then_some(now)
        })
        .await;
        let probes = witness.asked("x") - asked;
        println!(
            "round {round}: {probes} probes, generation {}",
            again["generation"]
        );
        assert_eq!(probes, 1, "round {round}");
    }
    let refused = fleet.submit("look", &json!({"what": "x"})).wait().await;
    assert_eq!(refused.code(), "circuit_open", "{}", *refused);
    assert_eq!(
        (&refused["attempts"], &refused["state"]),
        (&json!(0), &json!("failed"))
    );
    assert!(
        refused["error"]["retry_after_ms"].as_u64() >= Some(1_000),
        "{}",
        *refused
    );
    assert!(counter("toolfleet_breaker_openings_total{tool=\"look\"}") >= 4.0);

    // Everything is killed while it is open: it still is.
    let open = until_state(&fleet, "look", "open").await;
    for worker in fleet.workers.drain(..) {
        worker.kill().await;
    }
    for dispatcher in fleet.dispatchers.drain(..) {
        dispatcher.kill().await;
    }
    drop(calling);
    let still = breaker(&fleet, "look").await;
    assert_eq!(
        (&still["state"], &still["generation"]),
        (&json!("open"), &open["generation"])
    );
    fleet.add_dispatcher().await;
    for _ in 0..3 {
        fleet.add_worker(&[]).await;
    }
    witness.always("x", Reply::Done);
    let calling = load(
        fleet.submit("look", &json!({"what": "x"})),
        Duration::from_millis(5),
    );
    let closed = until_state(&fleet, "look", "closed").await;
    assert_eq!(closed["why"], json!(null));
    until_so("every worker to know that it is closed", async || {
        let calls = (0..6).map(|_| fleet.submit("look", &json!({"what": "y"})).wait());
        let answers = join_all(calls).await;
        answers.iter().all(|answer| answer["state"] == "succeeded")
    })
    .await;
    drop(calling);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_wait_for_their_target_say_why_and_run_once_when_it_works_again() {
    let witness = Witness::start().await;
    let charge = "not_applied_statuses: [503]\nbreaker: {calls: 3, open: 1s, open_max: 1s}";
    let tools = [
        tool(&witness, "charge", "once", charge),
        tool(&witness, "other", "read", ""),
    ];
    let fleet = Fleet::start(Spec::with(tools).dispatchers(2).workers(2, &[])).await;
    witness.always("down", Reply::Status(503));
    for n in 0..3 {
        let key = format!("down-{n}");
        let failed = fleet
            .submit("charge", &json!({"what": "down"}))
            .key(&key)
            .wait()
            .await;
        assert_eq!(failed.code(), "unavailable", "{}", *failed);
    }
    until_state(&fleet, "charge", "open").await;
    until_calls_wait(&fleet, "charge", "down").await;
    // They fail while they probe, so the breaker stays open.
    let keys: Vec<String> = (0..12).map(|n| format!("wait-{n}")).collect();
    let calls = keys.iter().map(|key| {
        fleet
            .submit("charge", &json!({"what": "down"}))
            .key(key)
            .asynchronous()
    });
    let calls: Vec<_> = join_all(calls)
        .await
        .iter()
        .map(|one| one.call_id())
        .collect();
    until_so("calls to wait for the target", async || {
        let waiting = breaker(&fleet, "charge").await["waiting"].as_i64().unwrap();
        waiting >= 8
    })
    .await;
    // Others go on beside them, and one that waits can be taken back.
    let other = fleet
        .submit("other", &json!({"what": "other"}))
        .wait()
        .await;
    assert_eq!(other["state"], "succeeded", "{}", *other);
    let held = until("a call that waits", async || {
        for call in &calls {
            let row = fleet.call(*call).await;
            if row["held_why"] == "breaker" {
                return Some(*call);
            }
        }
        None
    })
    .await;
    let facts = explain::facts(&fleet.database.pool, held).await.unwrap();
    let why = explain::explain(&facts.unwrap().read().unwrap());
    println!("{}: {}; {}", why.reason, why.because, why.next);
    assert_eq!(why.reason, "circuit_open");
    let asked = json!({ "call_id": held });
    let verdict = fleet.ask("toolfleet.v1.default.cancel", &asked).await;
    assert_eq!(verdict["result"], "cancelled", "{}", *verdict);
    witness.always("down", Reply::Done);
    until_state(&fleet, "charge", "closed").await;
    until_so("every call to be over", async || {
        fleet
            .count("SELECT count(*) FROM toolfleet.open_calls")
            .await
            == 0
    })
    .await;
    let ended = async |state: &str| -> i64 {
        let sql = "SELECT count(*) FROM toolfleet.calls WHERE tool = 'charge' AND state = $1";
        let counting = sqlx::query_scalar(sql).bind(state);
        counting.fetch_one(&fleet.database.pool).await.unwrap()
    };
    let (succeeded, failed) = (ended("succeeded").await, ended("failed").await);
    // Those that failed opened it or were probes; each of the others ran once, but for the one that was taken back.
    let all = fleet
        .count("SELECT count(*) FROM toolfleet.calls WHERE tool = 'charge'")
        .await;
    assert_eq!(succeeded + failed, all - 1);
    assert_eq!(witness.applied("down"), usize::try_from(succeeded).unwrap());
    assert_eq!(ended("in_doubt").await, 0);
    let twice = "SELECT count(*) FROM toolfleet.calls WHERE tool = 'charge' AND attempts > 1";
    assert_eq!(fleet.count(twice).await, 0);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_may_have_had_its_effect_waits_although_others_fail() {
    let witness = Witness::start().await;
    let put = "timeout: 500ms\nwhen_open: fail\nbreaker: {calls: 1, open: 3s, open_max: 3s}\nretry: {strategy: fixed, base: 2s}";
    let fleet = Fleet::start(Spec::with([tool(&witness, "put", "idempotent", put)])).await;
    witness.first("x", [Reply::DoneThenHang]);
    let unsure = fleet
        .submit("put", &json!({"what": "x"}))
        .key("unsure")
        .asynchronous()
        .await;
    until_state(&fleet, "put", "open").await;
    // Its worker hears of it a moment later.
    let fresh = until("a call that fails at once", async || {
        let key = uuid::Uuid::new_v4().to_string();
        let fresh = fleet.submit("put", &json!({"what": "y"})).key(&key);
        let fresh = fresh.wait().await;
        (fresh.code() == "circuit_open").then_some(fresh)
    })
    .await;
    assert_eq!(fresh["effect"], "not_applied", "{}", *fresh);
    let call = unsure.call_id();
    until_so("the retry to wait", async || {
        fleet.call(call).await["held_why"] == "breaker"
    })
    .await;
    assert_eq!(fleet.call(call).await["attempts"], 1);
    fleet.until_state(call, "succeeded").await;
    assert_eq!(fleet.call(call).await["attempts"], 2);
    until_state(&fleet, "put", "closed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_that_dies_with_its_worker_is_followed_by_another_round() {
    let witness = Witness::start().await;
    let look = "timeout: 5s\nbreaker: {calls: 2, open: 500ms, open_max: 500ms}\nwhen_open: wait\ndeadline: 2m";
    let mut fleet = Fleet::start(Spec::with([tool(&witness, "look", "read", look)])).await;
    witness.first("x", [Reply::Status(503), Reply::Status(503)]);
    witness.always("x", Reply::Hang);
    for _ in 0..2 {
        let failed = fleet.submit("look", &json!({"what": "x"})).wait().await;
        assert_eq!(failed.code(), "unavailable", "{}", *failed);
    }
    until_state(&fleet, "look", "open").await;
    let waits = until("a call to wait", async || {
        let call = fleet
            .submit("look", &json!({"what": "x"}))
            .asynchronous()
            .await
            .call_id();
        let row = until("it to wait or to run", async || {
            let row = fleet.call(call).await;
            (row["state"] != "queued" || row["held_why"] == "breaker").then_some(row)
        })
        .await;
        (row["held_why"] == "breaker").then_some(call)
    })
    .await;
    let round = until_state(&fleet, "look", "half_open").await;
    witness.always("x", Reply::Done);
    for worker in fleet.workers.drain(..) {
        worker.kill().await;
    }
    fleet.add_worker(&[]).await;
    let began = Instant::now();
    // The round lapses 15 s after its permit was given out.
    let closed = until_state(&fleet, "look", "closed").await;
    println!("closed {:?} after the worker was killed", began.elapsed());
    assert!(closed["generation"].as_i64() >= round["generation"].as_i64().map(|n| n + 2));
    fleet.until_state(waits, "succeeded").await;
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// A target that one machine does not reach.
struct Reach {
    reaches: bool,
    asked: Arc<AtomicBool>,
}

impl Tool for Reach {
    type Args = Nothing;
    type Output = bool;
    const NAME: &'static str = "reach";
    const VERSION: i32 = 1;
    const EFFECT: Effect = Effect::Read;
    const DESCRIPTION: &'static str = "Reaches what it can.";

    fn settings(&self) -> Settings {
        let breaker = json!({"calls": 5, "open": "30s"});
        Settings::default()
            .queue("default")
            .field("breaker", breaker)
    }

    async fn call(&self, _: Nothing, _: ToolContext) -> Result<bool, ToolError> {
        if self.reaches {
            return Ok(true);
        }
        self.asked.store(true, Ordering::Relaxed);
        Err(ToolError::not_started("no route to it"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_bad_worker_of_three_shuts_nothing() {
    let mut fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
    let asked = Arc::new(AtomicBool::new(false));
    for reaches in [true, true, false] {
        let asked = Arc::clone(&asked);
        let own = Worker::builder().tool(Reach { reaches, asked });
        fleet.add_worker_with(own, &[]).await;
    }
    until_so("the tool to be known", async || {
        let tools = fleet.ask("toolfleet.v1.default.tools", &json!({})).await;
        tools.to_string().contains("reach")
    })
    .await;
    let (mut succeeded, mut calls) = (0, 0);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        let answers = join_all((0..20).map(|_| fleet.submit("reach", &json!({})).wait())).await;
        calls += answers.len();
        succeeded += answers
            .iter()
            .filter(|answer| answer["state"] == "succeeded")
            .count();
    }
    let state = breaker(&fleet, "reach").await;
    let attempts = fleet
        .count("SELECT count(*) FROM toolfleet.attempts WHERE outcome = 'not_started'")
        .await;
    println!(
        "{succeeded} of {calls} calls succeeded; {attempts} attempts did not reach it; {state}"
    );
    assert!(asked.load(Ordering::Relaxed), "the bad worker had no call");
    assert_eq!(state["state"], "closed");
    assert!(succeeded * 100 >= calls * 99, "{succeeded} of {calls}");
    // It has learned: without that, a third of the attempts would have failed.
    assert!(
        usize::try_from(attempts).unwrap() < calls / 5,
        "{attempts} of {calls}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_forces_a_breaker_open_and_closed_and_one_that_nobody_meets_is_dropped() {
    let witness = Witness::start().await;
    let look = "breaker: {calls: 2, open: 1h, open_max: 1h}";
    let mut fleet =
        Fleet::start(Spec::with([tool(&witness, "look", "read", look)]).workers(2, &[])).await;
    let scope = ControlScope {
        tool: Some("look"),
        ..ControlScope::default()
    };
    let force = async |setting: &str| {
        let control = NewControl {
            kind: ControlKind::Breaker,
            scope,
            setting,
            told: None,
            actor: "ada",
            note: "why",
            for_ms: None,
            in_tenant: None,
        };
        let set = controls::set(&fleet.database.pool, &control).await.unwrap();
        assert!(matches!(set, ControlSet::Set(_)), "{set:?}");
        fleet.ring().await;
    };
    let unset = async || {
        let unset = Unset {
            which: WhichControl::Scope(ControlKind::Breaker, scope),
            actor: "ada",
            note: "why",
            in_tenant: None,
        };
        controls::unset(&fleet.database.pool, &unset).await.unwrap();
        fleet.ring().await;
    };
    // Every worker has to know: one that has not heard of it counts what fails, and its report may come when nothing is forced any more.
    let until_all = async |code: &str| {
        let (mut in_a_row, mut workers) = (0, BTreeSet::new());
        until_so(code, async || {
            let answer = fleet.submit("look", &json!({"what": "x"})).wait().await;
            if answer["error"]["code"].as_str().unwrap_or("none") != code {
                (in_a_row, workers) = (0, BTreeSet::new());
                return false;
            }
            in_a_row += 1;
            if code == "none" {
                let call = fleet.call(answer.call_id()).await;
                workers.insert(call["worker"].as_str().unwrap().to_owned());
            }
            in_a_row >= 12 && (code != "none" || workers.len() == 2)
        })
        .await;
    };
    until_all("none").await;
    force("\"open\"").await;
    until_all("circuit_open").await;
    unset().await;
    until_all("none").await;
    witness.always("x", Reply::Status(503));
    let calls = (0..30).map(|_| fleet.submit("look", &json!({"what": "x"})).wait());
    join_all(calls).await;
    until_state(&fleet, "look", "open").await;
    until_all("circuit_open").await;
    witness.always("x", Reply::Done);
    force("\"closed\"").await;
    until_all("none").await;
    let forced = breaker(&fleet, "look").await;
    assert_eq!(
        (&forced["state"], &forced["forced"]),
        (&json!("closed"), &json!("closed"))
    );
    // It starts closed, with nothing counted of what failed meanwhile.
    witness.always("x", Reply::Status(503));
    let calls = (0..30).map(|_| fleet.submit("look", &json!({"what": "x"})).wait());
    join_all(calls).await;
    witness.always("x", Reply::Done);
    unset().await;
    until_all("none").await;
    assert_eq!(breaker(&fleet, "look").await["state"], "closed");

    // A dispatcher looks at its start, and every hour.
    let bare = tool(&witness, "look", "read", "").replace("version: 1", "version: 2");
    fleet.apply(&bare).await;
    fleet.add_dispatcher().await;
    until_so("the breaker is dropped", async || {
        breaker(&fleet, "look").await.is_null()
    })
    .await;
}

/// How long a caller waits is its own affair: what it cut off says nothing about the target.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_with_short_deadlines_open_no_breaker() {
    let witness = Witness::start().await;
    let look = "timeout: 10s\nbreaker: {calls: 5}";
    let fleet = Fleet::start(Spec::with([tool(&witness, "look", "read", look)])).await;
    witness.always("slow", Reply::DoneAfter(Duration::from_millis(400)));
    let short = async || {
        let call = fleet.submit("look", &json!({"what": "slow"}));
        call.header("Toolfleet-Deadline-Ms", "150").wait().await
    };
    // On a busy machine the time of most is over before they begin.
    until_so("as many to begin as open it", async || {
        join_all((0..5).map(|_| short())).await;
        witness.asked("slow") >= 5
    })
    .await;
    // The same target answers who waits for it; as many as decide.
    let patient = (0..5).map(|_| fleet.submit("look", &json!({"what": "slow"})).wait());
    let answers = join_all(patient).await;
    assert!(answers.iter().all(|answer| answer["state"] == "succeeded"));
    let counted = "SELECT coalesce(sum(failures), 0)::bigint FROM toolfleet.breaker_windows";
    until_so("the answers to be counted", async || {
        let calls = "SELECT coalesce(sum(calls), 0)::bigint FROM toolfleet.breaker_windows";
        fleet.count(calls).await >= 5
    })
    .await;
    assert_eq!(fleet.count(counted).await, 0);
    assert_ne!(breaker(&fleet, "look").await["state"], "open");
    invariants::hold(&fleet, &witness).await;
}

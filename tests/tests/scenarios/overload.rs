//! More than a dispatcher takes: what it refuses, it refuses before anything is stored; what it has taken, it keeps.

use std::{
    collections::HashMap,
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec},
    invariants,
    wait::{until, until_so},
    witness::{Reply, Witness},
};
use futures_util::{FutureExt, StreamExt};
use serde_json::json;
use sqlx::Executor as _;
use tokio::{sync::Mutex, task::JoinSet};
use tokio_util::sync::CancellationToken;

const OPEN: &str = "SELECT count(*) FROM toolfleet.open_calls";
const CALLS: &str = "SELECT count(*) FROM toolfleet.calls";

fn assert_overloaded(answer: &Answer) {
    assert_eq!(answer.code(), "overloaded", "{}", **answer);
    let error = &answer["error"];
    assert_eq!(error["retryable"], true);
    assert!(error["retry_after_ms"].as_u64().unwrap() > 0);
    assert_eq!(
        (&answer["state"], &answer["effect"]),
        (&json!("refused"), &json!("none"))
    );
}

/// Twelve callers of one tenant who wait: all that it may have of sixteen slots. And how a further one asks.
async fn fill(fleet: &Fleet, witness: &Witness) -> (Submission, JoinSet<Answer>) {
    witness.always("slow", Reply::DoneWhenReleased);
    let greedy = fleet
        .submit("look", &json!({"what": "slow"}))
        .tenant("greedy");
    let mut waiting = JoinSet::new();
    for _ in 0..12 {
        waiting.spawn(greedy.clone().wait());
    }
    witness.until_asked("slow", 12).await;
    (greedy, waiting)
}

async fn all_succeed(waiting: JoinSet<Answer>, witness: &Witness) {
    witness.release("slow");
    let answers = waiting.join_all().await;
    assert!(answers.iter().all(|answer| answer["state"] == "succeeded"));
}

#[tokio::test]
async fn a_tenant_whose_callers_all_wait_does_not_shut_out_another() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("look", "read")]).dispatchers(0);
    let mut fleet = Fleet::start(spec).await;
    fleet.add_dispatcher_with(&["--requests-max", "16"]).await;
    let (greedy, waiting) = fill(&fleet, &witness).await;
    for _ in 0..3 {
        assert_overloaded(&greedy.clone().wait().await);
    }
    let batch = |tenant: &'static str, calls: usize| {
        let call = json!({"tool": "look", "args": {"what": "quick"}});
        let body = json!({"calls": vec![call; calls]});
        let fleet = &fleet;
        async move { fleet.ask(tenant, &body).await }
    };
    assert_overloaded(&batch("toolfleet.v1.greedy.batch", 2).await);
    let batch = batch("toolfleet.v1.late.batch", 4).await;
    assert_eq!(batch["items"].as_array().unwrap().len(), 4, "{}", *batch);
    for _ in 0..20 {
        let late = fleet
            .submit("look", &json!({"what": "quick"}))
            .tenant("late");
        assert_eq!(late.wait().await["state"], "succeeded");
    }
    all_succeed(waiting, &witness).await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_dispatcher_without_slots_answers_only_where_a_caller_could_speak() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("look", "read")]).dispatchers(0);
    let mut fleet = Fleet::start(spec).await;
    fleet.add_dispatcher_with(&["--requests-max", "16"]).await;
    let (slow, waiting) = fill(&fleet, &witness).await;
    let aimed = "toolfleet.control.changed";
    let mut overheard = fleet.client.subscribe(aimed).await.unwrap();
    let subject = "toolfleet.v1.default.call.look";
    let asking = fleet
        .client
        .publish_with_reply(subject, aimed, bytes::Bytes::from("{}"));
    asking.await.unwrap();
    // Answered after the one before it, which nothing was said to.
    assert_overloaded(&slow.clone().wait().await);
    let heard = overheard.next().now_or_never();
    assert!(heard.is_none(), "{heard:?}");
    all_succeed(waiting, &witness).await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn the_statistics_of_nats_count_refusals_by_their_code() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("look", "read")]).dispatchers(0);
    let mut fleet = Fleet::start(spec).await;
    fleet.add_dispatcher_with(&["--requests-max", "16"]).await;
    let call = async || {
        let answers = fleet.ask_dispatchers("$SRV.STATS.toolfleet").await;
        let endpoints = answers[0]["endpoints"].as_array().unwrap().clone();
        let mut endpoints = endpoints.into_iter();
        endpoints.find(|one| one["name"] == "call").unwrap()
    };
    // An answer is counted right after it was sent.
    let counted = async |requests: u64| {
        until("every request to be counted", async || {
            let stats = call().await;
            (stats["num_requests"].as_u64() == Some(requests)).then_some(stats)
        })
        .await
    };
    let before = call().await["num_requests"].as_u64().unwrap();
    for args in [json!({"no": "such"}), json!([1])] {
        let refused = fleet.submit("look", &args).wait().await;
        assert_eq!(refused.code(), "invalid_arguments");
    }
    let unknown = fleet.submit("lok", &json!({})).wait().await;
    assert_eq!(unknown.code(), "unknown_tool");
    let stats = counted(before + 3).await;
    assert_eq!(stats["num_errors"], 3, "{stats}");
    assert_eq!(stats["last_error"], "404:unknown_tool", "{stats}");
    let (slow, waiting) = fill(&fleet, &witness).await;
    for _ in 0..2 {
        assert_overloaded(&slow.clone().wait().await);
    }
    let stats = counted(before + 5).await;
    assert_eq!(stats["num_errors"], 5, "{stats}");
    assert_eq!(stats["last_error"], "503:overloaded", "{stats}");
    all_succeed(waiting, &witness).await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_ledger_that_is_far_behind_gets_no_more_calls() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let call = fleet.submit("look", &json!({"what": "a"}));
    assert_eq!(call.clone().wait().await["state"], "succeeded");
    let mut locking = fleet.database.connect().await;
    locking.execute("BEGIN").await.unwrap();
    let lock = "LOCK TABLE toolfleet.open_calls IN SHARE ROW EXCLUSIVE MODE";
    locking.execute(lock).await.unwrap();
    // One after the other they arrive, and their commits wait for the lock.
    let (refused, slowest) = (
        Arc::new(Mutex::new(HashMap::new())),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut callers = JoinSet::new();
    for caller in 0..40_u64 {
        let (call, refused, slowest) = (call.clone(), Arc::clone(&refused), Arc::clone(&slowest));
        callers.spawn(async move {
            // Spread, so that some request always waits.
            tokio::time::sleep(Duration::from_millis(caller * 100)).await;
            let asked = Instant::now();
            let answer = call.asynchronous().await;
            let waited = usize::try_from(asked.elapsed().as_millis()).unwrap();
            if answer.code() == "overloaded" {
                assert_overloaded(&answer);
                slowest.fetch_max(waited, Ordering::Relaxed);
            }
            *refused
                .lock()
                .await
                .entry(answer.code().to_owned())
                .or_insert(0) += 1;
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    let refused = refused.lock().await.clone();
    let slowest = slowest.load(Ordering::Relaxed);
    println!("while the ledger took nothing: {refused:?}; the slowest refusal took {slowest} ms");
    assert!(refused.contains_key("overloaded"), "{refused:?}");
    locking.execute("ROLLBACK").await.unwrap();
    until_so("calls to be taken again", async || {
        call.clone().asynchronous().await["call_id"].is_string()
    })
    .await;
    until_so("all to be over", async || fleet.count(OPEN).await == 0).await;
    invariants::hold(&fleet, &witness).await;
}

/// What callers were told within a while.
#[derive(Debug, Default)]
struct Told {
    succeeded: usize,
    overloaded: usize,
}

/// So many callers, each with one call after the other, for so long. Who is refused asks again after a pause.
async fn callers(fleet: &Fleet, callers: usize, for_so_long: Duration) -> Told {
    let (succeeded, overloaded) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let stop = CancellationToken::new();
    let mut crowd = JoinSet::new();
    for caller in 0..callers {
        // Three tenants, so that slots are all that is short.
        let call = fleet.submit("look", &json!({"what": "a"}));
        let call = call.tenant(["acme", "beta", "gamma"][caller % 3]);
        let (stop, succeeded, overloaded) = (
            stop.clone(),
            Arc::clone(&succeeded),
            Arc::clone(&overloaded),
        );
        crowd.spawn(async move {
            while !stop.is_cancelled() {
                let answer = call.clone().wait().await;
                if answer["state"] == "succeeded" {
                    succeeded.fetch_add(1, Ordering::Relaxed);
                } else {
                    assert_overloaded(&answer);
                    overloaded.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        });
    }
    tokio::time::sleep(for_so_long).await;
    stop.cancel();
    while let Some(ended) = crowd.join_next().await {
        ended.unwrap();
    }
    Told {
        succeeded: succeeded.load(Ordering::Relaxed),
        overloaded: overloaded.load(Ordering::Relaxed),
    }
}

/// Of this process, which is the whole fleet and all of its callers.
fn resident_mib() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    let pages = pages.split(' ').nth(1).unwrap();
    pages.parse::<usize>().unwrap() * 4096 / (1024 * 1024)
}

#[tokio::test]
async fn three_times_too_many_callers_cost_no_goodput_and_no_accepted_call() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("look", "read")]).dispatchers(0);
    let mut fleet = Fleet::start(spec.workers(1, &["--concurrency", "32"])).await;
    fleet.add_dispatcher_with(&["--requests-max", "64"]).await;
    witness.always("a", Reply::DoneAfter(Duration::from_millis(20)));
    let lasts = Duration::from_secs(3);
    let fitting = callers(&fleet, 45, lasts).await;
    let before = resident_mib();
    let too_many = callers(&fleet, 135, lasts).await;
    let after = resident_mib();
    println!(
        "fitting: {fitting:?}; three times as many: {too_many:?}; {before} MiB, then {after} MiB"
    );
    assert_eq!(fitting.overloaded, 0);
    assert!(too_many.overloaded > 0);
    // Room for a machine that has other things to do.
    assert!(too_many.succeeded * 2 > fitting.succeeded);
    assert!(after < before + 100, "{before} MiB, then {after} MiB");
    until_so("all to be over", async || fleet.count(OPEN).await == 0).await;
    let all = i64::try_from(fitting.succeeded + too_many.succeeded).unwrap();
    assert_eq!(
        fleet.count(CALLS).await,
        all,
        "what was refused was not stored"
    );
    assert_eq!(i64::try_from(witness.applied("a")).unwrap(), all);
    invariants::hold(&fleet, &witness).await;
}

/// A tool whose arguments are small and dear to check: each item is held against three shapes, and fits none as it is sent.
fn dear(tool: &str) -> String {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let shape = |kind: &str| {
        let members: HashMap<_, _> = names.map(|name| (name, json!({"type": kind}))).into();
        json!({"type": "object", "properties": members, "required": names})
    };
    let shapes = ["integer", "number", "boolean"].map(shape);
    let items = json!({"type": "array", "items": {"anyOf": shapes}});
    tool.replace(
        "properties: {what: {type: string}}",
        &format!("properties: {{what: {{type: string}}, items: {items}}}"),
    )
}

#[tokio::test]
async fn requests_that_are_dear_to_check_use_up_the_rate_of_calls() {
    let witness = Witness::start().await;
    let spec = Spec::with([dear(&witness.tool("look", "read"))]).dispatchers(0);
    let mut fleet = Fleet::start(spec).await;
    let rate = ["--tenant-calls-per-second", "400"];
    fleet.add_dispatcher_with(&rate).await;
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let item: HashMap<_, _> = names.map(|name| (name, "5")).into();
    let of = |tenant: &str, items: usize| {
        let args = json!({"what": "quick", "items": vec![&item; items]});
        fleet.submit("look", &args).tenant(tenant).asynchronous()
    };
    let mut refused = None;
    for _ in 0..100 {
        let answer = of("greedy", 200).await;
        if answer.code() == "rate_limited" {
            refused = Some(answer);
            break;
        }
        assert_eq!(answer.code(), "invalid_arguments", "{}", *answer);
    }
    let refused = refused.expect("a hundred requests that keep the thread are more than 400 calls");
    assert!(refused["error"]["retry_after_ms"].as_u64().unwrap() > 0);
    for _ in 0..20 {
        let answer = of("modest", 0).await;
        assert_eq!(answer["state"], "queued", "{}", *answer);
    }
}

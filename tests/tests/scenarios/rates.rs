//! Tools whose attempts start only so often over the whole fleet: what the tool itself sees of it.

use std::time::{Duration, Instant};

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
use futures_util::future::join_all;
use serde_json::{Value, json};

const OPEN: &str = "SELECT count(*) FROM toolfleet.open_calls";
const PATIENCE: Duration = Duration::from_secs(120);
/// How late a start may be that has its time: then it is void.
const LATE: Duration = Duration::from_secs(1);

fn paced(witness: &Witness, name: &str, limit: &str) -> String {
    format!("{}rate_limit: {limit}\n", witness.tool(name, "read"))
}

/// Submits calls of a tool in one batch.
async fn submitted(fleet: &Fleet, tenant: &str, tool: &str, calls: usize) {
    let item = |_| json!({"tool": tool, "args": {"what": tool}, "deadline_ms": 600_000});
    let items: Vec<Value> = (0..calls).map(item).collect();
    let subject: &'static str = Box::leak(format!("toolfleet.v1.{tenant}.batch").into_boxed_str());
    let answer = fleet.ask(subject, &json!({"calls": items})).await;
    let items = answer["items"].as_array().unwrap();
    assert!(
        items.iter().all(|item| item["state"] == "queued"),
        "{}",
        *answer
    );
}

async fn until_all_is_done(fleet: &Fleet) {
    until_within(PATIENCE, "everything to have run", async || {
        (fleet.count(OPEN).await == 0).then_some(())
    })
    .await;
}

/// When requests came, in the order in which they came.
fn times(witness: &Witness) -> Vec<Instant> {
    let mut times: Vec<Instant> =
        witness.look(|seen| seen.requests.iter().map(|request| request.at).collect());
    times.sort();
    times
}

/// The most requests in any window of this length.
fn most_in(times: &[Instant], window: Duration) -> usize {
    let mut first = 0;
    let mut most = 0;
    for (last, at) in times.iter().enumerate() {
        while *at - times[first] > window {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}

/// In every window there are no more than the burst, and one for each step of the window and of the time by which one may be
/// late.
fn assert_rate(times: &[Instant], per_second: u32, burst: usize) -> String {
    let mut found = Vec::new();
    for seconds in [1, 2, 5] {
        let window = Duration::from_secs(seconds);
        let step = Duration::from_secs(1) / per_second;
        let bound =
            burst + usize::try_from((window + LATE).as_micros() / step.as_micros()).unwrap();
        let most = most_in(times, window);
        found.push(format!("{most} of {bound} in {seconds} s"));
        assert!(most <= bound, "{most} in {seconds} s");
    }
    found.join(", ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_workers_keep_one_rate_and_go_on_with_it_when_all_were_killed() {
    const CALLS: usize = 400;
    let witness = Witness::start().await;
    let look = paced(&witness, "look", "{calls: 50, per: 1s}");
    let spec = Spec::with([look])
        .dispatchers(2)
        .workers(3, &["--concurrency", "8"]);
    let mut fleet = Fleet::start(spec).await;
    submitted(&fleet, "default", "look", CALLS).await;
    witness.until_asked("look", 100).await;
    for worker in fleet.workers.drain(..) {
        worker.kill().await;
    }
    // What had a start time must not start at once when they are back.
    let void = "SELECT count(*) FROM toolfleet.open_calls WHERE rate_at > now() - interval '1 s'";
    until_within(PATIENCE, "the start times to be void", async || {
        (fleet.count(void).await == 0).then_some(())
    })
    .await;
    for _ in 0..3 {
        fleet.add_worker(&["--concurrency", "8"]).await;
    }
    until_all_is_done(&fleet).await;
    let times = times(&witness);
    // A killed worker's attempts run again.
    assert!(times.len() >= CALLS, "{}", times.len());
    println!("at most {}", assert_rate(&times, 50, 1));
    let taken = "SELECT starts FROM toolfleet.limits WHERE name = 'look'";
    println!(
        "{} requests, {} start times",
        times.len(),
        fleet.count(taken).await
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_that_share_a_limit_keep_it_together_and_an_operator_sets_it() {
    const CALLS: usize = 60;
    let witness = Witness::start().await;
    let tools = ["one", "two"].map(|name| paced(&witness, name, "{share: bank}"));
    let fleet = Fleet::start(Spec::with(tools).workers(2, &[])).await;
    submitted(&fleet, "default", "one", CALLS).await;
    submitted(&fleet, "default", "two", CALLS).await;
    // Nobody has said how many may start.
    let held = "SELECT count(*) FROM toolfleet.calls WHERE held AND held_why = 'limit'";
    assert_eq!(fleet.count(held).await, i64::try_from(2 * CALLS).unwrap());
    assert_eq!(times(&witness).len(), 0);
    let why = explained(&fleet, "one").await;
    assert!(why.contains("rate_limited: its tool one shares the limit bank, and nobody has said how many may start"), "{why}");
    limit(&fleet, "bank", 40).await;
    until_all_is_done(&fleet).await;
    let times = times(&witness);
    assert_eq!(times.len(), 2 * CALLS);
    println!("at most {}", assert_rate(&times, 40, 1));
    invariants::hold(&fleet, &witness).await;
}

/// Why a call of this tool that is held does not run.
async fn explained(fleet: &Fleet, tool: &str) -> String {
    let one = "SELECT call_id FROM toolfleet.calls WHERE held AND tool = $1 LIMIT 1";
    let call = sqlx::query_scalar(one)
        .bind(tool)
        .fetch_one(&fleet.database.pool)
        .await;
    let facts = explain::facts(&fleet.database.pool, CallId(call.unwrap())).await;
    let why = explain::explain(&facts.unwrap().unwrap().read().unwrap());
    format!("{}: {}", why.reason, why.because)
}

async fn limit(fleet: &Fleet, name: &str, per_second: u32) {
    let control = NewControl {
        kind: ControlKind::Limit,
        scope: ControlScope {
            subject: Some(name),
            ..ControlScope::default()
        },
        setting: &json!({"calls": per_second, "per_ms": 1000, "burst": 1}).to_string(),
        told: None,
        actor: "test",
        note: "what it bears",
        for_ms: None,
        in_tenant: None,
    };
    let set = controls::replace(&fleet.database.pool, &control)
        .await
        .unwrap();
    assert!(matches!(set, ControlSet::Set(_)), "{set:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_with_many_waiting_calls_delays_no_other() {
    const CALLS: usize = 200;
    let witness = Witness::start().await;
    let look = paced(&witness, "look", "{calls: 2, per: 1s, by: tenant}");
    let fleet = Fleet::start(Spec::with([look]).workers(2, &[])).await;
    submitted(&fleet, "acme", "look", CALLS).await;
    witness.until_asked("look", 1).await;
    let answer = fleet
        .submit("look", &json!({"what": "beta"}))
        .tenant("beta")
        .wait()
        .await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    // The first of beta starts at once, whatever waits before it of acme.
    let before = witness.asked("look");
    assert!(
        before < CALLS / 4,
        "{before} of the other tenant ran before it"
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_that_asks_for_a_pause_is_asked_by_who_had_a_start_time_and_by_nobody_else() {
    const CALLS: usize = 60;
    let witness = Witness::start().await;
    let look = paced(&witness, "look", "{calls: 20, per: 1s}");
    let fleet = Fleet::start(Spec::with([look]).workers(2, &[])).await;
    witness.always("look", Reply::RetryAfter(429, 4));
    submitted(&fleet, "default", "look", CALLS).await;
    let closed = "SELECT count(*) FROM toolfleet.limits WHERE closed_until > clock_timestamp()";
    until_within(PATIENCE, "the bucket to be closed", async || {
        (fleet.count(closed).await == 1).then_some(())
    })
    .await;
    let told = witness.asked("look");
    // Start times that were handed out before count for a second.
    let out = "SELECT count(*) FROM toolfleet.open_calls WHERE NOT held AND (state = 'running' OR due_at IS NULL)";
    until_within(
        PATIENCE,
        "those with a start time to have run",
        async || (fleet.count(out).await == 0).then_some(()),
    )
    .await;
    let asked = witness.asked("look");
    println!("{told} had asked when the pause was known, {asked} in all");
    // Half a second's worth, and those that were on their way when the first answer came.
    assert!(asked <= told + 11, "{told} {asked}");
    let spent = "SELECT count(*) FROM toolfleet.open_calls WHERE attempts > 0";
    assert_eq!(fleet.count(spent).await, i64::try_from(asked).unwrap());
    assert_eq!(fleet.count(closed).await, 1, "it lasts");
    witness.always("look", Reply::Done);
    until_all_is_done(&fleet).await;
    assert_eq!(witness.applied("look"), CALLS);
    let failed = "SELECT count(*) FROM toolfleet.calls WHERE state <> 'succeeded'";
    assert_eq!(fleet.count(failed).await, 0);
    println!("at most {}", assert_rate(&times(&witness), 20, 1));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stream_holds_no_more_of_such_a_tool_than_of_any_other() {
    const CALLS: usize = 500;
    let witness = Witness::start().await;
    let look = paced(&witness, "look", "{calls: 10000, per: 1s, burst: 10000}");
    let mut fleet = Fleet::start(Spec::with([look]).workers(0, &[])).await;
    submitted(&fleet, "default", "look", CALLS).await;
    let released = "SELECT count(*) FROM toolfleet.open_calls WHERE NOT held";
    until_within(PATIENCE, "calls to be released", async || {
        (fleet.count(released).await > 0).then_some(())
    })
    .await;
    // All could start at once, and nothing takes them: several looks later there are no more than the stream holds.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let released = fleet.count(released).await;
    let most = i64::try_from(fleet::hold::ALLOWANCE_UNKNOWN).unwrap();
    println!("{released} of {CALLS} released, {most} allowed");
    assert!(released <= 2 * most, "{released}");
    fleet.add_worker(&[]).await;
    until_all_is_done(&fleet).await;
    assert_eq!(witness.applied("look"), CALLS);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_could_not_start_at_once_is_refused_and_a_known_key_is_answered() {
    let witness = Witness::start().await;
    let limit = "{calls: 1, per: 1h, burst: 3}\non_limit: refuse";
    let fleet = Fleet::start(Spec::with([paced(&witness, "look", limit)])).await;
    let args = json!({"what": "look"});
    let submit = async |key: &str| fleet.submit("look", &args).key(key).wait().await;
    let first = submit("a").await;
    assert_eq!(first["state"], "succeeded", "{}", *first);
    // The same key takes no start time.
    for _ in 0..5 {
        let again = submit("a").await;
        assert_eq!(
            (&again["state"], &again["replayed"]),
            (&json!("succeeded"), &json!(true)),
            "{}",
            *again
        );
    }
    // Two are left, for three calls of one batch that are new and one that is known.
    let item = |key: &str| json!({"tool": "look", "args": args, "idempotency_key": key});
    let items: Vec<Value> = ["b", "a", "c", "d"].map(item).into();
    let answer = fleet
        .ask("toolfleet.v1.default.batch", &json!({"calls": items}))
        .await;
    let states: Vec<&str> = answer["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["state"].as_str().unwrap())
        .collect();
    assert_eq!(
        states,
        ["queued", "succeeded", "queued", "refused"],
        "{}",
        *answer
    );
    until_all_is_done(&fleet).await;
    for refused in [submit("d").await, fleet.submit("look", &args).wait().await] {
        assert_eq!(refused.code(), "rate_limited", "{}", *refused);
        let wait = refused["error"]["retry_after_ms"].as_i64().unwrap();
        // Three were used of an hour's step each, and one may start when the first is saved up again.
        assert!((3_000_000..=3_600_000).contains(&wait), "{wait}");
    }
    assert_eq!(submit("b").await["state"], "succeeded");
    assert_eq!(witness.asked("look"), 3);
    let starts = "SELECT starts FROM toolfleet.limits WHERE name = 'look'";
    assert_eq!(fleet.count(starts).await, 3, "each attempt has taken one");
    invariants::hold(&fleet, &witness).await;
}

/// The newest version's limit refuses, whatever version a caller asks for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_of_an_older_version_is_refused_too() {
    let witness = Witness::start().await;
    let old = paced(&witness, "look", "{calls: 1, per: 1h}");
    let fleet = Fleet::start(Spec::with([old.clone()])).await;
    fleet
        .apply(&(old.replace("version: 1", "version: 2") + "on_limit: refuse\n"))
        .await;
    let of_version = |version: &str| {
        let call = fleet.submit("look", &json!({"what": "look"}));
        call.header("Toolfleet-Tool-Version", version)
    };
    // It takes the only start.
    until_within(PATIENCE, "the new version to be known", async || {
        let answer = of_version("2").asynchronous().await;
        (answer["state"] == "queued").then_some(())
    })
    .await;
    for version in ["1", "2", "1"] {
        let refused = of_version(version).asynchronous().await;
        assert_eq!(refused.code(), "rate_limited", "{version}: {}", *refused);
    }
}

/// A call that waits for the end of a pause is in nobody's way, also at a tool that refuses what could not start at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_calls_take_no_start_time_at_the_door() {
    let witness = Witness::start().await;
    let limit = "{calls: 1, per: 1h}\non_limit: refuse";
    let fleet = Fleet::start(Spec::with([paced(&witness, "look", limit)])).await;
    let call = |tenant: &str, what: &str| {
        let call = fleet.submit("look", &json!({ "what": what }));
        call.tenant(tenant).asynchronous()
    };
    // It takes the only start: from now on each call is refused that asks for one.
    let first = call("acme", "first").await;
    assert_eq!(first["state"], "queued", "{}", *first);
    let pause =
        json!({"do": "pause", "tool": "look", "tenant": "eve", "actor": "ada", "note": "why"});
    let pause = fleet.ask("toolfleet.admin.control", &pause).await;
    assert_eq!(pause["result"], "set", "{}", *pause);
    until_within(PATIENCE, "the door to know of it", async || {
        (call("eve", "paused").await["state"] == "queued").then_some(())
    })
    .await;
    let item = json!({"tool": "look", "args": {"what": "paused"}});
    let batch = json!({"calls": [item, item, item]});
    let answer = fleet.ask("toolfleet.v1.eve.batch", &batch).await;
    let items = answer["items"].as_array().unwrap();
    assert!(
        items.iter().all(|item| item["state"] == "queued"),
        "{}",
        *answer
    );
    assert_eq!(call("acme", "second").await.code(), "rate_limited");
    const PAUSED: &str =
        "SELECT count(*) FROM toolfleet.calls WHERE tenant = 'eve' AND held_why = 'pause'";
    const LIMITED: &str =
        "SELECT count(*) FROM toolfleet.calls WHERE tenant = 'eve' AND held_why = 'limit'";
    assert_eq!(fleet.count(PAUSED).await, 4);
    // Afterwards they wait for their start times, of which there is none for an hour.
    let resume =
        json!({"do": "resume", "tool": "look", "tenant": "eve", "actor": "ada", "note": "why"});
    let resumed = fleet.ask("toolfleet.admin.control", &resume).await;
    assert_eq!(resumed["result"], "unset", "{}", *resumed);
    until_within(PATIENCE, "all to wait for the limit", async || {
        (fleet.count(LIMITED).await == 4).then_some(())
    })
    .await;
    assert_eq!(witness.asked("paused"), 0);
}

/// A call that was released into a queue without workers is in nobody's way: not of the other tools that share its limit, and not
/// of the newer version of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_takes_stops_neither_a_shared_limit_nor_the_places_of_its_tool() {
    let witness = Witness::start().await;
    let placed = witness.tool("placed", "read") + "concurrency: 2\n";
    let tools = [
        paced(&witness, "one", "{share: bank}"),
        paced(&witness, "other", "{share: bank}") + "queue: gone\n",
        placed.clone() + "queue: gone\n",
    ];
    let fleet = Fleet::start(Spec::with(tools).workers(1, &["--queues", "default"])).await;
    let set = json!({"do": "limit", "limit": "bank", "calls": 5, "per_ms": 1_000, "actor": "ada", "note": "why"});
    let set = fleet.ask("toolfleet.admin.control", &set).await;
    assert_eq!(set["result"], "set", "{}", *set);
    fleet
        .apply(&placed.replace("version: 1", "version: 2"))
        .await;
    submitted(&fleet, "eve", "other", 20).await;
    let old = (0..20).map(|n| {
        let call = fleet.submit("placed", &json!({"what": format!("old {n}")}));
        call.header("Toolfleet-Tool-Version", "1")
            .tenant("eve")
            .asynchronous()
    });
    join_all(old).await;
    let taken =
        "SELECT count(*) FROM toolfleet.open_calls WHERE queue = 'gone' AND NOT held AND tool = ";
    until_within(
        PATIENCE,
        "calls to be released that nobody takes",
        async || {
            let mut all = true;
            for tool in ["other", "placed"] {
                let count =
                    sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(format!("{taken}'{tool}'")));
                all &= count.fetch_one(&fleet.database.pool).await.unwrap() >= 2;
            }
            all.then_some(())
        },
    )
    .await;
    for tool in ["one", "placed"] {
        let calls = (0..6).map(|n| {
            fleet
                .submit(tool, &json!({"what": format!("{tool} {n}")}))
                .wait()
        });
        for answer in join_all(calls).await {
            assert_eq!(answer["state"], "succeeded", "{tool}: {}", *answer);
        }
    }
}

/// A rate says how many start and not how many run: where tenants have a bound, it holds for such a tool, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_with_slow_calls_of_a_paced_tool_leaves_slots_for_others() {
    let witness = Witness::start().await;
    let tools = [
        paced(&witness, "slow", "{calls: 2000, per: 1s, burst: 200}"),
        witness.tool("quick", "read"),
    ];
    let mut fleet = Fleet::start(
        Spec::with(tools)
            .dispatchers(0)
            .workers(1, &["--concurrency", "16"]),
    )
    .await;
    fleet.add_dispatcher_with(&["--tenant-running", "4"]).await;
    witness.always("slow", Reply::DoneWhenReleased);
    submitted(&fleet, "eve", "slow", 40).await;
    until_within(PATIENCE, "calls to run", async || {
        (witness.asked("slow") >= 4).then_some(())
    })
    .await;
    for n in 0..5 {
        let quick = fleet
            .submit("quick", &json!({"what": format!("quick {n}")}))
            .wait()
            .await;
        assert_eq!(quick["state"], "succeeded", "{}", *quick);
    }
    let under_way = fleet
        .count("SELECT count(*) FROM toolfleet.open_calls WHERE tool = 'slow' AND NOT held")
        .await;
    assert_eq!((under_way, witness.asked("slow")), (4, 4));
    witness.release("slow");
    until_all_is_done(&fleet).await;
    invariants::hold(&fleet, &witness).await;
}

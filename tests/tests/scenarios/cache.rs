//! Kept answers: equal calls are one run, over the whole fleet and whatever happens to the one that runs; an answer counts for a time,
//! for its own tenant, tool, version and arguments, and never for a probe.

mod handed_back;

use std::time::Duration;

use fleet::{
    ids::CallId,
    store::controls::{self, ControlKind, ControlScope, ControlSet, NewControl},
};
use fleet_history::explain::{self, Explanation};
use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec},
    invariants,
    wait::{until, until_so},
    witness::{Reply, Witness},
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

/// A read at the witness whose answers count for five minutes; a failed attempt is not repeated.
fn tool(witness: &Witness, name: &str, lines: &str) -> String {
    let read = witness.tool(name, "read");
    format!("{read}retry: {{strategy: none}}\ncache: {{ttl: 5m}}\n{lines}")
}

fn look(fleet: &Fleet, what: &str) -> Submission {
    fleet.submit("look", &json!({ "what": what }))
}

async fn held_behind(fleet: &Fleet, leader: CallId) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM toolfleet.calls WHERE held AND line = 'after/' || $1")
        .bind(leader.0)
        .fetch_one(&fleet.database.pool)
        .await
        .unwrap()
}

/// Sends equal calls and waits until one of them runs and the others follow it; returns that one, and the answers to come.
async fn flight(fleet: &Fleet, what: &str, calls: usize) -> (CallId, JoinSet<Answer>) {
    let mut answers = JoinSet::new();
    for _ in 0..calls {
        answers.spawn(look(fleet, what).wait());
    }
    let leader = until("one call to run and the others to follow it", async || {
        let leader: Option<uuid::Uuid> = sqlx::query_scalar(
            "SELECT call_id FROM toolfleet.open_calls WHERE tool = 'look' AND state = 'running' LIMIT 1",
        )
        .fetch_optional(&fleet.database.pool)
        .await
        .unwrap();
        let leader = CallId(leader?);
        let others = i64::try_from(calls).unwrap() - 1;
        (held_behind(fleet, leader).await == others).then_some(leader)
    })
    .await;
    (leader, answers)
}

async fn why(fleet: &Fleet, call: CallId) -> Explanation {
    let facts = explain::facts(&fleet.database.pool, call).await.unwrap();
    explain::explain(&facts.expect("it exists").read().unwrap())
}

fn of_source(answers: &[Answer], source: &str) -> usize {
    answers
        .iter()
        .filter(|answer| answer["source"] == source)
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_equal_calls_run_once() {
    let witness = Witness::start().await;
    let spec = Spec::with([tool(&witness, "look", "")]);
    let fleet = Fleet::start(spec.dispatchers(2).workers(3, &[])).await;
    witness.always("x", Reply::DoneWhenReleased);
    let (leader, answers) = flight(&fleet, "x", 50).await;
    let follower: uuid::Uuid =
        sqlx::query_scalar("SELECT call_id FROM toolfleet.calls WHERE held LIMIT 1")
            .fetch_one(&fleet.database.pool)
            .await
            .unwrap();
    let waits = why(&fleet, CallId(follower)).await;
    assert_eq!(waits.reason, "follows", "{waits:?}");
    assert!(waits.because.contains(&leader.to_string()), "{waits:?}");
    witness.release("x");
    let answers = answers.join_all().await;
    assert!(
        answers.iter().all(|answer| answer["state"] == "succeeded"),
        "{answers:?}"
    );
    assert_eq!(
        (of_source(&answers, "live"), of_source(&answers, "cache")),
        (1, 49)
    );
    let results: Vec<&Value> = answers.iter().map(|answer| &answer["result"]).collect();
    assert!(
        results.windows(2).all(|pair| pair[0] == pair[1]),
        "{results:?}"
    );
    assert_eq!(witness.asked("x"), 1);
    // It counts for later ones, too.
    let later = look(&fleet, "x").wait().await;
    assert_eq!(
        (&later["source"], &later["attempts"]),
        (&json!("cache"), &json!(0))
    );
    let ended = why(&fleet, later.call_id()).await;
    let whose = format!("what the equal call {leader} had got");
    assert!(ended.because.contains(&whose), "{ended:?}");
    assert_eq!(witness.asked("x"), 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_fails_is_followed_by_one() {
    let witness = Witness::start().await;
    let spec = Spec::with([tool(&witness, "look", "")]);
    let fleet = Fleet::start(spec.dispatchers(2).workers(3, &[])).await;
    witness.first("x", [Reply::StatusWhenReleased(500)]);
    let (leader, answers) = flight(&fleet, "x", 20).await;
    witness.release("x");
    let answers = answers.join_all().await;
    let failed: Vec<_> = answers
        .iter()
        .filter(|answer| answer["state"] == "failed")
        .collect();
    assert_eq!(failed.len(), 1, "nobody gets its failure: {answers:?}");
    assert_eq!(failed[0].call_id(), leader);
    assert_eq!(
        (of_source(&answers, "live"), of_source(&answers, "cache")),
        (1, 18)
    );
    assert_eq!(witness.asked("x"), 2);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_leader_takes_nobody_with_it() {
    let witness = Witness::start().await;
    let spec = Spec::with([tool(&witness, "look", "")]);
    let fleet = Fleet::start(spec.dispatchers(2).workers(3, &[])).await;
    witness.first("x", [Reply::Hang]);
    let (leader, answers) = flight(&fleet, "x", 10).await;
    let cancelled = fleet
        .ask("toolfleet.v1.default.cancel", &json!({ "call_id": leader }))
        .await;
    assert_eq!(cancelled["call_id"], json!(leader), "{}", *cancelled);
    let answers = answers.join_all().await;
    let taken_back = answers
        .iter()
        .filter(|answer| answer["state"] != "succeeded")
        .count();
    assert_eq!(taken_back, 1, "{answers:?}");
    assert_eq!(
        (of_source(&answers, "live"), of_source(&answers, "cache")),
        (1, 8)
    );
    assert_eq!(witness.asked("x"), 2);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_worker_is_killed_keeps_its_followers() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("look", "read") + "cache: {ttl: 5m}\n"]);
    let mut fleet = Fleet::start(spec.dispatchers(2).workers(3, &[])).await;
    witness.first("x", [Reply::Hang]);
    let (leader, answers) = flight(&fleet, "x", 10).await;
    let name: String = sqlx::query_scalar("SELECT worker FROM toolfleet.calls WHERE call_id = $1")
        .bind(leader.0)
        .fetch_one(&fleet.database.pool)
        .await
        .unwrap();
    let at = fleet
        .workers
        .iter()
        .position(|worker| worker.name() == name);
    fleet
        .workers
        .remove(at.expect("it is one of ours"))
        .kill()
        .await;
    let answers = answers.join_all().await;
    assert!(
        answers.iter().all(|answer| answer["state"] == "succeeded"),
        "{answers:?}"
    );
    assert_eq!(
        (of_source(&answers, "live"), of_source(&answers, "cache")),
        (1, 9)
    );
    // The read runs again, for its own callers and for those that follow it.
    assert_eq!(witness.asked("x"), 2);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_is_cancelled_and_expires_as_any_held_call() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([tool(&witness, "look", "")])).await;
    witness.always("x", Reply::DoneWhenReleased);
    let (leader, answers) = flight(&fleet, "x", 1).await;
    let follows = async |call: CallId| {
        until_so("the call to follow", async || {
            fleet.call(call).await["line"] == format!("after/{leader}")
        })
        .await;
    };
    let taken_back = look(&fleet, "x").key("a").asynchronous().await.call_id();
    follows(taken_back).await;
    let cancelled = fleet
        .ask(
            "toolfleet.v1.default.cancel",
            &json!({ "call_id": taken_back }),
        )
        .await;
    assert_eq!(cancelled["state"], "cancelled", "{}", *cancelled);
    let short = look(&fleet, "x")
        .deadline(Duration::from_millis(1_500))
        .wait()
        .await;
    assert_eq!(
        (&short["state"], short.code()),
        (&json!("expired"), "deadline_exceeded")
    );
    assert_eq!(why(&fleet, short.call_id()).await.reason, "follows");
    witness.release("x");
    assert_eq!(answers.join_all().await[0]["source"], "live");
    assert_eq!(witness.asked("x"), 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_store_is_its_own_run() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([tool(&witness, "look", "")])).await;
    let unkept = || look(&fleet, "x").header("Cache-Control", "max-age=0, No-Store");
    for times in 1..=2 {
        assert_eq!(unkept().wait().await["source"], "live");
        assert_eq!(witness.asked("x"), times);
    }
    // Its answer is not kept: this one runs, and the next is answered.
    for (source, times) in [("live", 3), ("cache", 3)] {
        assert_eq!(look(&fleet, "x").wait().await["source"], source);
        assert_eq!(witness.asked("x"), times);
    }
    assert_eq!(unkept().wait().await["source"], "live");
    // Nor does it follow.
    witness.always("y", Reply::DoneWhenReleased);
    let (_leader, answers) = flight(&fleet, "y", 2).await;
    let mut alone = JoinSet::new();
    alone.spawn(look(&fleet, "y").header("Cache-Control", "no-store").wait());
    witness.until_asked("y", 2).await;
    witness.release("y");
    assert_eq!(alone.join_all().await[0]["source"], "live");
    let answers = answers.join_all().await;
    assert_eq!(
        (of_source(&answers, "live"), of_source(&answers, "cache")),
        (1, 1)
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hit_is_not_charged() {
    let witness = Witness::start().await;
    // A breaker that one failure opens for an hour.
    let lines = "breaker: {calls: 1, failures: 1%, open: 1h, open_max: 1h}\nwhen_open: fail\n";
    let fleet = Fleet::start(Spec::with([tool(&witness, "look", lines)])).await;
    assert_eq!(look(&fleet, "x").wait().await["source"], "live");
    let force = NewControl {
        kind: ControlKind::Breaker,
        scope: ControlScope {
            tool: Some("look"),
            ..ControlScope::default()
        },
        setting: "\"open\"",
        told: None,
        actor: "ada",
        note: "nothing may be sent",
        for_ms: None,
        in_tenant: None,
    };
    let set = controls::set(&fleet.database.pool, &force).await.unwrap();
    assert!(matches!(set, ControlSet::Set(_)), "{set:?}");
    fleet.ring().await;
    // The breaker is not in its way, and does not hear of it.
    for _ in 0..5 {
        let hit = look(&fleet, "x").wait().await;
        assert_eq!(
            (&hit["source"], &hit["attempts"]),
            (&json!("cache"), &json!(0)),
            "{}",
            *hit
        );
    }
    assert_eq!(witness.asked("x"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn int_and_text_are_two_keys() {
    let witness = Witness::start().await;
    let any = "input_schema: {type: object, properties: {what: {type: string}, n: {type: [integer, string]}}, required: [what]}\n";
    let manifest = tool(&witness, "look", "");
    let schema = manifest
        .lines()
        .find(|line| line.starts_with("input_schema"))
        .unwrap();
    let manifest = manifest.replace(&format!("{schema}\n"), any);
    let fleet = Fleet::start(Spec::with([manifest])).await;
    for (n, times) in [
        (json!(1), 1),
        (json!("1"), 2),
        (json!(1), 2),
        (json!("1"), 2),
    ] {
        let args = json!({"what": "x", "n": n});
        fleet.submit("look", &args).wait().await;
        assert_eq!(witness.asked("x"), times, "{n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nested_keys_in_any_order_are_one() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([tool(&witness, "look", "")])).await;
    for (sent, source) in [
        (
            r#"{"what":"x","at":{"a":1,"b":{"c":[1,2],"d":null}}}"#,
            "live",
        ),
        (
            r#"{"at":{"b":{"d":null, "c":[1,2]},"a":1},"what":"x"}"#,
            "cache",
        ),
        (
            r#"{"at":{"b":{"d":null, "c":[2,1]},"a":1},"what":"x"}"#,
            "live",
        ),
    ] {
        let answer = fleet.submit_bytes("look", sent).wait().await;
        assert_eq!(answer["source"], source, "{sent}: {}", *answer);
    }
    assert_eq!(witness.asked("x"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_never_share() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([tool(&witness, "look", "")])).await;
    for (tenant, source) in [
        ("acme", "live"),
        ("beta", "live"),
        ("acme", "cache"),
        ("beta", "cache"),
    ] {
        let answer = look(&fleet, "x").tenant(tenant).wait().await;
        assert_eq!(answer["source"], source, "{tenant}");
    }
    // Nor do they follow each other.
    witness.always("y", Reply::DoneWhenReleased);
    let mut answers = JoinSet::new();
    for tenant in ["acme", "beta"] {
        answers.spawn(look(&fleet, "y").tenant(tenant).wait());
    }
    witness.until_asked("y", 2).await;
    witness.release("y");
    assert_eq!(of_source(&answers.join_all().await, "live"), 2);
    assert_eq!(witness.asked("x"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_version_misses() {
    let witness = Witness::start().await;
    let manifest = tool(&witness, "look", "");
    let fleet = Fleet::start(Spec::with([manifest.clone()])).await;
    assert_eq!(look(&fleet, "x").wait().await["source"], "live");
    fleet
        .apply(&manifest.replace("version: 1", "version: 2"))
        .await;
    until_so("the new version to be called", async || {
        let first = look(&fleet, "x").wait().await;
        let is_new = first["tool_version"] == 2;
        assert_eq!(first["source"], if is_new { "live" } else { "cache" });
        is_new
    })
    .await;
    let again = look(&fleet, "x").wait().await;
    assert_eq!(
        (&again["tool_version"], &again["source"]),
        (&json!(2), &json!("cache"))
    );
    let old = look(&fleet, "x")
        .header("Toolfleet-Tool-Version", "1")
        .wait()
        .await;
    assert_eq!(old["source"], "cache", "{}", *old);
    assert_eq!(witness.asked("x"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_success_is_kept() {
    let witness = Witness::start().await;
    let lines = "output_schema: {type: object, required: [rate]}\n";
    let fleet = Fleet::start(Spec::with([tool(&witness, "look", lines)])).await;
    let good = Reply::Body(json!({"rate": 7}).to_string());
    let bad = Reply::Body(json!({"rat": 7}).to_string());
    witness.first("x", [Reply::Status(500), Reply::No("not today"), bad, good]);
    for (state, outcome) in [
        ("failed", "system_error"),
        ("failed", "business_error"),
        ("failed", "system_error"),
        ("succeeded", "success"),
    ] {
        let answer = look(&fleet, "x").wait().await;
        assert_eq!(
            (&answer["state"], &answer["outcome"]),
            (&json!(state), &json!(outcome)),
            "{}",
            *answer
        );
        assert_ne!(answer["source"], "cache");
    }
    assert_eq!(look(&fleet, "x").wait().await["source"], "cache");
    assert_eq!(witness.asked("x"), 4);
}

/// A charge is in doubt, and what its probe asks is known already: "not found", from before. It asks all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_never_sees_the_cache() {
    let witness = Witness::start().await;
    let mut charge = witness.tool("charge", "once");
    charge.push_str(
        "timeout: 500ms\nprobe:\n  tool: look\n  args: {what: \"find {{ args.what }}\"}\n\
         \x20 applied_when: result.found == true\n  not_applied_when: result.found == false\n",
    );
    let fleet = Fleet::start(Spec::with([tool(&witness, "look", ""), charge])).await;
    witness.first("find c", [Reply::Body(json!({"found": false}).to_string())]);
    witness.always("find c", Reply::Body(json!({"found": true}).to_string()));
    for source in ["live", "cache"] {
        let before = look(&fleet, "find c").wait().await;
        assert_eq!(
            (&before["source"], &before["result"]),
            (&json!(source), &json!({"found": false}))
        );
    }
    witness.always("c", Reply::DoneThenHang);
    let charge = fleet
        .submit("charge", &json!({"what": "c"}))
        .key("c")
        .wait()
        .await;
    assert_eq!(charge["state"], "in_doubt", "{}", *charge);
    let settled = until("the charge to be settled", async || {
        let row = fleet.call(charge.call_id()).await;
        (row["state"] != "in_doubt").then_some(row)
    })
    .await;
    assert_eq!(settled["state"], "succeeded", "{settled}");
    assert_eq!(witness.asked("find c"), 2);
    // Nor is its answer kept.
    let after = look(&fleet, "find c").wait().await;
    assert_eq!(
        (&after["source"], &after["result"]),
        (&json!("cache"), &json!({"found": false}))
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_purges_observes_and_switches_it_off() {
    let witness = Witness::start().await;
    let tools = [tool(&witness, "look", ""), witness.tool("charge", "once")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let control = async |wish: Value| {
        let mut wish = wish;
        wish.as_object_mut().unwrap().extend([
            ("actor".to_owned(), json!("ada")),
            ("note".to_owned(), json!("why")),
        ]);
        fleet.ask("toolfleet.admin.control", &wish).await
    };
    for source in ["live", "cache"] {
        assert_eq!(look(&fleet, "x").wait().await["source"], source);
    }
    let purged = control(json!({"do": "purge", "tool": "look"})).await;
    assert_eq!(
        *purged,
        json!({"result": "purged", "answers": 1, "fetching": 0, "old": 0})
    );
    for source in ["live", "cache"] {
        assert_eq!(look(&fleet, "x").wait().await["source"], source);
    }
    for (mode, asked) in [("off", 3), ("observe", 4)] {
        let set = control(json!({"do": "set", "interceptor": "cache", "mode": mode, "tool": "look", "replace": true})).await;
        assert!(
            set["result"] == "set" || set["result"] == "changed",
            "{}",
            *set
        );
        until_so("the mode to hold", async || {
            look(&fleet, "x").wait().await["source"] == "live"
        })
        .await;
        assert!(witness.asked("x") >= asked, "{mode}");
    }
    let row = until("the counts", async || {
        let rows = "SELECT row_to_json(i) FROM toolfleet.interceptors i WHERE name = 'cache' AND answered >= 2";
        let row: Option<Value> = sqlx::query_scalar(rows).fetch_optional(&fleet.database.pool).await.unwrap();
        row
    })
    .await;
    assert_eq!(row["modes"][0]["mode"], "observe", "{row}");
    // What has no kept answers is named.
    for (tool, why) in [
        ("absent", "no tool absent"),
        (
            "charge",
            "tool charge has no cache: no answer of it is kept",
        ),
    ] {
        let refused = control(json!({"do": "purge", "tool": tool})).await;
        assert_eq!(refused.code(), "invalid_arguments", "{}", *refused);
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(why), "{message}");
    }
    // Of a tenant's operators, only its own.
    let wish = json!({"do": "purge", "tool": "look", "actor": "eve", "note": "mine"});
    let refused = fleet.ask("toolfleet.v1.acme.admin.control", &wish).await;
    assert_eq!(refused.code(), "invalid_arguments", "{}", *refused);
}

/// How long it takes until so many equal calls that come at once are answered by one run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn ten_thousand_equal_calls_are_one_run() {
    const BATCHES: usize = 20;
    const CALLS: usize = 500;
    let witness = Witness::start().await;
    let spec = Spec::with([tool(&witness, "look", "")]);
    let fleet = Fleet::start(spec.dispatchers(2).workers(3, &[])).await;
    witness.always("x", Reply::DoneAfter(Duration::from_millis(500)));
    let batch = json!({ "calls": vec![json!({"tool": "look", "args": {"what": "x"}}); CALLS] });
    let began = Instant::now();
    let asked = (0..BATCHES).map(|_| fleet.ask("toolfleet.v1.default.batch", &batch));
    for answer in join_all(asked).await {
        assert_eq!(answer["items"].as_array().map(Vec::len), Some(CALLS));
    }
    let accepted = began.elapsed();
    until_so("all to be answered", async || {
        fleet
            .count("SELECT count(*) FROM toolfleet.open_calls")
            .await
            == 0
    })
    .await;
    println!(
        "{} equal calls: accepted in {accepted:?}, answered in {:?}, {} runs",
        BATCHES * CALLS,
        began.elapsed(),
        witness.asked("x")
    );
    assert_eq!(witness.asked("x"), 1);
    let answered =
        "SELECT count(*) FROM toolfleet.calls WHERE source = 'cache' AND state = 'succeeded'";
    assert_eq!(
        fleet.count(answered).await,
        i64::try_from(BATCHES * CALLS).unwrap() - 1
    );
}

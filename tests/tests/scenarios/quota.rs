//! How many open calls a tenant may have, over the whole fleet.

use std::time::{Duration, Instant};

use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec, counter},
    invariants,
    wait::{until, until_so},
    witness::{Reply, Witness},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const OPEN: &str = "SELECT count(*) FROM toolfleet.open_calls WHERE tenant = 'acme'";
const KEYS: &str = "SELECT count(*) FROM toolfleet.idempotency_keys WHERE tenant = 'acme'";

/// Dispatchers with a quota of a hundred open calls, and no worker.
async fn with_quota(witness: &Witness, dispatchers: usize) -> Fleet {
    let spec = Spec::with([witness.tool("charge", "once")]).dispatchers(0);
    let mut fleet = Fleet::start(spec.workers(0, &[])).await;
    for _ in 0..dispatchers {
        let flags = ["--tenant-quotas", "acme=100"];
        fleet.add_dispatcher_with(&flags).await;
    }
    fleet
}

fn charge(fleet: &Fleet, key: &str) -> Submission {
    let call = fleet.submit("charge", &json!({"what": "a"}));
    call.tenant("acme").key(key)
}

/// Makes these calls one after the other.
async fn accept(fleet: &Fleet, keys: impl Iterator<Item = usize>) -> Vec<Answer> {
    let mut answers = Vec::new();
    for key in keys {
        let answer = charge(fleet, &key.to_string()).asynchronous().await;
        assert_eq!(answer["state"], "queued", "{key}: {}", *answer);
        answers.push(answer);
    }
    answers
}

fn assert_over_quota(answer: &Answer) {
    assert_eq!(answer.code(), "quota_exceeded", "{}", **answer);
    let error = &answer["error"];
    assert_eq!(error["suggestion"], "retry_later");
    assert_eq!(error["retryable"], true);
    assert!(error["retry_after_ms"].as_u64().unwrap() > 0);
    assert_eq!(
        (&answer["state"], &answer["effect"]),
        (&json!("refused"), &json!("none"))
    );
}

async fn cancel(fleet: &Fleet, call: &Answer) {
    let asked = json!({"call_id": call["call_id"]});
    let answer = fleet.ask("toolfleet.v1.acme.cancel", &asked).await;
    assert_eq!(answer["result"], "cancelled", "{}", *answer);
}

#[tokio::test]
async fn a_tenant_at_its_quota_is_refused_until_one_of_its_calls_ends() {
    let witness = Witness::start().await;
    let fleet = with_quota(&witness, 1).await;
    let calls = accept(&fleet, 0..100).await;
    let over = charge(&fleet, "over").asynchronous().await;
    assert_over_quota(&over);
    let number = over
        .headers
        .as_ref()
        .unwrap()
        .get("Nats-Service-Error-Code");
    assert_eq!(number.unwrap().as_str(), "429");
    assert_eq!(
        (fleet.count(OPEN).await, fleet.count(KEYS).await),
        (100, 100)
    );

    // What is there is answered, and others are not touched.
    let known = charge(&fleet, "7").asynchronous().await;
    assert_eq!(
        (known.call_id(), &known["replayed"]),
        (calls[7].call_id(), &json!(true))
    );
    let of_another = charge(&fleet, "7").tenant("beta").asynchronous().await;
    assert_eq!(of_another["replayed"], false);

    cancel(&fleet, &calls[3]).await;
    let ended = Instant::now();
    let accepted = until("room for one more", async || {
        let answer = charge(&fleet, "over").asynchronous().await;
        answer["call_id"].is_string().then_some(answer)
    });
    assert_eq!(accepted.await["replayed"], false, "its key was free");
    let waited = ended.elapsed();
    println!("one more was accepted {waited:?} after a call had ended");
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    assert_over_quota(&charge(&fleet, "one-more").asynchronous().await);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn each_call_of_a_batch_is_held_against_the_quota_by_itself() {
    let witness = Witness::start().await;
    let fleet = with_quota(&witness, 1).await;
    accept(&fleet, 0..90).await;
    let item = |key: usize| json!({"tool": "charge", "args": {"what": "a"}, "idempotency_key": key.to_string()});
    let calls: Vec<Value> = (85..115).map(item).collect();
    let body = json!({"calls": calls});
    let answer = fleet.ask("toolfleet.v1.acme.batch", &body).await;
    let items = answer["items"].as_array().unwrap();
    let said = |item: &Value| match item["error"]["code"].as_str() {
        Some(code) => code.to_owned(),
        None => format!("replayed: {}", item["replayed"]),
    };
    let said: Vec<String> = items.iter().map(said).collect();
    let count = |word: &str| said.iter().filter(|said| *said == word).count();
    assert_eq!(count("replayed: true"), 5, "{said:?}");
    // Those that turn out to be there have taken room while that was found out.
    let accepted = count("replayed: false");
    assert!((5..=10).contains(&accepted), "{said:?}");
    assert_eq!(count("quota_exceeded"), 25 - accepted, "{said:?}");
    assert_eq!(
        fleet.count(OPEN).await,
        90 + i64::try_from(accepted).unwrap()
    );
    let again = fleet.ask("toolfleet.v1.acme.batch", &body).await;
    let there = again["items"].as_array().unwrap();
    let there = there.iter().filter(|item| item["replayed"] == true).count();
    assert_eq!(there, 5 + accepted);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_crowd_at_one_dispatcher_never_exceeds_the_quota() {
    let witness = Witness::start().await;
    let fleet = with_quota(&witness, 1).await;
    let accepted = crowd(&fleet, 400).await;
    assert_eq!(accepted, 100);
    assert_eq!(fleet.count(OPEN).await, 100);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn two_dispatchers_never_accept_more_than_twice_the_quota() {
    let witness = Witness::start().await;
    let fleet = with_quota(&witness, 2).await;
    let accepted = crowd(&fleet, 600).await;
    println!("{accepted} calls were accepted by two dispatchers under a quota of 100");
    assert!((100..=200).contains(&accepted), "{accepted}");
    // Both have looked by now.
    for key in 0..20 {
        assert_over_quota(&charge(&fleet, &format!("late-{key}")).asynchronous().await);
    }
    invariants::hold(&fleet, &witness).await;
}

/// So many callers at once; how many were accepted.
async fn crowd(fleet: &Fleet, callers: usize) -> usize {
    let mut crowd = JoinSet::new();
    for key in 0..callers {
        crowd.spawn(charge(fleet, &format!("crowd-{key}")).asynchronous());
    }
    let answers = crowd.join_all().await;
    let refused = answers.iter().filter(|answer| answer["state"] == "refused");
    refused.for_each(assert_over_quota);
    answers
        .iter()
        .filter(|answer| answer["call_id"].is_string())
        .count()
}

#[tokio::test]
async fn a_tenant_that_waits_for_each_call_is_never_refused_below_its_quota() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("charge", "once")]).dispatchers(0);
    let mut fleet = Fleet::start(spec).await;
    let flags = ["--tenant-quota", "3"];
    fleet.add_dispatcher_with(&flags).await;
    witness.always("a", Reply::Done);
    let mut callers = JoinSet::new();
    for caller in 0..3 {
        let call = fleet.submit("charge", &json!({"what": "a"}));
        callers.spawn(async move {
            for turn in 0..40 {
                let call = call.clone().key(&format!("{caller}-{turn}"));
                let answer = call.wait().await;
                assert_eq!(answer["state"], "succeeded", "{}", *answer);
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
    assert_eq!(witness.applied("a"), 120);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_dispatcher_that_starts_finds_the_quota_used_up() {
    let witness = Witness::start().await;
    let mut fleet = with_quota(&witness, 1).await;
    accept(&fleet, 0..100).await;
    fleet.dispatchers[0].drain().await;
    fleet
        .add_dispatcher_with(&["--tenant-quotas", "acme=100"])
        .await;
    // Of a tenant that it has never heard of it knows nothing until its first look.
    let late = until("a refusal", async || {
        let key = format!("late-{}", fleet.count(OPEN).await);
        let answer = charge(&fleet, &key).asynchronous().await;
        (answer["state"] == "refused").then_some(answer)
    });
    assert_over_quota(&late.await);
    let open = fleet.count(OPEN).await;
    println!("{open} calls were open when a dispatcher that had just started refused one more");
    assert!(open < 200, "{open}");
    invariants::hold(&fleet, &witness).await;
}

/// Callers who send refused calls at a time.
const REFUSED_AT_ONCE: usize = 50;
/// Times that a meter had to be put right.
const CORRECTED: &str = "toolfleet_corrected_permits_total";

/// `acme` has as many open calls as it may have, in a queue that no worker serves; its further calls would go to the queue
/// that all tests use.
async fn at_its_quota(witness: &Witness, dispatchers: usize) -> Fleet {
    let elsewhere = witness.tool("elsewhere", "once") + "queue: nobody\n";
    let spec = Spec::with([witness.tool("look", "read"), elsewhere]);
    let mut fleet = Fleet::start(spec.dispatchers(0).workers(0, &[])).await;
    for _ in 0..dispatchers {
        let flags = ["--tenant-quotas", "acme=100"];
        fleet.add_dispatcher_with(&flags).await;
    }
    let call = |n: usize| {
        let call = fleet.submit("elsewhere", &json!({"what": "a"}));
        call.tenant("acme").key(&n.to_string())
    };
    // So many refusals in a row that every dispatcher has looked by now.
    let (mut sent, mut refused) = (0, 0);
    until_so("acme to be at its quota", async || {
        sent += 1;
        let answer = call(sent).asynchronous().await;
        refused = if answer["state"] == "refused" {
            refused + 1
        } else {
            0
        };
        refused == 20
    })
    .await;
    fleet
}

/// So many calls of `acme` to the queue of others, one in each request; all are refused.
async fn refused_one_by_one(fleet: &Fleet, calls: usize) {
    let mut callers = JoinSet::new();
    for _ in 0..REFUSED_AT_ONCE {
        let call = fleet.submit("look", &json!({"what": "a"})).tenant("acme");
        callers.spawn(async move {
            for _ in 0..calls / REFUSED_AT_ONCE {
                assert_over_quota(&call.clone().asynchronous().await);
            }
        });
    }
    callers.join_all().await;
}

/// The same in batches of five hundred.
async fn refused_in_batches(fleet: &Fleet, calls: usize) {
    let items = vec![json!({"tool": "look", "args": {"what": "a"}}); 500];
    let body = json!({"calls": items});
    for _ in 0..calls / items.len() {
        let answer = fleet.ask("toolfleet.v1.acme.batch", &body).await;
        let items = answer["items"].as_array().unwrap();
        let refused = items
            .iter()
            .filter(|item| item["error"]["code"] == "quota_exceeded");
        assert_eq!(refused.count(), 500, "{}", items[0]);
    }
}

/// A quick call of another tenant to the same queue succeeds; returns how long that took.
async fn assert_served(fleet: &Fleet) -> Duration {
    let began = Instant::now();
    let quick = fleet.submit("look", &json!({"what": "quick"}));
    let answer = quick.tenant("beta").wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    assert_eq!(counter(CORRECTED), 0.0);
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_refused_over_quota_do_not_stop_their_queue() {
    let witness = Witness::start().await;
    witness.always("quick", Reply::Done);
    let mut fleet = at_its_quota(&witness, 1).await;
    fleet.add_worker(&["--concurrency", "8"]).await;
    refused_one_by_one(&fleet, 3_000).await;
    let waited = assert_served(&fleet).await;
    println!("another tenant was served after {waited:?}");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_refused_over_quota_do_not_stop_their_queue() {
    let witness = Witness::start().await;
    witness.always("quick", Reply::Done);
    let mut fleet = at_its_quota(&witness, 1).await;
    fleet.add_worker(&["--concurrency", "8"]).await;
    refused_in_batches(&fleet, 3_000).await;
    let waited = assert_served(&fleet).await;
    println!("another tenant was served after {waited:?}");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_refusals_at_two_dispatchers_leave_held_calls_their_turn() {
    let witness = Witness::start().await;
    witness.always("quick", Reply::Done);
    let mut fleet = at_its_quota(&witness, 2).await;
    // More than the stream may hold of a queue that no worker serves.
    let items = vec![json!({"tool": "look", "args": {"what": "quick"}}); 400];
    let body = json!({"calls": items});
    let answer = fleet.ask("toolfleet.v1.gamma.batch", &body).await;
    let items = answer["items"].as_array().unwrap();
    assert!(items.iter().all(|item| item["state"] == "queued"));
    let held = "SELECT count(*) FROM toolfleet.open_calls WHERE held";
    assert!(fleet.count(held).await >= 200);

    refused_one_by_one(&fleet, 5_000).await;
    refused_in_batches(&fleet, 5_000).await;
    fleet.add_worker(&["--concurrency", "8"]).await;
    let waited = assert_served(&fleet).await;
    println!("another tenant was served after {waited:?}");
    until_so("the held calls to have run", async || {
        let open = "SELECT count(*) FROM toolfleet.open_calls WHERE tenant = 'gamma'";
        fleet.count(open).await == 0
    })
    .await;
    invariants::hold(&fleet, &witness).await;
}

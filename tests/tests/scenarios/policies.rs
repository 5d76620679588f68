//! Policies: what may run after what happened before in a run or a session.

use std::sync::{Arc, Mutex};

use fleet::{call::State, ids::CallId};
use fleet_history::explain;
use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec, counter},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use worker::{
    Worker,
    interceptor::{About, CallView, Carried, EndedView, Interceptor, Verdict},
};

/// A call of a tool in a run, with a key of its own.
fn call(fleet: &Fleet, tool: &str, what: &str, run: &str) -> Submission {
    let submission = fleet.submit(tool, &json!({ "what": what }));
    let key = uuid::Uuid::new_v4().to_string();
    submission.key(&key).header("Toolfleet-Run", run)
}

fn assert_forbidden(answer: &Answer, says: &str, details: &Value) {
    assert_eq!(answer["state"], "failed", "{}", **answer);
    assert_eq!(answer.code(), "forbidden");
    assert_eq!(answer["attempts"], 0);
    let message = answer["error"]["message"].as_str().unwrap().to_lowercase();
    assert!(message.contains(says), "{message}");
    assert_eq!(&answer["error"]["details"], details);
}

async fn why(fleet: &Fleet, call: CallId) -> String {
    let facts = explain::facts(&fleet.database.pool, call).await.unwrap();
    explain::explain(&facts.unwrap().read().unwrap()).because
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_hundred_calls_of_one_run_at_once_exactly_five_happen() {
    const CALLS: usize = 200;
    let witness = Witness::start().await;
    let charge = witness.tool("charge", "once") + "policy:\n  at_most: {calls: 5, per: run}\n";
    let fleet = Fleet::start(Spec::with([charge]).workers(3, &[])).await;
    let calls = (0..CALLS).map(|n| {
        let what = format!("charge {n}");
        let call = call(&fleet, "charge", &what, "r-1");
        async { call.asynchronous().await.call_id() }
    });
    let calls = join_all(calls.collect::<Vec<_>>()).await;
    let ended = "SELECT count(*) FROM toolfleet.finished_calls";
    until_so("all of them to be over", async || {
        fleet.count(ended).await == CALLS as i64
    })
    .await;
    let happened = witness.look(|seen| seen.requests.iter().filter(|r| r.applied).count());
    assert_eq!(happened, 5);
    let forbidden = "SELECT count(*) FROM toolfleet.finished_calls \
                     WHERE state = 'failed' AND error->>'code' = 'forbidden' AND attempts = 0 AND effect_known = 'not_applied'";
    assert_eq!(fleet.count(forbidden).await, CALLS as i64 - 5);
    let attempts = "SELECT sum(attempts)::bigint FROM toolfleet.finished_calls";
    assert_eq!(fleet.count(attempts).await, 5);
    // Another run has five of its own.
    let other = call(&fleet, "charge", "charge", "r-2").wait().await;
    assert_eq!(other["state"], "succeeded");
    let counted = "toolfleet_intercept_verdicts_total{interceptor=\"policy\",verdict=\"refuse\"}";
    assert!(counter(counted) >= 195.0);
    let mut refused = None;
    for call in &calls {
        if fleet.call(*call).await["state"] == "failed" {
            refused = Some(*call);
        }
    }
    let because = why(&fleet, refused.unwrap()).await;
    assert!(
        because.contains("before an attempt, at the gate of worker")
            && because.contains("harge may be called at most 5 times in a run"),
        "{because}"
    );
    invariants::hold_for(&fleet, &witness, &calls).await;
}

#[tokio::test]
async fn each_rule_refuses_with_its_own_sentence_and_costs_no_attempt() {
    let witness = Witness::start().await;
    let policy =
        "policy: {at_most: {calls: 2, per: session}, after: [confirm], never_after: [secrets]}\n";
    let tools = [
        witness.tool("mail", "once") + policy,
        witness.tool("confirm", "read"),
        witness.tool("secrets", "read"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let mail = async |run: &str, session: &str| {
        let mut call = fleet.submit("mail", &json!({"what": "mail"}));
        for (header, label) in [("Toolfleet-Run", run), ("Toolfleet-Session", session)] {
            if !label.is_empty() {
                call = call.header(header, label);
            }
        }
        call.key(&uuid::Uuid::new_v4().to_string()).wait().await
    };
    for run in ["", "r"] {
        let refused = mail(run, "").await;
        let told = (refused["state"].as_str(), refused.code());
        assert_eq!(told, (Some("refused"), "header_invalid"), "{}", *refused);
        let says = refused["error"]["message"].as_str().unwrap();
        assert!(says.contains("send the header Toolfleet-Session"), "{says}");
    }
    let after = json!({"rule": "after", "tool": "confirm", "per": "run"});
    let says = "only after confirm has succeeded in the same run";
    assert_forbidden(&mail("r", "s").await, says, &after);
    let early = mail("r", "s").await;
    let advice = early["error"]["message"].as_str().unwrap();
    assert!(advice.contains("Call that tool first; "), "{advice}");
    // It has been asked, and has failed.
    witness.first("confirm", [Reply::No("no")]);
    let confirm = async || call(&fleet, "confirm", "confirm", "r").wait().await;
    assert_eq!(confirm().await["state"], "failed");
    assert_forbidden(&mail("r", "s").await, says, &after);
    assert_eq!(confirm().await["state"], "succeeded");
    for _ in 0..2 {
        assert_eq!(mail("r", "s").await["state"], "succeeded");
    }
    let at_most = json!({"rule": "at_most", "calls": 2, "per": "session"});
    let says = "at most 2 times in a session";
    assert_forbidden(&mail("r", "s").await, says, &at_most);
    assert_eq!(mail("r", "s-2").await["state"], "succeeded");
    // The same names of another tenant are others.
    let theirs = call(&fleet, "secrets", "secrets", "r").tenant("other");
    assert_eq!(theirs.wait().await["state"], "succeeded");
    assert_eq!(mail("r", "s-2").await["state"], "succeeded");
    let ours = call(&fleet, "secrets", "secrets", "r").wait().await;
    assert_eq!(ours["state"], "succeeded");
    let never_after = json!({"rule": "never_after", "tool": "secrets"});
    let says = "may not be called any more once secrets has been called";
    assert_forbidden(&mail("r", "s-3").await, says, &never_after);
    assert_eq!(witness.asked("mail"), 4);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn an_older_version_gets_round_no_rule_of_the_newest() {
    let witness = Witness::start().await;
    let mail = witness.tool("mail", "once");
    let fleet = Fleet::start(Spec::with([mail.clone(), witness.tool("secrets", "read")])).await;
    let newer = mail.replace("version: 1", "version: 2") + "policy: {never_after: [secrets]}\n";
    fleet.apply(&newer).await;
    fleet.ring().await;
    let secrets = call(&fleet, "secrets", "secrets", "r").wait().await;
    assert_eq!(secrets["state"], "succeeded");
    let pinned = async |run| {
        let call = call(&fleet, "mail", "mail", run);
        call.header("Toolfleet-Tool-Version", "1").wait().await
    };
    // Each in a run of its own: until the worker knows of the new version, the call runs.
    until_so("the worker to know of the new version", async || {
        pinned("r").await.code() == "forbidden"
    })
    .await;
    assert_eq!(pinned("r-2").await["state"], "succeeded");
    invariants::hold(&fleet, &witness).await;
}

/// An interceptor that thinks about calls of the tool `mail` until it is let go on.
#[derive(Clone)]
struct Thinks {
    asked: Arc<Semaphore>,
    goes_on: Arc<Semaphore>,
    heard: Arc<Mutex<Vec<EndedView>>>,
}

impl Interceptor for Thinks {
    fn about(&self) -> About {
        About::new("thinks").budget(About::BUDGET_MAX)
    }

    async fn before(&self, call: &CallView<'_>, _: &mut Carried) -> Verdict {
        if call.tool.as_str() == "mail" {
            self.asked.add_permits(1);
            self.goes_on.acquire().await.unwrap().forget();
        }
        Verdict::Continue
    }

    async fn ended(&self, call: &CallView<'_>, _: &mut Carried, ended: &EndedView) {
        if call.tool.as_str() == "mail" {
            self.heard.lock().unwrap().push(*ended);
        }
    }
}

#[tokio::test]
async fn what_happens_between_the_gate_and_the_claim_is_not_missed() {
    let witness = Witness::start().await;
    let thinks = Thinks {
        asked: Arc::new(Semaphore::new(0)),
        goes_on: Arc::new(Semaphore::new(0)),
        heard: Arc::default(),
    };
    let tools = [
        witness.tool("mail", "once") + "policy: {never_after: [secrets]}\n",
        witness.tool("secrets", "read"),
    ];
    let mut fleet = Fleet::start(Spec::with(tools).workers(0, &[])).await;
    let builder = Worker::builder().interceptor(thinks.clone());
    fleet.add_worker_with(builder, &[]).await;
    let mail = call(&fleet, "mail", "mail", "r").asynchronous().await;
    // It is past the policy.
    thinks.asked.acquire().await.unwrap().forget();
    let secrets = call(&fleet, "secrets", "secrets", "r").wait().await;
    assert_eq!(secrets["state"], "succeeded");
    thinks.goes_on.add_permits(1);
    let ended = fleet.until_state(mail.call_id(), "failed").await;
    assert_eq!(
        (&ended["error"]["code"], &ended["attempts"]),
        (&json!("forbidden"), &json!(0)),
        "{ended}"
    );
    assert_eq!(witness.asked("mail"), 0);
    until_so("its end to be heard", async || {
        *thinks.heard.lock().unwrap() == [EndedView::Refused(State::Failed)]
    })
    .await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_retry_whose_rule_is_broken_meanwhile_is_in_doubt() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("mail", "idempotent")
            + "timeout: 1s\nretry: {strategy: fixed, base: 1ms, cap: 1ms}\npolicy: {never_after: [secrets]}\n",
        witness.tool("secrets", "read"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.first("mail", [Reply::DoneThenHang]);
    let mail = call(&fleet, "mail", "mail", "r").asynchronous().await;
    witness.until_asked("mail", 1).await;
    let secrets = call(&fleet, "secrets", "secrets", "r").wait().await;
    assert_eq!(secrets["state"], "succeeded");
    let doubt = fleet.until_state(mail.call_id(), "in_doubt").await;
    assert_eq!(doubt["attempts"], 1, "{doubt}");
    let why = doubt["error"].to_string();
    assert!(
        why.contains("any more once secrets has been called"),
        "{why}"
    );
    assert_eq!(witness.asked("mail"), 1);
}

/// What is known not to have happened is not left to a person.
#[tokio::test]
async fn a_retry_whose_rule_is_broken_after_an_attempt_that_did_nothing_has_failed() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("mail", "idempotent")
            + "not_applied_statuses: [429]\nretry: {strategy: fixed, base: 1ms, cap: 1ms}\npolicy: {never_after: [secrets]}\n",
        witness.tool("secrets", "read"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.first("mail", [Reply::StatusWhenReleased(429)]);
    let mail = call(&fleet, "mail", "mail", "r").asynchronous().await;
    witness.until_asked("mail", 1).await;
    let secrets = call(&fleet, "secrets", "secrets", "r").wait().await;
    assert_eq!(secrets["state"], "succeeded");
    witness.release("mail");
    let told = fleet.until_state(mail.call_id(), "failed").await;
    assert_eq!(told["error"]["details"]["rule"], "never_after", "{told}");
    assert_eq!(
        (&told["effect_known"], &told["attempts"]),
        (&json!("not_applied"), &json!(1))
    );
    assert_eq!(witness.asked("mail"), 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_call_that_came_too_early_often_runs_all_the_same_once_its_time_has_come() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("mail", "once") + "policy: {after: [confirm]}\n",
        witness.tool("confirm", "read"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    // More often than equal calls may fail.
    for _ in 0..12 {
        let early = call(&fleet, "mail", "mail", "r").wait().await;
        assert_eq!(early.code(), "forbidden", "{}", *early);
    }
    let confirmed = call(&fleet, "confirm", "confirm", "r").wait().await;
    assert_eq!(confirmed["state"], "succeeded");
    let mailed = call(&fleet, "mail", "mail", "r").wait().await;
    assert_eq!(mailed["state"], "succeeded", "{}", *mailed);
    invariants::hold(&fleet, &witness).await;
}

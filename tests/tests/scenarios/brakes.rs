//! Modes of the engine's own brakes: what an operator lets only observe stops nothing, and what is switched off is not asked.

use fleet::ids::CallId;
use fleet_history::explain;
use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec, counter},
    invariants,
    wait::{until, until_so},
    witness::{Reply, Witness},
};
use futures_util::future::join_all;
use serde_json::{Value, json};

const ALL: &str = "toolfleet.admin.control";

/// Asks for a change of controls in the fleet's own name.
async fn asked(fleet: &Fleet, wish: Value) -> Answer {
    let mut wish = wish;
    let who = json!({"actor": "ada", "note": "why"});
    let who = who.as_object().unwrap().clone();
    wish.as_object_mut().unwrap().extend(who);
    fleet.ask(ALL, &wish).await
}

/// Sets a mode of a brake, for all calls. Returns the control's id.
async fn set(fleet: &Fleet, brake: &str, mode: &str) -> Value {
    let set = asked(
        fleet,
        json!({"do": "set", "interceptor": brake, "mode": mode}),
    )
    .await;
    assert_eq!(set["result"], "set", "{}", *set);
    set["control"]["control_id"].clone()
}

async fn unset(fleet: &Fleet, control: Value) {
    let unset = asked(fleet, json!({"do": "unset", "control_id": control})).await;
    assert_eq!(unset["result"], "unset", "{}", *unset);
}

fn observed(tool: &str, brake: &str) -> f64 {
    counter(&format!(
        "toolfleet_observed_brakes_total{{interceptor=\"{brake}\",tool=\"{tool}\"}}"
    ))
}

async fn charge(fleet: &Fleet, what: &str) -> CallId {
    let key = uuid::Uuid::new_v4().to_string();
    let call = fleet.submit("charge", &json!({ "what": what }));
    call.key(&key).asynchronous().await.call_id()
}

fn look(fleet: &Fleet, what: &str) -> Submission {
    fleet.submit("look", &json!({ "what": what }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_limit_observes_or_is_off_for_calls_that_wait_and_calls_that_are_refused() {
    let witness = Witness::start().await;
    let hourly = "rate_limit: {calls: 1, per: 1h}\n";
    let tools = [
        witness.tool("look", "read") + hourly,
        witness.tool("peek", "read") + hourly + "on_limit: refuse\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let first = join_all([
        look(&fleet, "a").wait(),
        fleet.submit("peek", &json!({"what": "a"})).wait(),
    ])
    .await;
    assert!(first.iter().all(|answer| answer["state"] == "succeeded"));
    // The next one of the first tool waits for an hour, the next one of the other is refused.
    let waiting = look(&fleet, "b").asynchronous().await.call_id();
    until_so("a call to wait for its start", async || {
        fleet.call(waiting).await["held_why"] == "limit"
    })
    .await;
    let peek = || fleet.submit("peek", &json!({"what": "b"})).wait();
    assert_eq!(peek().await.code(), "rate_limited");

    let control = set(&fleet, "rate_limit", "observe").await;
    until_so("the call that waits to run", async || {
        fleet.call(waiting).await["state"] == "succeeded"
    })
    .await;
    until_so("calls of the other tool to come in", async || {
        peek().await["state"] == "succeeded"
    })
    .await;
    assert!(observed("look", "rate_limit") >= 1.0);
    assert!(observed("peek", "rate_limit") >= 1.0);
    unset(&fleet, control).await;
    until_so("the limit to hold again", async || {
        peek().await.code() == "rate_limited"
    })
    .await;

    let control = set(&fleet, "rate_limit", "off").await;
    until_so("calls to start at once", async || {
        let answers = join_all([look(&fleet, "c").wait(), peek()]).await;
        answers.iter().all(|answer| answer["state"] == "succeeded")
    })
    .await;
    let given = "SELECT sum(given)::bigint FROM toolfleet.rate_buckets";
    let before = fleet.count(given).await;
    let answers = join_all((0..5).map(|_| look(&fleet, "d").wait())).await;
    assert!(answers.iter().all(|answer| answer["state"] == "succeeded"));
    assert_eq!(fleet.count(given).await, before, "no start time was taken");
    unset(&fleet, control).await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_breaker_observes_and_lets_everything_pass_that_it_would_have_stopped() {
    let witness = Witness::start().await;
    let once = "retry: {strategy: none}\n";
    let tools = [
        witness.tool("look", "read") + once + "breaker: {calls: 3, open: 20m, open_max: 20m}\n",
        witness.tool("charge", "once")
            + once
            + "not_applied_statuses: [503]\nbreaker: {calls: 3, open: 20m, open_max: 20m}\n",
    ];
    let mut fleet = Fleet::start(Spec::with(tools).dispatchers(2).workers(2, &[])).await;
    witness.always("down", Reply::Status(503));
    until_so("the breaker to open", async || {
        look(&fleet, "down").wait().await.code() == "circuit_open"
    })
    .await;
    until_so("the other one to let calls wait", async || {
        let call = charge(&fleet, "down").await;
        until_so("it to fail or to wait", async || {
            let row = fleet.call(call).await;
            row["state"] == "failed" || row["held_why"] == "breaker"
        })
        .await;
        fleet.call(call).await["held_why"] == "breaker"
    })
    .await;
    // Without a worker, it is the door that lets them wait.
    for worker in fleet.workers.drain(..) {
        worker.kill().await;
    }
    until_so("the door to let calls wait", async || {
        let call = charge(&fleet, "up").await;
        fleet.call(call).await["held_why"] == "breaker"
    })
    .await;
    fleet.add_worker(&[]).await;

    let control = set(&fleet, "breaker", "observe").await;
    until_so("calls to reach a target that works again", async || {
        let answers = join_all((0..4).map(|_| look(&fleet, "up").wait())).await;
        answers.iter().all(|answer| answer["state"] == "succeeded")
    })
    .await;
    until_so("nothing to wait for the other", async || {
        fleet
            .count("SELECT count(*) FROM toolfleet.open_calls WHERE line LIKE 'breaker/%' AND held")
            .await
            == 0
    })
    .await;
    assert!(observed("look", "breaker") >= 1.0);
    let state = "SELECT count(*) FROM toolfleet.breakers WHERE state = 'open'";
    assert_eq!(fleet.count(state).await, 2, "its row says what it would do");
    unset(&fleet, control).await;
    until_so("it to stop calls again", async || {
        look(&fleet, "up").wait().await.code() == "circuit_open"
    })
    .await;
    let control = set(&fleet, "breaker", "off").await;
    until_so("it to be gone", async || {
        look(&fleet, "up").wait().await["state"] == "succeeded"
    })
    .await;
    unset(&fleet, control).await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_budget_and_the_repeat_cap_observe_or_are_off() {
    const CALLS: usize = 40;
    let witness = Witness::start().await;
    let retry = "retry: {max_attempts: 2, strategy: fixed, base: 1ms, cap: 1ms, budget: 0.0}\nrepeat_cap: 2\n";
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read") + retry])).await;
    witness.always("down", Reply::Status(503));
    // Ten tokens to begin with; then each call has one attempt.
    let burn = async || join_all((0..CALLS).map(|_| look(&fleet, "down").wait())).await;
    burn().await;
    let asked = witness.asked("down");
    burn().await;
    assert_eq!(witness.asked("down") - asked, CALLS);
    for mode in ["observe", "off"] {
        let before = observed("look", "retry_budget");
        let control = set(&fleet, "retry_budget", mode).await;
        until_so("the worker to know", async || {
            let asked = witness.asked("down");
            burn().await;
            witness.asked("down") - asked == 2 * CALLS
        })
        .await;
        assert_eq!(
            observed("look", "retry_budget") > before,
            mode == "observe",
            "{mode}"
        );
        unset(&fleet, control).await;
        until_so("the budget to hold again", async || {
            let asked = witness.asked("down");
            burn().await;
            witness.asked("down") - asked == CALLS
        })
        .await;
    }

    let again = || look(&fleet, "down").header("Toolfleet-Run", "r-1").wait();
    until_so("the cap to be reached", async || {
        again().await.code() == "repeated_failure"
    })
    .await;
    for mode in ["observe", "off"] {
        let before = observed("look", "repeat_cap");
        let control = set(&fleet, "repeat_cap", mode).await;
        until_so("the door to know", async || {
            again().await.code() == "unavailable"
        })
        .await;
        assert_eq!(
            observed("look", "repeat_cap") > before,
            mode == "observe",
            "{mode}"
        );
        unset(&fleet, control).await;
        until_so("the cap to hold again", async || {
            again().await.code() == "repeated_failure"
        })
        .await;
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn breakers_and_limits_are_set_on_the_fleets_subject_and_no_tenant_takes_a_brake_away() {
    let witness = Witness::start().await;
    let brakes = "rate_limit: {calls: 5, per: 1s}\nbreaker: {}\n";
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read") + brakes]).roles()).await;
    let limit = json!({"do": "limit", "limit": "look", "calls": 100, "per_ms": 1_000});
    let set = asked(&fleet, limit.clone()).await;
    assert_eq!(
        set["control"]["setting"],
        json!({"calls": 100, "per_ms": 1_000}),
        "{}",
        *set
    );
    assert_eq!(asked(&fleet, limit).await["result"], "already_set");
    let more = json!({"do": "limit", "limit": "look", "calls": 7, "per_ms": 1_000, "burst": 3});
    let set = asked(&fleet, more).await;
    assert_eq!(
        set["result"], "changed",
        "new numbers take the place of the old ones: {}",
        *set
    );
    let force = |position: &str| json!({"do": "breaker", "tool": "look", "position": position});
    let open = asked(&fleet, force("open")).await;
    assert_eq!(
        (&open["result"], &open["control"]["setting"]),
        (&json!("set"), &json!("open"))
    );
    assert_eq!(asked(&fleet, force("closed")).await["result"], "changed");
    let open = asked(&fleet, force("open")).await;
    until_so("calls to be stopped", async || {
        look(&fleet, "a").wait().await.code() == "circuit_open"
    })
    .await;
    unset(&fleet, open["control"]["control_id"].clone()).await;
    until_so("calls to go on", async || {
        look(&fleet, "a").wait().await["state"] == "succeeded"
    })
    .await;

    for (wish, why) in [
        (
            json!({"do": "limit", "limit": "absent", "calls": 1, "per_ms": 1_000}),
            "must name a limit",
        ),
        (
            json!({"do": "limit", "limit": "look", "calls": 0, "per_ms": 1_000}),
            "calls must be",
        ),
        (
            json!({"do": "breaker", "tool": "absent", "position": "open"}),
            "there is no such tool",
        ),
        (
            json!({"do": "set", "interceptor": "pause", "mode": "off"}),
            "pause is mandatory",
        ),
        (
            json!({"do": "set", "interceptor": "policy", "mode": "observe"}),
            "policy is mandatory",
        ),
        (
            json!({"do": "set", "interceptor": "ceiling", "mode": "off"}),
            "no worker has",
        ),
        (
            json!({"do": "only", "interceptors": ["breaker"]}),
            "no worker has",
        ),
    ] {
        let refused = asked(&fleet, wish.clone()).await;
        assert_eq!(refused.code(), "invalid_arguments", "{wish}: {}", *refused);
        let message = refused["error"]["message"].as_str().unwrap().to_lowercase();
        assert!(message.contains(why), "{wish}: {message}");
    }
    for wish in [
        json!({"do": "breaker", "tool": "look", "position": "open"}),
        json!({"do": "limit", "limit": "look", "calls": 1, "per_ms": 1_000}),
        json!({"do": "set", "interceptor": "rate_limit", "mode": "off", "tenant": "acme"}),
        json!({"do": "set", "interceptor": "repeat_cap", "mode": "off", "tenant": "acme", "tool": "look"}),
    ] {
        let mut wish = wish;
        wish.as_object_mut().unwrap().extend([
            ("actor".to_owned(), json!("eve")),
            ("note".to_owned(), json!("mine")),
        ]);
        let refused = fleet.ask("toolfleet.v1.acme.admin.control", &wish).await;
        assert_eq!(refused.code(), "invalid_arguments", "{wish}: {}", *refused);
    }
    let held = "SELECT count(*) FROM toolfleet.controls WHERE actor LIKE 'eve%'";
    assert_eq!(fleet.count(held).await, 0);
    invariants::hold(&fleet, &witness).await;
}

/// What `explain` says beside the reason for which a call waits: the walls behind it, and none that operators have taken away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_names_the_brakes_that_would_hold_a_paused_call_next() {
    const LIMIT: &str = "starts at most 1 in 1h";
    const FORCED: &str = "an operator has forced the breaker of its tool look open";
    let witness = Witness::start().await;
    let tool = witness.tool("look", "read") + "rate_limit: {calls: 1, per: 1h}\nbreaker: {}\n";
    let fleet = Fleet::start(Spec::with([tool]).workers(0, &[])).await;
    for wish in [
        json!({"do": "pause", "tool": "look"}),
        json!({"do": "breaker", "tool": "look", "position": "open"}),
    ] {
        let set = asked(&fleet, wish).await;
        assert_eq!(set["result"], "set", "{}", *set);
    }
    // Those that come before the dispatcher knows of the pause wait for the limit.
    let call = until("a call to be paused", async || {
        let call = look(&fleet, "a").asynchronous().await.call_id();
        (fleet.call(call).await["held_why"] == "pause").then_some(call)
    })
    .await;
    let because = async || {
        let facts = explain::facts(&fleet.database.pool, call).await.unwrap();
        explain::explain(&facts.unwrap().read().unwrap()).because
    };
    for brake in [("rate_limit", LIMIT), ("breaker", FORCED)] {
        let (name, told) = brake;
        assert!(because().await.contains(told), "{}", because().await);
        let off = set(&fleet, name, "off").await;
        assert!(!because().await.contains(told), "{}", because().await);
        unset(&fleet, off).await;
    }
}

//! Policies and keys: a caller who is answered with a call of another run, and tools that no worker runs.

use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use serde_json::json;

fn call(fleet: &Fleet, tool: &str, run: &str) -> Submission {
    let submission = fleet.submit(tool, &json!({ "what": tool }));
    submission.header("Toolfleet-Run", run)
}

async fn mail(fleet: &Fleet, run: &str) -> Answer {
    let key = uuid::Uuid::new_v4().to_string();
    call(fleet, "mail", run).key(&key).wait().await
}

fn rule(answer: &Answer) -> &str {
    assert_eq!(answer.code(), "forbidden", "{}", **answer);
    answer["error"]["details"]["rule"].as_str().unwrap()
}

#[tokio::test]
async fn an_answer_by_a_key_counts_in_the_run_that_asks_for_it() {
    let witness = Witness::start().await;
    let derived = "key: from_arguments\n";
    let tools = [
        witness.tool("mail", "once") + "policy: {after: [confirm], never_after: [secrets]}\n",
        witness.tool("confirm", "read") + derived,
        witness.tool("secrets", "read") + derived,
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    for run in ["r-1", "r-2"] {
        assert_eq!(rule(&mail(&fleet, run).await), "after");
        // In the second run it is the call of the first.
        let confirmed = call(&fleet, "confirm", run).wait().await;
        assert_eq!(confirmed["state"], "succeeded");
        assert_eq!(confirmed["replayed"], run == "r-2");
        assert_eq!(mail(&fleet, run).await["state"], "succeeded");
    }
    // A run that never asked has nothing of it.
    assert_eq!(rule(&mail(&fleet, "r-3").await), "after");
    for run in ["r-1", "r-2"] {
        assert_eq!(
            call(&fleet, "secrets", run).wait().await["state"],
            "succeeded"
        );
        assert_eq!(rule(&mail(&fleet, run).await), "never_after");
    }
    assert_eq!((witness.asked("confirm"), witness.asked("secrets")), (1, 1));

    // The same in a batch, and with a key of the caller's own.
    let confirm = json!({"tool": "confirm", "args": {"what": "confirm"}, "run": "r-4"});
    let answer = fleet
        .ask("toolfleet.v1.default.batch", &json!({"calls": [confirm]}))
        .await;
    assert_eq!(answer["items"][0]["replayed"], true, "{}", *answer);
    assert_eq!(mail(&fleet, "r-4").await["state"], "succeeded");
    invariants::hold(&fleet, &witness).await;
}

/// Equal arguments would be one call in every run, and its refusal the answer in all of them.
#[tokio::test]
async fn an_older_version_whose_key_is_its_arguments_is_refused() {
    let witness = Witness::start().await;
    let derived = witness.tool("mail", "idempotent") + "key: from_arguments\n";
    let fleet = Fleet::start(Spec::with([
        derived.clone(),
        witness.tool("secrets", "read"),
    ]))
    .await;
    let newer = derived
        .replace("version: 1", "version: 2")
        .replace("key: from_arguments", "policy: {never_after: [secrets]}");
    fleet.apply(&newer).await;
    fleet.ring().await;
    // Each with arguments of its own: those of a call that there is are answered with it.
    let older = async || {
        let call = fleet.submit("mail", &json!({"what": uuid::Uuid::new_v4()}));
        let call = call.header("Toolfleet-Tool-Version", "1");
        call.header("Toolfleet-Run", "r").wait().await
    };
    until_so("the dispatcher to know of the new version", async || {
        let answer = older().await;
        answer["state"] == "refused" && answer.code() == "forbidden"
    })
    .await;
}

/// They are with their callers' programs from the moment that they are accepted.
#[tokio::test]
async fn a_call_that_its_caller_runs_has_happened_and_one_with_a_policy_is_never_handed_out() {
    let witness = Witness::start().await;
    let client = |name: &str| {
        format!(
            "name: {name}\nversion: 1\ndescription: Runs at the caller.\neffect: read\n\
             input_schema: {{type: object, properties: {{what: {{type: string}}}}, required: [what]}}\n\
             executor: {{client: {{}}}}\n"
        )
    };
    let ruled = "policy: {never_after: [shell]}\n";
    let tools = [
        witness.tool("mail", "once") + ruled,
        client("shell"),
        client("look"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    assert_eq!(mail(&fleet, "r").await["state"], "succeeded");
    let handed = call(&fleet, "shell", "r").wait().await;
    assert_eq!(handed["state"], "awaiting_client", "{}", *handed);
    assert_eq!(rule(&mail(&fleet, "r").await), "never_after");
    assert_eq!(mail(&fleet, "r-2").await["state"], "succeeded");

    let newer = witness
        .tool("look", "read")
        .replace("version: 1", "version: 2")
        + ruled;
    fleet.apply(&newer).await;
    fleet.ring().await;
    let older = async || {
        let call = call(&fleet, "look", "r").header("Toolfleet-Tool-Version", "1");
        call.wait().await
    };
    until_so("the dispatcher to know of the new version", async || {
        let answer = older().await;
        answer["state"] == "refused" && answer.code() == "forbidden"
    })
    .await;
}

/// What its cache has is not given out around it.
#[tokio::test]
async fn a_call_that_breaks_a_rule_is_not_answered_from_a_cache() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read")
        + "cache: {ttl: 5m}\npolicy: {at_most: {calls: 2, per: run}}\n"];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let look = async |run: &str| call(&fleet, "look", run).wait().await;
    assert_eq!(look("r").await["source"], "live");
    assert_eq!(look("r").await["source"], "cache");
    assert_eq!(rule(&look("r").await), "at_most");
    assert_eq!(look("r-2").await["source"], "cache");
    assert_eq!(witness.asked("look"), 1);
    invariants::hold(&fleet, &witness).await;
}

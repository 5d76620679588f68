//! The repeat cap: what fails again and again with the same arguments is refused, and nothing else is.

use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::json;

async fn call(fleet: &Fleet, run: &str, what: &str) -> Answer {
    let call = fleet.submit("look", &json!({"what": what}));
    call.header("Toolfleet-Run", run).wait().await
}

async fn looking(spec: impl FnOnce(Spec) -> Spec, more: &str) -> (Fleet, Witness) {
    let witness = Witness::start().await;
    let look = witness.tool("look", "read") + "retry: {max_attempts: 1}\n" + more;
    let fleet = Fleet::start(spec(Spec::with([look]))).await;
    witness.always("no", Reply::Status(404));
    (fleet, witness)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_fails_again_and_again_in_a_run_is_refused_by_every_dispatcher() {
    let (fleet, witness) = looking(|spec| spec.dispatchers(2), "").await;
    let mut codes = Vec::new();
    let mut refused = None;
    for _ in 0..30 {
        let answer = call(&fleet, "r-1", "no").await;
        codes.push(answer.code().to_owned());
        if answer.code() == "repeated_failure" {
            refused = Some(answer);
        }
    }
    let ran = witness.asked("no");
    println!("30 times the same failing call over two dispatchers: {ran} ran");
    // One that is told late lets one more through.
    assert!((10..=12).contains(&ran), "{ran}");
    assert_eq!(
        codes.iter().filter(|code| *code == "tool_error").count(),
        ran
    );
    assert!(
        codes[12..].iter().all(|code| code == "repeated_failure"),
        "{codes:?}"
    );
    let refused = refused.unwrap();
    let error = &refused["error"];
    assert_eq!(refused["state"], "refused");
    assert_eq!(
        (
            &error["suggestion"],
            &error["retryable"],
            &error["details"]["last"]
        ),
        (&json!("do_not_repeat"), &json!(false), &json!("tool_error"))
    );

    // Other arguments, another run and no run are other calls.
    assert_eq!(call(&fleet, "r-1", "yes").await["state"], "succeeded");
    assert_eq!(call(&fleet, "r-2", "no").await.code(), "tool_error");
    let outside = fleet.submit("look", &json!({"what": "no"})).wait().await;
    assert_eq!(outside.code(), "tool_error");
    let beta = fleet.submit("look", &json!({"what": "no"})).tenant("beta");
    let beta = beta.header("Toolfleet-Run", "r-1").wait().await;
    assert_eq!(beta.code(), "tool_error");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_known_key_is_answered_and_a_success_ends_the_count() {
    let (fleet, witness) = looking(|spec| spec, "repeat_cap: 3\n").await;
    let keyed = || {
        let call = fleet.submit("look", &json!({"what": "no"}));
        call.header("Toolfleet-Run", "r-1").key("k").wait()
    };
    let first = keyed().await;
    assert_eq!(first.code(), "tool_error");
    for _ in 0..2 {
        assert_eq!(call(&fleet, "r-1", "no").await.code(), "tool_error");
    }
    assert_eq!(call(&fleet, "r-1", "no").await.code(), "repeated_failure");
    let again = keyed().await;
    assert_eq!(
        (again.call_id(), again.code()),
        (first.call_id(), "tool_error")
    );

    let (bad, done) = (|| Reply::Status(404), Reply::Done);
    witness.first("now and then", [bad(), bad(), done, bad(), bad(), bad()]);
    let mut codes = Vec::new();
    for _ in 0..7 {
        codes.push(call(&fleet, "r-1", "now and then").await.code().to_owned());
    }
    let (no, over) = ("tool_error", "repeated_failure");
    assert_eq!(codes, [no, no, "", no, no, no, over]);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn malformed_arguments_count_too_alone_and_in_a_batch() {
    let (fleet, witness) = looking(|spec| spec, "repeat_cap: 3\n").await;
    let invalid = async || {
        let call = fleet.submit("look", &json!({"what": [1]}));
        let call = call.header("Toolfleet-Session", "s-1").wait().await;
        call.code().to_owned()
    };
    assert_eq!(invalid().await, "invalid_arguments");
    let item = json!({"tool": "look", "args": {"what": [1]}, "session": "s-1"});
    let batch = json!({"calls": [item, item, item, {"tool": "look", "args": {"what": "a"}, "session": "s-1"}]});
    let answer = fleet.ask("toolfleet.v1.default.batch", &batch).await;
    let items = answer["items"].as_array().unwrap();
    let told: Vec<_> = items.iter().map(|item| &item["error"]["code"]).collect();
    let (invalid_once, over) = (json!("invalid_arguments"), json!("repeated_failure"));
    assert_eq!(
        told,
        [&invalid_once, &invalid_once, &over, &json!(null)],
        "{}",
        *answer
    );
    assert_eq!(invalid().await, "repeated_failure");
    witness.until_asked("a", 1).await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn without_a_cap_a_tool_is_asked_as_often_as_it_is_called() {
    let (fleet, witness) = looking(|spec| spec, "repeat_cap: 0\n").await;
    for _ in 0..15 {
        assert_eq!(call(&fleet, "r-1", "no").await.code(), "tool_error");
    }
    until_so("every call to have run", async || witness.asked("no") == 15).await;
    invariants::hold(&fleet, &witness).await;
}

//! A call that goes well, from every side a caller or an operator can look at it.

use std::time::Duration;

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

#[tokio::test]
async fn a_caller_who_waits_gets_the_result() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let answer = fleet.submit("look", &json!({"what": "a"})).wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    assert_eq!(answer["outcome"], "success");
    assert_eq!(answer["result"], json!({"done": "a"}));
    assert_eq!(
        (&answer["effect"], &answer["source"], &answer["attempts"]),
        (&json!("none"), &json!("live"), &json!(1))
    );
    assert_eq!(
        (&answer["replayed"], &answer["error"]),
        (&json!(false), &Value::Null)
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_caller_who_does_not_wait_asks_later() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    witness.always("a", Reply::DoneWhenReleased);
    let accepted = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .asynchronous()
        .await;
    assert_eq!(
        (&accepted["state"], &accepted["replayed"]),
        (&json!("queued"), &json!(false))
    );
    witness.until_asked("a", 1).await;
    let running = fleet.get(&json!({"call_id": accepted["call_id"]})).await;
    assert_eq!(running["state"], "running");

    let by_id = json!({"call_id": accepted["call_id"], "wait_ms": 20_000});
    let by_key = json!({"tool": "charge", "idempotency_key": "k", "wait_ms": 20_000});
    let ((by_id, by_key), ()) = tokio::join!(
        async { tokio::join!(fleet.get(&by_id), fleet.get(&by_key)) },
        async { witness.release("a") }
    );
    assert_eq!(by_id["state"], "succeeded");
    assert_eq!(by_id["effect"], "applied");
    assert_eq!(by_id.bytes, by_key.bytes);
    let at_once = fleet.get(&json!({"call_id": accepted["call_id"]})).await;
    assert_eq!(at_once.bytes, by_id.bytes);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_wait_that_runs_out_says_how_far_the_call_is() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    witness.always("a", Reply::DoneWhenReleased);
    let submission = fleet
        .submit("look", &json!({"what": "a"}))
        .header("Prefer", "wait=1");
    let answer = submission.wait().await;
    assert_eq!(answer["state"], "running");
    assert!(answer.get("result").is_none(), "{}", *answer);
    witness.release("a");
    fleet.until_state(answer.call_id(), "succeeded").await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn callers_with_one_key_at_two_dispatchers_share_one_call() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("charge", "once")]);
    let mut fleet = Fleet::start(spec).await;
    witness.always("a", Reply::DoneWhenReleased);
    let mut callers = JoinSet::new();
    let call = fleet.submit("charge", &json!({"what": "a"})).key("k");
    callers.spawn(call.clone().wait());
    witness.until_asked("a", 1).await;

    // The first dispatcher still holds its caller, but hears nothing new: the second one takes the others.
    fleet.add_dispatcher().await;
    fleet.dispatchers[0].ask_to_stop();
    until_so("the first dispatcher to stop listening", async || {
        fleet.dispatchers_heard().await == 1
    })
    .await;
    for _ in 0..4 {
        callers.spawn(call.clone().wait());
    }
    let glance = call.asynchronous().await;
    assert_eq!(
        (&glance["state"], &glance["replayed"]),
        (&json!("running"), &json!(true))
    );
    witness.release("a");
    let answers = callers.join_all().await;
    let first = answers
        .iter()
        .find(|answer| answer["replayed"] == false)
        .unwrap();
    for answer in &answers {
        assert_eq!(answer.first_bytes(), first.first_bytes());
    }
    let replays = answers.iter().filter(|answer| answer["replayed"] == true);
    assert_eq!(replays.count(), 4);
    assert_eq!(witness.applied("a"), 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_replay_differs_from_the_first_answer_in_one_word() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read"), witness.tool("charge", "once")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    // Spelled as no printer of ours would: white space, an exponent, an escape, an order of its own.
    let odd =
        "{\"z\": [1.10, 1e2, 9007199254740993],\n \"a\": \"\\u00e9\u{4e2d}\\/\", \"n\": null}";
    witness.always("odd", Reply::Body(odd.to_owned()));
    witness.always("no", Reply::No("not today"));
    witness.always("doubt", Reply::Status(500));
    for (tool, what, state) in [
        ("look", "odd", "succeeded"),
        ("charge", "no", "failed"),
        ("charge", "doubt", "in_doubt"),
    ] {
        let call = fleet.submit(tool, &json!({"what": what})).key(what);
        let live = call.clone().wait().await;
        assert_eq!(live["state"], state, "{}", *live);
        let replay = call.clone().wait().await;
        assert_eq!(replay["replayed"], true);
        assert_eq!(replay.first_bytes(), live.first_bytes());
        let got = fleet.get(&json!({"call_id": live["call_id"]})).await;
        assert_eq!(got.bytes, live.bytes);
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_key_names_one_tool_and_one_set_of_arguments_within_its_tenant() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read"), witness.tool("charge", "once")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let first = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .wait()
        .await;
    for (tool, what) in [("charge", "b"), ("look", "a")] {
        let other = fleet
            .submit(tool, &json!({"what": what}))
            .key("k")
            .wait()
            .await;
        assert_eq!(
            (other.code(), &other["state"]),
            ("idempotency_key_reused", &json!("refused"))
        );
    }
    // Other spelling, same arguments.
    let spelled = fleet
        .submit_bytes("charge", r#"{ "what" : "\u0061" }"#)
        .key("k")
        .wait()
        .await;
    assert_eq!(spelled["call_id"], first["call_id"]);
    let stranger = fleet
        .submit("charge", &json!({"what": "b"}))
        .key("k")
        .tenant("acme")
        .wait()
        .await;
    assert_ne!(stranger["call_id"], first["call_id"]);
    let foreign = fleet.get(&json!({"call_id": stranger["call_id"]})).await;
    assert_eq!(foreign.code(), "not_found");
    assert_eq!((witness.applied("a"), witness.applied("b")), (1, 1));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn large_arguments_and_results_come_through_unharmed() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let page = "0123456789abcde\u{4e2d}".repeat(1_100);
    let result = json!({"pages": vec![page.clone(); 16]}).to_string();
    assert!(result.len() > 300_000);
    witness.always("big", Reply::Body(result.clone()));
    let args = json!({"what": "big", "pages": vec![page; 10]});
    assert!(args.to_string().len() > 190_000);
    let answer = fleet.submit("look", &args).wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", answer["error"]);
    assert_eq!(answer["result"].to_string(), result);
    let body = witness.look(|seen| seen.requests[0].body.clone());
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), args);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn numbers_keep_every_digit_on_the_way_out_and_back() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let numbers = "[9007199254740993,-9223372036854775808,0.1000000000000000055511151231257827,1e131,-0.0,1.10]";
    witness.always("n", Reply::Body(format!("{{\"numbers\":{numbers}}}")));
    let body = format!("{{\"numbers\":{numbers},\"what\":\"n\"}}");
    let answer = fleet.submit_bytes("look", body).wait().await;
    let bytes = String::from_utf8(answer.bytes.to_vec()).unwrap();
    assert!(
        bytes.contains(&format!("\"result\":{{\"numbers\":{numbers}}}")),
        "{bytes}"
    );
    let sent = witness.look(|seen| seen.requests[0].body.clone());
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    let row = fleet.call(answer.call_id()).await;
    let expected: Value = serde_json::from_str(numbers).unwrap();
    for (there, found) in [
        ("tool", &sent),
        ("history", &row["args"]),
        ("result", &row["result"]),
    ] {
        assert_eq!(exact(&found["numbers"]), exact(&expected), "{there}");
    }
    invariants::hold(&fleet, &witness).await;
}

/// Values of numbers, however they are spelled: digits without trailing zeros, and the exponent.
fn exact(numbers: &Value) -> Vec<(String, i64)> {
    let spelled = numbers.as_array().unwrap().iter().map(Value::to_string);
    spelled
        .map(|number| {
            let (digits, exponent) = number.split_once(['e', 'E']).unwrap_or((&number, "0"));
            let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
            let all = format!("{whole}{part}");
            let digits = all.trim_start_matches(['-', '0']);
            let shift = i64::try_from(digits.len() - digits.trim_end_matches('0').len()).unwrap();
            let exponent: i64 = exponent.parse().unwrap();
            let exponent = exponent - i64::try_from(part.len()).unwrap() + shift;
            match digits.trim_end_matches('0') {
                "" => ("0".to_owned(), 0),
                digits => (digits.to_owned(), exponent),
            }
        })
        .collect()
}

#[tokio::test]
async fn history_tells_what_happened() {
    let witness = Witness::start().await;
    let retry = "retry: {strategy: fixed, max_attempts: 3, base: 50ms}\n";
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read") + retry])).await;
    witness.first("a", [Reply::Status(503)]);
    let answer = fleet
        .submit("look", &json!({"what": "a"}))
        .key("k")
        .header("Toolfleet-Session", "s1")
        .header("Toolfleet-Run", "r1")
        .header("Toolfleet-Priority", "high")
        .header("Toolfleet-Meta", "{\"m\": 1}")
        .deadline(Duration::from_secs(60))
        .wait()
        .await;
    let call = answer.call_id();
    let row = fleet.call(call).await;
    for (column, value) in [
        ("tenant", json!("default")),
        ("tool", json!("look")),
        ("effect", json!("read")),
        ("state", json!("succeeded")),
        ("outcome", json!("success")),
        ("attempts", json!(2)),
        ("args", json!({"what": "a"})),
        ("result", json!({"done": "a"})),
        ("session", json!("s1")),
        ("run", json!("r1")),
        ("priority", json!("high")),
        ("worker", json!("worker-1")),
        ("meta", json!({"m": 1})),
    ] {
        assert_eq!(row[column], value, "{column}");
    }
    let attempts = fleet.attempts(call).await;
    let told: Vec<_> = attempts
        .iter()
        .map(|a| {
            (
                a["number"].clone(),
                a["outcome"].clone(),
                a["error"]["code"].clone(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (json!(1), json!("definite_failure"), json!("unavailable")),
            (json!(2), json!("applied"), Value::Null),
        ]
    );
    let events = fleet.events(call).await;
    let moves: Vec<_> = events
        .iter()
        .map(|e| {
            (
                e["to_state"].as_str().unwrap(),
                e["reason"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        moves,
        [
            ("queued", "accepted"),
            ("running", "claimed"),
            ("queued", "unavailable"),
            ("running", "claimed"),
            ("succeeded", "applied"),
        ]
    );
    // A session and a run reach the tool; the key that it is told is the same in both attempts and not the caller's.
    let keys = witness.look(|seen| {
        let headers = |name: &str| {
            seen.requests
                .iter()
                .map(|r| r.header(name).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(headers("toolfleet-attempt"), ["1", "2"]);
        assert_eq!(headers("toolfleet-session"), ["s1", "s1"]);
        headers("idempotency-key")
    });
    assert!(keys[0] == keys[1] && keys[0] != "k", "{keys:?}");
    invariants::hold(&fleet, &witness).await;
}

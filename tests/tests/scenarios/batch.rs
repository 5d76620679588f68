//! Many calls in one request: one commit, an answer for each in its place, and none that spoils another.

use std::collections::BTreeSet;

use fleet::checkpoint::Checkpoint;
use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec},
    invariants,
    real::Armed,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

const SUBJECT: &str = "toolfleet.v1.default.batch";
const CALLS: &str = "SELECT count(*) FROM toolfleet.calls";
/// A commit has one time. Not by `xmin`: a pointer that is sent once more changes its call's row.
const COMMITS: &str = "SELECT count(DISTINCT accepted_at) FROM toolfleet.open_calls";
const OPEN: &str = "SELECT count(*) FROM toolfleet.open_calls";

fn good(number: usize) -> Value {
    json!({"tool": "charge", "args": {"what": format!("n{number}")}, "idempotency_key": format!("key-{number}")})
}

fn batch(calls: impl IntoIterator<Item = Value>) -> Value {
    json!({"calls": calls.into_iter().collect::<Vec<_>>()})
}

/// Everything that can be wrong with a call that is JSON, as it is written in the body, and the code of its refusal.
fn bad() -> Vec<(String, &'static str)> {
    let call = |args: &str| format!(r#"{{"tool":"look","args":{args}}}"#);
    let with = |field: &str| format!(r#"{{"tool":"look","args":{{"what":"bad"}},{field}}}"#);
    let args = |args: String| call(&format!(r#"{{"what":"bad","more":{args}}}"#));
    let large = "x".repeat(100_000);
    vec![
        ("7".into(), "invalid_arguments"),
        ("null".into(), "invalid_arguments"),
        ("[]".into(), "invalid_arguments"),
        ("{}".into(), "invalid_arguments"),
        (r#"{"args":{"what":"bad"}}"#.into(), "invalid_arguments"),
        (r#"{"tool":"look"}"#.into(), "invalid_arguments"),
        (
            r#"{"tool":"no_such_tool","args":{}}"#.into(),
            "unknown_tool",
        ),
        (
            r#"{"tool":"No Tool","args":{}}"#.into(),
            "invalid_tool_name",
        ),
        (r#"{"tool":null,"args":{}}"#.into(), "invalid_tool_name"),
        (
            r#"{"tool":"charge","args":{"what":"bad"}}"#.into(),
            "missing_idempotency_key",
        ),
        (call("[]"), "invalid_arguments"),
        (call("\"{}\""), "invalid_arguments"),
        (call("{}"), "invalid_arguments"),
        (call(r#"{"what":[7,8]}"#), "invalid_arguments"),
        (call(r#"{"what":"bad","what":"bad"}"#), "duplicate_key"),
        (call(r#"{"what":"\u0000"}"#), "nul_not_allowed"),
        (call(r#"{"what":"\ud800"}"#), "invalid_unicode"),
        (args("1e400".into()), "number_out_of_range"),
        (args(format!("0.{}", "1".repeat(80))), "number_too_long"),
        (
            args(format!("{}{}", "[".repeat(70), "]".repeat(70))),
            "depth_exceeded",
        ),
        (
            args(format!("[{}1]", "1,".repeat(10_000))),
            "too_many_nodes",
        ),
        (
            args(format!("{{\"{}\":1}}", "k".repeat(300))),
            "key_too_long",
        ),
        (
            args(format!("\"{}\"", "x".repeat(140_000))),
            "string_too_long",
        ),
        (
            args(format!("[\"{large}\",\"{large}\",\"{large}\"]")),
            "payload_too_large",
        ),
        (with(r#""tool_version":9"#), "unknown_tool_version"),
        (with(r#""tool_version":0"#), "header_invalid"),
        (
            with(r#""idempotency_key":"a b""#),
            "invalid_idempotency_key",
        ),
        (with(r#""idempotency_key":7"#), "invalid_idempotency_key"),
        (
            with(r#""idempotency_key":"key-0""#),
            "idempotency_key_reused",
        ),
        (with(r#""deadline_ms":0"#), "deadline_invalid"),
        (
            with(r#""run_deadline":"2001-01-01T00:00:00Z""#),
            "deadline_invalid",
        ),
        (with(r#""session":"a.b""#), "header_invalid"),
        (with(r#""priority":"urgent""#), "header_invalid"),
        (with(r#""language":"fr""#), "header_invalid"),
        (with(r#""meta":[1]"#), "header_invalid"),
        (with(r#""colour":"red""#), "invalid_arguments"),
        (with(r#""run":"r","run":"r""#), "duplicate_key"),
    ]
}

async fn send(fleet: &Fleet, body: String) -> Answer {
    fleet
        .ask_bytes(SUBJECT, body)
        .await
        .expect("a dispatcher answers")
}

fn items(answer: &Answer) -> &[Value] {
    answer["items"].as_array().map_or(&[], Vec::as_slice)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_seven_bad_calls_do_not_spoil_nine_hundred_and_sixty_three() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read"), witness.tool("charge", "once")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let bad = bad();
    assert_eq!(bad.len(), 37);
    // From the first to the last place.
    let places: Vec<usize> = (0..37).map(|n| n * 999 / 36).collect();
    let mut calls = Vec::new();
    let mut codes = Vec::new();
    for place in 0..1_000 {
        match places.iter().position(|bad| *bad == place) {
            Some(n) => {
                calls.push(bad[n].0.clone());
                codes.push(bad[n].1);
            }
            None => {
                calls.push(good(calls.len() - codes.len()).to_string());
            }
        }
    }
    let body = format!("{{\"calls\":[{}]}}", calls.join(","));
    let mut sent = Vec::new();
    for time in ["first", "second"] {
        let answer = send(&fleet, body.clone()).await;
        assert!(
            answer.headers.is_none(),
            "a bad call is not the batch's error"
        );
        let items = items(&answer);
        let refused: Vec<usize> = (0..items.len())
            .filter(|place| items[*place]["state"] == "refused")
            .collect();
        assert_eq!(refused, places);
        for (place, code) in places.iter().zip(&codes) {
            assert_eq!(items[*place]["error"]["code"], *code, "{}", calls[*place]);
            assert_eq!(items[*place]["call_id"], Value::Null);
        }
        let accepted: Vec<&Value> = items
            .iter()
            .filter(|item| item["call_id"].is_string())
            .collect();
        let new = accepted
            .iter()
            .filter(|item| item["replayed"] == false)
            .count();
        println!(
            "batch of {}, {time} time: {} accepted ({new} new, {} there already), {} refused in their places",
            items.len(),
            accepted.len(),
            accepted.len() - new,
            refused.len()
        );
        assert_eq!(new, if time == "first" { 963 } else { 0 });
        sent.push(
            accepted
                .iter()
                .map(|item| item["call_id"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(sent[0], sent[1]);
    assert_eq!(sent[0].iter().collect::<BTreeSet<_>>().len(), 963);
    until_so("every call to be over", async || {
        fleet
            .count("SELECT count(*) FROM toolfleet.calls WHERE state = 'succeeded'")
            .await
            == 963
    })
    .await;
    let applied: Vec<usize> = (0..963)
        .map(|n| witness.applied(&format!("n{n}")))
        .collect();
    let doubled = applied.iter().filter(|times| **times > 1).count();
    let lost = applied.iter().filter(|times| **times == 0).count();
    println!("963 effects, lost {lost}, doubled {doubled}");
    assert_eq!((lost, doubled), (0, 0));
    assert_eq!(fleet.count(CALLS).await, 963);
    println!(
        "batch of 1,000 with 37 bad items: {} accepted, {} refused in their places; sent twice with keys: nothing doubled",
        sent[1].len(),
        places.len()
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_batch_is_one_commit_whatever_its_size() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("look", "read")]).workers(0, &[]);
    let fleet = Fleet::start(spec).await;
    let small = (0..1_000).map(|n| json!({"tool": "look", "args": {"what": n.to_string()}}));
    let answer = send(&fleet, batch(small).to_string()).await;
    assert!(items(&answer).iter().all(|item| item["state"] == "queued"));
    assert_eq!(
        (fleet.count(OPEN).await, fleet.count(COMMITS).await),
        (1_000, 1)
    );
    // With what the lane counts for a row it is far beyond what a batch of single calls may have.
    let page = "0123456789abcdef".repeat(6 * 1024);
    let large = (0..10).map(|_| json!({"tool": "look", "args": {"what": "big", "page": page}}));
    let answer = send(&fleet, batch(large).to_string()).await;
    assert!(items(&answer).iter().all(|item| item["state"] == "queued"));
    assert_eq!(
        (fleet.count(OPEN).await, fleet.count(COMMITS).await),
        (1_010, 2)
    );
}

#[tokio::test]
async fn a_key_that_stands_twice_in_a_batch_is_one_call() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("charge", "once")]);
    let fleet = Fleet::start(spec).await;
    let other = json!({"tool": "charge", "args": {"what": "other"}, "idempotency_key": "key-1"});
    let answer = send(
        &fleet,
        batch([good(1), good(2), good(1), other]).to_string(),
    )
    .await;
    let [first, second, again, reused] = items(&answer) else {
        panic!("{}", *answer)
    };
    assert_eq!(
        (&first["replayed"], &second["replayed"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(
        (&again["call_id"], &again["replayed"]),
        (&first["call_id"], &json!(true))
    );
    assert_eq!(reused["error"]["code"], "idempotency_key_reused");
    until_so("both to be over", async || {
        fleet
            .count("SELECT count(*) FROM toolfleet.calls WHERE state = 'succeeded'")
            .await
            == 2
    })
    .await;
    assert_eq!((witness.applied("n1"), witness.applied("n2")), (1, 1));
    invariants::hold(&fleet, &witness).await;
    assert_eq!(fleet.count(CALLS).await, 2);
}

#[tokio::test]
async fn a_known_key_tells_where_its_call_stands() {
    let witness = Witness::start().await;
    let tools = [witness.tool("charge", "once") + "timeout: 500ms\n"];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("n2", Reply::No("not today"));
    witness.always("n3", Reply::DoneThenHang);
    // Single calls and batches share their keys.
    for number in 1..=3 {
        let call = good(number);
        let submission = fleet.submit("charge", &call["args"]);
        submission
            .key(call["idempotency_key"].as_str().unwrap())
            .wait()
            .await;
    }
    // A key is known even where its tool would refuse a new call.
    let mut old = good(1);
    old["tool_version"] = json!(9);
    let answer = send(&fleet, batch([good(1), good(2), good(3), old]).to_string()).await;
    let stands: Vec<(&str, &Value)> = items(&answer)
        .iter()
        .map(|item| (item["state"].as_str().unwrap(), &item["replayed"]))
        .collect();
    let replayed = json!(true);
    assert_eq!(
        stands,
        [
            ("succeeded", &replayed),
            ("failed", &replayed),
            ("in_doubt", &replayed),
            ("succeeded", &replayed)
        ]
    );
    assert!(
        items(&answer)[0].get("result").is_none(),
        "`get` tells results"
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn numbers_in_a_batch_keep_every_digit() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let args =
        r#"{"what":"n","numbers":[9007199254740993,0.1000000000000000055511151231257827,1.10]}"#;
    let body = format!(
        r#"{{"calls":[{{"tool":"look","args":{args},"idempotency_key":"k","meta":{{"n":9007199254740993}}}}]}}"#
    );
    let accepted = send(&fleet, body).await;
    // The same bytes in a single call are the same call.
    let single = fleet.submit_bytes("look", args).key("k").wait().await;
    assert_eq!(items(&accepted)[0]["call_id"], single["call_id"]);
    let sent = witness.look(|seen| String::from_utf8(seen.requests[0].body.to_vec()).unwrap());
    for number in ["9007199254740993", "0.1000000000000000055511151231257827"] {
        assert!(sent.contains(number), "{sent}");
    }
    let meta = fleet
        .count("SELECT count(*) FROM toolfleet.calls WHERE meta::text LIKE '%9007199254740993%'")
        .await;
    assert_eq!(meta, 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_body_that_is_no_batch_is_refused_as_a_whole() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("look", "read")]).workers(0, &[]);
    let fleet = Fleet::start(spec).await;
    let call = json!({"tool": "look", "args": {"what": "a"}}).to_string();
    for (body, code, number) in [
        (
            format!("{{\"calls\":[{call},{{\"tool\":]}}"),
            "malformed_json",
            "400",
        ),
        (format!("{{\"calls\":[{call}"), "truncated_arguments", "400"),
        (
            format!("{{\"calls\":[{call}],\"calls\":[{call}]}}"),
            "duplicate_key",
            "400",
        ),
        ("{\"calls\":[]}".to_owned(), "invalid_arguments", "400"),
        (
            format!("{{\"calls\":[{}{call}]}}", format!("{call},").repeat(1_000)),
            "payload_too_large",
            "413",
        ),
    ] {
        let answer = send(&fleet, body).await;
        assert_eq!((answer.code(), &answer["state"]), (code, &json!("refused")));
        let headers = answer.headers.as_ref().unwrap();
        let told = headers.get("Nats-Service-Error-Code").unwrap();
        assert_eq!(told.as_str(), number, "{code}");
    }
    assert_eq!(fleet.count(CALLS).await, 0);
}

#[tokio::test]
async fn a_batch_takes_a_slot_for_each_of_its_calls() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("look", "read")]).dispatchers(0);
    let mut fleet = Fleet::start(spec).await;
    fleet.add_dispatcher_with(&["--requests-max", "8"]).await;
    witness.always("a", Reply::DoneWhenReleased);
    let calls =
        |count: usize| batch((0..count).map(|_| json!({"tool": "look", "args": {"what": "b"}})));
    let waits = fleet.submit("look", &json!({"what": "a"}));
    let (answer, ()) = tokio::join!(waits.wait(), async {
        witness.until_asked("a", 1).await;
        let full = send(&fleet, calls(8).to_string()).await;
        assert_eq!(full.code(), "overloaded", "{}", *full);
        // The last two are for other tenants.
        let fits = send(&fleet, calls(5).to_string()).await;
        assert_eq!(items(&fits).len(), 5, "{}", *fits);
        witness.release("a");
    });
    assert_eq!(answer["state"], "succeeded");
    // More calls than a tenant can have slots need all of those.
    let large = send(&fleet, calls(20).to_string()).await;
    assert_eq!(items(&large).len(), 20, "{}", *large);
    until_so("all to be over", async || fleet.count(OPEN).await == 0).await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_dispatcher_that_dies_in_the_middle_of_a_batch_leaves_all_of_it_or_nothing() {
    for point in [
        Checkpoint::Validated,
        Checkpoint::CommitSent,
        Checkpoint::Committed,
        Checkpoint::Published,
        Checkpoint::Answered,
    ] {
        let witness = Witness::start().await;
        let spec = Spec::with([witness.tool("charge", "once")])
            .dispatchers(0)
            .workers(0, &[]);
        let mut fleet = Fleet::start(spec).await;
        // The first statement of a connection has to be prepared: it does nothing yet while it is on its way.
        let armed = Armed {
            at: point,
            times: 2,
        };
        let mut dispatcher = fleet.real_dispatcher("armed", &[], Some(armed));
        dispatcher.ready().await;
        send(&fleet, batch([good(1_000)]).to_string()).await;
        let body = batch((0..300).map(good)).to_string();
        tokio::select! {
            // Whether an answer still gets out is not certain.
            () = dispatcher.until_stopped_at(point) => {}
            _heard = async {
                fleet.ask_bytes(SUBJECT, body.clone()).await;
                std::future::pending::<()>().await;
            } => {}
        }
        // What it had sent is still run by its sessions, which end when they have read all of it.
        until_so("its sessions to be over", async || {
            let sessions =
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'toolfleet armed'";
            fleet.count(sessions).await == 0
        })
        .await;
        let left = fleet.count(OPEN).await - 1;
        assert!(
            left == 0 || left == 300,
            "{point}: {left} of 300 calls are there"
        );
        if matches!(
            point,
            Checkpoint::Committed | Checkpoint::Published | Checkpoint::Answered
        ) {
            assert_eq!(left, 300, "{point}");
        }
        fleet.add_dispatcher().await;
        let again = send(&fleet, body).await;
        let replayed = items(&again)
            .iter()
            .filter(|item| item["replayed"] == true)
            .count();
        assert_eq!(i64::try_from(replayed).unwrap(), left, "{point}");
        println!(
            "died at {point}: {left} of 300 were there; sent again: {replayed} known, {} new",
            300 - replayed
        );
        fleet.add_worker(&[]).await;
        until_so("every call to be over", async || {
            fleet.count(OPEN).await == 0
        })
        .await;
        let applied = (0..300).map(|n| witness.applied(&format!("n{n}")));
        assert!(applied.into_iter().all(|times| times == 1), "{point}");
        assert_eq!(fleet.count(CALLS).await, 301, "{point}");
        invariants::hold(&fleet, &witness).await;
    }
}

//! Tools that the program of the caller runs: it is handed the call, and hands in what came of it.

mod bad_input;
mod ends;
mod races;

use std::time::{Duration, Instant};

use fleet::ids::CallId;
use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec, counter},
    invariants,
    wait::until_so,
    witness::Witness,
};
use futures_util::StreamExt;
use serde_json::{Value, json};

const OUTPUT: &str = "toolfleet.v1.default.output";

/// A tool that its caller runs, with these further fields in its manifest.
fn client_tool(name: &str, effect: &str, more: &str) -> String {
    format!(
        "name: {name}\nversion: 1\ndescription: Runs a command on the caller's own machine.\neffect: {effect}\n\
         input_schema: {{type: object, properties: {{what: {{type: string}}}}, required: [what]}}\n\
         executor: {{client: {{presents: shell_call}}}}\n{more}"
    )
}

/// A fleet without a worker.
async fn fleet_of(tools: impl IntoIterator<Item = String>) -> Fleet {
    Fleet::start(Spec::with(tools).workers(0, &[])).await
}

/// What the caller's program got.
#[derive(Debug, Clone)]
struct HandedCall {
    call: CallId,
    token: String,
}

impl HandedCall {
    fn of(answer: &Answer) -> Self {
        Self {
            call: answer.call_id(),
            token: answer["awaiting"]["token"].as_str().unwrap().to_owned(),
        }
    }

    /// The body of an answer, with these fields.
    fn body(&self, more: &Value) -> Value {
        let mut body = json!({"call_id": self.call, "token": self.token});
        for (field, value) in more.as_object().unwrap() {
            body[field] = value.clone();
        }
        body
    }

    async fn hands_in(&self, fleet: &Fleet, more: &Value) -> Answer {
        fleet.ask(OUTPUT, &self.body(more)).await
    }
}

fn submission(fleet: &Fleet, tool: &str, what: &str) -> Submission {
    fleet.submit(tool, &json!({"what": what})).key(what)
}

async fn handed(fleet: &Fleet, tool: &str, what: &str) -> HandedCall {
    HandedCall::of(&submission(fleet, tool, what).wait().await)
}

/// The last move of a call, in three words.
async fn last_move(fleet: &Fleet, call: CallId) -> [String; 3] {
    let last = fleet.events(call).await.pop().unwrap();
    ["from_state", "to_state", "actor"].map(|field| last[field].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_call_is_handed_to_its_caller_whose_answer_is_the_calls() {
    let witness = Witness::start().await;
    let fleet = fleet_of([client_tool("shell", "once", "")]).await;
    for prefer in ["respond-async", "wait=30"] {
        let began = Instant::now();
        let call = submission(&fleet, "shell", prefer).header("Prefer", prefer);
        let accepted = call.clone().wait().await;
        assert!(began.elapsed() < Duration::from_secs(10), "nobody waits");
        assert_eq!(accepted["state"], "awaiting_client", "{}", *accepted);
        let awaiting = &accepted["awaiting"];
        assert_eq!(awaiting["for"], "client", "{awaiting}");
        // They were not changed.
        assert_eq!(awaiting.get("args"), None, "{awaiting}");
        let handed = HandedCall::of(&accepted);
        let stands = fleet.get(&json!({"call_id": handed.call})).await;
        assert_eq!(stands["awaiting"], *awaiting);
        let row =
            "SELECT awaiting, until, since, session FROM toolfleet.waiting WHERE call_id = $1";
        assert_eq!(fleet.rows(row, handed.call).await[0]["awaiting"], "client");

        let result = json!({"result": {"exit_code": 0, "digits": 1}});
        let text = handed.body(&result).to_string();
        let text = text.replace("\"digits\":1", "\"digits\":9007199254740993");
        let told = fleet.ask_bytes(OUTPUT, text.clone()).await.unwrap();
        for (field, value) in [
            ("state", "succeeded"),
            ("outcome", "success"),
            ("source", "client"),
            ("effect", "applied"),
        ] {
            assert_eq!(told[field], value, "{}", *told);
        }
        let bytes = String::from_utf8_lossy(&told.bytes).into_owned();
        assert!(bytes.contains("9007199254740993"), "{bytes}");
        // The same bytes for whoever says it again, asks, or repeats the call.
        let again = fleet.ask_bytes(OUTPUT, text).await.unwrap();
        assert_eq!(again.bytes, told.bytes);
        let got = fleet.get(&json!({"call_id": handed.call})).await;
        assert_eq!(got.bytes, told.bytes);
        let replay = call.wait().await;
        assert_eq!(replay.first_bytes().as_bytes(), told.bytes);
        let other = handed.hands_in(&fleet, &json!({"result": 1})).await;
        assert_eq!(other.code(), "conflict", "{}", *other);
        let attempts = fleet.attempts(handed.call).await;
        assert_eq!(
            (
                &attempts[0]["number"],
                &attempts[0]["worker"],
                &attempts[0]["outcome"]
            ),
            (&json!(1), &Value::Null, &json!("applied")),
            "{attempts:?}"
        );
        let moved = last_move(&fleet, handed.call).await;
        assert_eq!(moved, ["awaiting_client", "succeeded", "client"]);
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_repeated_submission_attaches_to_the_call_that_waits() {
    let witness = Witness::start().await;
    let tools = [client_tool("shell", "once", "")];
    let fleet = Fleet::start(Spec::with(tools).workers(0, &[]).dispatchers(2)).await;
    let call = submission(&fleet, "shell", "a");
    let first = call.clone().wait().await;
    for prefer in ["respond-async", "wait=30"] {
        for _ in 0..4 {
            let again = call.clone().header("Prefer", prefer).wait().await;
            assert_eq!(again["replayed"], true);
            assert_eq!(again.first_bytes().as_bytes(), first.bytes);
        }
    }
    let other = fleet.submit("shell", &json!({"what": "b"})).key("a").wait();
    assert_eq!(other.await.code(), "idempotency_key_reused");
    assert_eq!(fleet.calls().await.len(), 1);
    let handed = HandedCall::of(&first);
    assert_eq!(
        handed.hands_in(&fleet, &json!({"result": null})).await["state"],
        "succeeded"
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn whoever_asks_for_the_call_waits_until_its_client_has_answered() {
    let witness = Witness::start().await;
    let tools = [client_tool("shell", "once", "")];
    let fleet = Fleet::start(Spec::with(tools).workers(0, &[]).dispatchers(2)).await;
    let handed = handed(&fleet, "shell", "a").await;
    let short = json!({"call_id": handed.call, "wait_ms": 300});
    assert_eq!(fleet.get(&short).await["state"], "awaiting_client");
    let long = json!({"call_id": handed.call, "wait_ms": 60_000});
    let (got, told) = tokio::join!(fleet.get(&long), async {
        until_so("who asks to wait", async || {
            counter("toolfleet_waiters") >= 1.0
        })
        .await;
        handed
            .hands_in(&fleet, &json!({"result": {"exit_code": 0}}))
            .await
    });
    assert_eq!(got.bytes, told.bytes);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn many_calls_of_a_batch_are_handed_out_each_with_its_token() {
    let witness = Witness::start().await;
    let tools = [
        client_tool("shell", "once", ""),
        witness.tool("look", "read"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let call = |tool: &str, key: &str| json!({"tool": tool, "args": {"what": key}, "idempotency_key": key});
    let calls = json!({"calls": [call("shell", "a"), call("look", "b"), call("shell", "c")]});
    let answer = fleet.ask("toolfleet.v1.default.batch", &calls).await;
    let items = answer["items"].as_array().unwrap();
    assert_eq!(items[1].get("awaiting"), None, "{}", items[1]);
    for item in [&items[0], &items[2]] {
        assert_eq!(item["state"], "awaiting_client", "{item}");
        let handed = HandedCall {
            call: item["call_id"].as_str().unwrap().parse().unwrap(),
            token: item["awaiting"]["token"].as_str().unwrap().to_owned(),
        };
        let told = handed.hands_in(&fleet, &json!({"result": 1})).await;
        assert_eq!(told["state"], "succeeded", "{}", *told);
    }
    let looked = items[1]["call_id"].as_str().unwrap().parse().unwrap();
    fleet.until_state(looked, "succeeded").await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_session_hears_for_whom_its_call_waits() {
    let witness = Witness::start().await;
    let fleet = fleet_of([client_tool("shell", "once", "")]).await;
    let heard = fleet.client.subscribe("toolfleet.v1.default.event.s.*");
    let mut heard = heard.await.unwrap();
    fleet.client.flush().await.unwrap();
    let call = submission(&fleet, "shell", "a").header("Toolfleet-Session", "s");
    let handed = HandedCall::of(&call.wait().await);
    handed.hands_in(&fleet, &json!({"result": 1})).await;
    let mut events = Vec::new();
    while events
        .last()
        .is_none_or(|event: &Value| event["kind"] != "finished")
    {
        let event = tokio::time::timeout(fleet_tests::wait::LONG, heard.next()).await;
        events.push(serde_json::from_slice(&event.unwrap().unwrap().payload).unwrap());
    }
    let kinds: Vec<_> = events.iter().map(|event| event["kind"].as_str()).collect();
    assert_eq!(
        kinds,
        [Some("accepted"), Some("awaiting"), Some("finished")]
    );
    assert_eq!(
        (&events[1]["for"], &events[1]["token"]),
        (&json!("client"), &json!(handed.token))
    );
    invariants::hold(&fleet, &witness).await;
}

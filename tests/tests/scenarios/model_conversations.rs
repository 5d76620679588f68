//! Conversations by reference: a turn stores what is new, and the model is sent all of it.

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    models::ModelServer,
    witness::Witness,
};
use serde_json::{Value, json};

use crate::models::manifest;

/// A request that goes on from a call.
fn after(call: &str, text: &str) -> Value {
    json!({"messages": [{"$call": call}, {"role": "user", "content": text}]})
}

async fn start(more: &[String]) -> (Witness, ModelServer, Fleet) {
    let witness = Witness::start().await;
    let server = ModelServer::start(
        &json!({"rules": [
            {"match": {"text": "broken"}, "fault": {"kind": "status", "status": 422}},
            {"match": {"text": "first"}, "answer": {"text": "one"}},
            {"match": {"text": "second"}, "answer": {"text": "two"}},
            {"answer": {"text": "three"}},
        ]}),
        &[],
    );
    let mut tools = vec![manifest(&server, ""), witness.tool("look", "read")];
    tools.extend_from_slice(more);
    let fleet = Fleet::start(Spec::with(tools)).await;
    (witness, server, fleet)
}

async fn ask(fleet: &Fleet, tool: &str, args: &Value) -> Value {
    let answer = fleet.submit(tool, args).wait().await;
    (*answer).clone()
}

fn id(answer: &Value) -> &str {
    assert_eq!(answer["state"], "succeeded", "{answer}");
    answer["call_id"].as_str().unwrap()
}

#[tokio::test]
async fn a_turn_stores_what_is_new_and_the_model_gets_all() {
    let (witness, server, fleet) = start(&[]).await;
    let first = json!({"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "first"}], "n": 1.10});
    let first = ask(&fleet, "ask_model", &first).await;
    let second = after(id(&first), "second");
    let second_answer = ask(&fleet, "ask_model", &second).await;
    let third = ask(&fleet, "ask_model", &after(id(&second_answer), "third")).await;
    id(&third);
    let sent = server.log().await.pop().unwrap();
    let contents: Vec<_> = sent["body"]["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| (&message["role"], &message["content"]))
        .collect();
    let text = |role: &'static str, text: &'static str| (json!(role), json!(text));
    let expected = [
        text("system", "be brief"),
        text("user", "first"),
        text("assistant", "one"),
        text("user", "second"),
        text("assistant", "two"),
        text("user", "third"),
    ];
    let expected: Vec<_> = expected.iter().map(|(role, text)| (role, text)).collect();
    assert_eq!(contents, expected);
    assert_eq!(
        sent["body"]["n"],
        Value::Null,
        "only messages are taken over"
    );

    // What is stored is the reference.
    let row = fleet.call(id(&second_answer).parse().unwrap()).await;
    assert_eq!(row["args"], second);
    // A repetition has the same key, whatever has become of the conversation.
    let key = fleet.submit("ask_model", &second).key("again");
    let once = key.clone().wait().await;
    let again = key.wait().await;
    assert_eq!(again["replayed"], true, "{}", *again);
    assert_eq!(once.call_id(), again.call_id());
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_a_conversation_cannot_go_on_from_ends_the_call_before_an_attempt_and_says_why() {
    let secretive = |server: &ModelServer| {
        manifest(server, "sensitive: { pointers: [/user], mode: mask }\n")
            .replace("name: ask_model", "name: ask_secretly")
    };
    let (witness, server, fleet) = start(&[]).await;
    fleet.apply(&secretive(&server)).await;
    let first = json!({"messages": [{"role": "user", "content": "first"}]});
    let theirs = fleet
        .submit("ask_model", &first)
        .tenant("other")
        .wait()
        .await;
    let failed = json!({"messages": [{"role": "user", "content": "broken"}]});
    let failed = ask(&fleet, "ask_model", &failed).await;
    assert_eq!(failed["state"], "failed", "{failed}");
    let looked = ask(&fleet, "look", &json!({"what": "x"})).await;
    let secret = ask(&fleet, "ask_secretly", &first).await;
    let gone = "0192a6a0-0000-7000-8000-000000000001";
    let asked = server.log().await.len();
    for (call, why) in [
        (theirs["call_id"].as_str().unwrap(), "there is no such call"),
        (gone, "there is no such call"),
        (failed["call_id"].as_str().unwrap(), "it did not succeed"),
        (id(&looked), "it is no call of a model"),
        (id(&secret), "it is no call of a model"),
    ] {
        let answer = ask(&fleet, "ask_model", &after(call, "second")).await;
        assert_eq!(
            (
                &answer["state"],
                &answer["error"]["code"],
                &answer["attempts"]
            ),
            (&json!("failed"), &json!("not_found"), &json!(0)),
            "{answer}"
        );
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(why) && message.contains(call), "{message}");
        assert_eq!(answer["outcome"], "business_error", "{answer}");
        assert_eq!(answer["error"]["suggestion"], "fix_arguments");
    }
    for wrong in [
        json!({"messages": [{"role": "user", "content": "x"}, {"$call": gone}]}),
        json!({"messages": [{"$call": gone, "role": "user"}]}),
        json!({"messages": [{"$call": "yesterday's"}]}),
    ] {
        let answer = ask(&fleet, "ask_model", &wrong).await;
        assert_eq!(answer["error"]["code"], "invalid_arguments", "{answer}");
        assert_eq!(answer["attempts"], 0);
    }
    assert_eq!(server.log().await.len(), asked, "nothing was sent");
    let dead: i64 = sqlx::query_scalar("SELECT count(*) FROM toolfleet.dead_letters")
        .fetch_one(&fleet.database.pool)
        .await
        .unwrap();
    assert_eq!(dead, 0, "its caller's mistakes are no dead letters");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_conversation_is_bounded() {
    let (witness, _server, fleet) = start(&[]).await;
    let text = "x".repeat(1_000_000);
    let mut last = ask(
        &fleet,
        "ask_model",
        &json!({"messages": [{"role": "user", "content": text}]}),
    )
    .await;
    for _ in 0..3 {
        last = ask(&fleet, "ask_model", &after(id(&last), &text)).await;
    }
    // Four of them have a little less than 4 MiB, five have more.
    let fifth = ask(&fleet, "ask_model", &after(id(&last), &text)).await;
    let over = ask(&fleet, "ask_model", &after(id(&fifth), "x")).await;
    assert_eq!(over["error"]["code"], "payload_too_large", "{over}");
    assert_eq!(over["attempts"], 0);
    invariants::hold(&fleet, &witness).await;
}

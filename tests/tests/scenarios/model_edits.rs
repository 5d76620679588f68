//! What else stands between a conversation and its model: a hint at a sub-agent, the right tools of many, a todo list.

use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec},
    invariants,
    models::ModelServer,
    witness::Witness,
};
use serde_json::{Value, json};

use crate::models::{manifest, said};

fn server() -> ModelServer {
    let text = "Well.\n[TODO_ADD: title=Book the hotel]\n[TODO_UPDATE: id=t1, status=completed]\n[TODO_UPDATE: all done]\nDone.";
    ModelServer::start(
        &json!({"rules": [
            {"match": {"text": "plan"}, "answer": {"text": text}},
            {"answer": {"text": "Yes."}},
        ]}),
        &[],
    )
}

/// The last request that the server received.
async fn last(server: &ModelServer) -> Value {
    let log = server.log().await;
    log.last().unwrap()["body"].clone()
}

fn edit<'a>(answer: &'a Answer, interceptor: &str) -> Option<&'a Value> {
    let edits = answer["result"]["edits"].as_array()?;
    edits.iter().find(|edit| edit["interceptor"] == interceptor)
}

fn definition(name: &str, description: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "description": description, "parameters": {"type": "object"}}})
}

/// The request with the agent among its tools.
fn with_agent(mut request: Value) -> Value {
    request["tools"] = json!([definition(
        "billing_agent",
        "Does what has to do with money."
    )]);
    request
}

fn names(request: &Value) -> Vec<&str> {
    let tools = request["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_model_is_told_of_the_agent_for_what_the_user_asks() {
    let witness = Witness::start().await;
    let server = server();
    let delegates = "delegates:\n  - tool: billing_agent\n    keywords: [{ word: refund, weight: 5 }, { word: 发票, weight: 5 }]\n";
    let fleet = Fleet::start(Spec::with([manifest(&server, delegates)])).await;

    let answer = fleet
        .submit("ask_model", &with_agent(said("Where is my refund?")))
        .wait()
        .await;
    let told = edit(&answer, "delegation").unwrap();
    assert_eq!(
        (&told["tool"], &told["score"]),
        (&json!("billing_agent"), &json!(5)),
        "{}",
        *answer
    );
    let request = last(&server).await;
    let messages = request["messages"].as_array().unwrap();
    assert_eq!(
        (messages.len(), &messages[1]["role"]),
        (2, &json!("system"))
    );
    let note = messages[1]["content"].as_str().unwrap();
    assert!(
        note.contains("billing_agent") && note.lines().count() == 1,
        "{note}"
    );
    // In the caller's language.
    let call = fleet.submit("ask_model", &with_agent(said("我的发票在哪里？")));
    let answer = call.header("Toolfleet-Language", "zh").wait().await;
    assert!(edit(&answer, "delegation").is_some(), "{}", *answer);
    let request = last(&server).await;
    assert!(
        request["messages"][1]["content"]
            .as_str()
            .unwrap()
            .contains("提示")
    );

    // Only the last message of the user counts, and what looks like a hint is text.
    let like_one = format!("{note} Is this true?");
    for messages in [
        json!([{"role": "user", "content": "a refund"}, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Thanks."}]),
        json!([{"role": "user", "content": like_one}]),
        json!([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "A refund? A refund!"}, {"role": "user", "content": "No."}]),
    ] {
        let answer = fleet
            .submit(
                "ask_model",
                &with_agent(json!({"messages": messages.clone()})),
            )
            .wait()
            .await;
        assert!(answer["result"].get("edits").is_none(), "{}", *answer);
        assert_eq!(last(&server).await["messages"], messages);
    }
    // Of a tool that it cannot call it is not told.
    let alone = fleet.submit("ask_model", &said("Where is my refund?"));
    assert!(alone.wait().await["result"].get("edits").is_none());
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_model_is_offered_the_tools_that_the_conversation_needs() {
    let witness = Witness::start().await;
    let server = server();
    let own = manifest(&server, "tool_selection: { max: 2, always: [stop] }\n");
    let of_fleet = "tool_selection: { from: fleet, only: [look, charge], max: 1 }\n";
    let of_fleet = manifest(&server, of_fleet).replace("ask_model", "ask_fleet");
    let look = witness.tool("look", "read").replace(
        "description:",
        "description: Looks at the weather of a city. #",
    );
    let charge = witness
        .tool("charge", "once")
        .replace("description:", "description: Charges an account. #");
    let fleet = Fleet::start(Spec::with([own, of_fleet, look, charge])).await;

    let tools: Vec<Value> = [
        ("send_mail", "Sends a mail to somebody."),
        ("get_weather", "Tells the weather of a city."),
        ("stop", "Ends the conversation."),
        ("book_hotel", "Books a room in a hotel."),
        ("get_news", "Tells the news of today."),
    ]
    .map(|(name, description)| definition(name, description))
    .to_vec();
    let ask = |text: &str, more: Value| {
        let mut request = said(text);
        request["tools"] = json!(tools);
        request
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        request
    };
    let request = ask("How is the weather, and is there a hotel?", json!({}));
    let answer = fleet.submit("ask_model", &request).wait().await;
    assert_eq!(
        names(&last(&server).await),
        ["get_weather", "stop", "book_hotel"]
    );
    let told = edit(&answer, "tool_selection").unwrap();
    assert_eq!(
        told["kept"],
        json!(["get_weather", "stop", "book_hotel"]),
        "{}",
        *answer
    );
    assert!(told["to"].as_u64() < told["tokens"].as_u64(), "{told}");
    // What must be called stays, and where nothing fits everything does.
    let choice = json!({"tool_choice": {"type": "function", "function": {"name": "send_mail"}}});
    fleet
        .submit("ask_model", &ask("weather and a hotel", choice))
        .wait()
        .await;
    assert_eq!(
        names(&last(&server).await),
        ["send_mail", "get_weather", "stop", "book_hotel"]
    );
    fleet
        .submit("ask_model", &ask("Xyzzy!", json!({})))
        .wait()
        .await;
    assert_eq!(names(&last(&server).await).len(), 5);

    // The fleet adds its own, and the way to the others.
    let answer = fleet
        .submit("ask_fleet", &said("Charge my account, please."))
        .wait()
        .await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    let request = last(&server).await;
    assert_eq!(names(&request), ["charge", "find_tools"], "{}", *answer);
    // What find_tools has named stays.
    let found = json!({"tools": [{"name": "look", "description": "Looks."}]}).to_string();
    let call = json!({"id": "c1", "type": "function", "function": {"name": "find_tools", "arguments": "{\"query\":\"weather\"}"}});
    let conversation = json!({"messages": [
        {"role": "user", "content": "Charge my account, please."},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": found},
    ]});
    fleet.submit("ask_fleet", &conversation).wait().await;
    assert_eq!(
        names(&last(&server).await),
        ["charge", "find_tools", "look"]
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_model_is_told_the_list_of_its_session_and_writes_it() {
    let witness = Witness::start().await;
    let server = server();
    let fleet = Fleet::start(Spec::with([manifest(
        &server,
        "todo: { directives: true }\n",
    )]))
    .await;
    let ask = async |text: &str, session: Option<&str>| {
        let mut call = fleet.submit("ask_model", &said(text));
        if let Some(session) = session {
            call = call.header("Toolfleet-Session", session);
        }
        call.wait().await
    };

    let answer = ask("plan", Some("s")).await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    let content = &answer["result"]["reply"]["choices"][0]["message"]["content"];
    assert_eq!(*content, "Well.\n[TODO_UPDATE: all done]\nDone.");
    let told = edit(&answer, "todo").unwrap();
    assert_eq!(
        told["directives"],
        json!({"add": 1, "update": 1, "unreadable": 1})
    );
    let ask_again = ask("and now?", Some("s")).await;
    assert_eq!(
        edit(&ask_again, "todo").unwrap()["items"],
        1,
        "{}",
        *ask_again
    );
    let messages = last(&server).await["messages"].clone();
    let note = messages[1]["content"].as_str().unwrap();
    assert!(
        note.ends_with("- t1 [pending] \"Book the hotel\""),
        "{note}"
    );
    // Another session has a list of its own, and a call without one has none: its text is text.
    for session in [None, Some("other")] {
        let answer = ask("and now?", session).await;
        assert!(answer["result"].get("edits").is_none(), "{}", *answer);
        assert_eq!(last(&server).await["messages"].as_array().unwrap().len(), 1);
    }
    let answer = ask("plan", None).await;
    let content = &answer["result"]["reply"]["choices"][0]["message"]["content"];
    assert!(
        content.as_str().unwrap().contains("[TODO_ADD"),
        "{}",
        *answer
    );
    invariants::hold(&fleet, &witness).await;
}

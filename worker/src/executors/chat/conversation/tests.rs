use super::*;

const ID: &str = "0192a6a0-0000-7000-8000-000000000001";

fn turn(args: &Value, reply: &Value) -> ConversationTurn {
    ConversationTurn {
        call: ID.parse().unwrap(),
        args: args.to_string(),
        result: json!({"reply": reply, "route": "main"}).to_string(),
    }
}

#[test]
fn a_reference_stands_first_and_alone() {
    let user = json!({"role": "user", "content": "hi"});
    let found = |messages: Value| {
        let args = json!({ "messages": messages });
        let found = earlier(ChatProtocol::OpenaiChat, &args);
        found.map_err(|failure| failure.code)
    };
    let call = Some(ID.parse().unwrap());
    assert_eq!(found(json!([{"$call": ID}, user])), Ok(call));
    assert_eq!(found(json!([{"$call": ID}])), Ok(call));
    assert_eq!(found(json!([user])), Ok(None));
    assert_eq!(found(json!([])), Ok(None));
    for wrong in [
        json!([user, {"$call": ID}]),
        json!([{"$call": ID}, {"$call": ID}]),
        json!([{"$call": ID, "role": "user"}]),
        json!([{"$call": 7}]),
        json!([{"$call": "yesterday's"}]),
        json!([{"$call": null}]),
    ] {
        let found = found(wrong.clone());
        assert_eq!(found, Err(Code::InvalidArguments), "{wrong}");
    }
    let text = json!({"input": "$call"});
    assert_eq!(earlier(ChatProtocol::OpenaiResponses, &text), Ok(None));
}

#[test]
fn a_conversation_has_the_messages_of_all_its_calls_and_their_replies() {
    let user = |text: &str| json!({"role": "user", "content": text});
    let reference = json!({"$call": ID});

    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let said = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let reply = json!({"choices": [{"index": 0, "message": said, "finish_reason": "tool_calls"}]});
    let done = json!({"role": "tool", "tool_call_id": "c", "content": "3"});
    let turns = [turn(
        &json!({"messages": [{"role": "system", "content": "s"}, user("a")]}),
        &reply,
    )];
    let args = json!({"messages": [reference, done], "temperature": 1});
    let whole = joined(ChatProtocol::OpenaiChat, args, &turns).unwrap();
    let expected = json!({"messages": [{"role": "system", "content": "s"}, user("a"), said, done], "temperature": 1});
    assert_eq!(whole, expected);

    let blocks = json!([{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "b"}]);
    let turns = [
        turn(
            &json!({"messages": [user("a")]}),
            &json!({"type": "message", "role": "assistant", "content": blocks}),
        ),
        turn(
            &json!({"messages": [reference, user("c")]}),
            &json!({"type": "message", "role": "assistant", "content": []}),
        ),
    ];
    let args = json!({"messages": [reference, user("d")], "system": "s"});
    let whole = joined(ChatProtocol::Anthropic, args, &turns).unwrap();
    let said = json!({"role": "assistant", "content": blocks});
    let expected = json!({"messages": [user("a"), said, user("c"), user("d")], "system": "s"});
    assert_eq!(whole, expected);

    let items = json!([{"type": "reasoning", "id": "r"}, {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]);
    let turns = [turn(&json!({"input": "a"}), &json!({"output": items}))];
    let output = json!({"type": "function_call_output", "call_id": "c", "output": "3"});
    let args = json!({"input": [reference, output]});
    let whole = joined(ChatProtocol::OpenaiResponses, args, &turns).unwrap();
    assert_eq!(
        whole,
        json!({"input": [user("a"), items[0], items[1], output]})
    );
}

#[test]
fn numbers_of_a_conversation_are_as_they_were_sent() {
    let turns = [ConversationTurn {
        call: ID.parse().unwrap(),
        args: r#"{"messages":[{"role":"user","content":"a","n":1.10}]}"#.to_owned(),
        result: r#"{"reply":{"choices":[{"message":{"role":"assistant","content":"b","p":9007199254740993}}]}}"#.to_owned(),
    }];
    let args = json!({"messages": [{"$call": ID}]});
    let whole = joined(ChatProtocol::OpenaiChat, args, &turns).unwrap();
    let text = whole.to_string();
    assert!(
        text.contains("1.10") && text.contains("9007199254740993"),
        "{text}"
    );
}

#[test]
fn a_conversation_of_too_many_values_is_refused() {
    let turn = |values: usize| ConversationTurn {
        call: ID.parse().unwrap(),
        args: json!({"messages": [{"role": "user", "content": vec![0; values]}]}).to_string(),
        result: r#"{"reply":{"choices":[{"message":{"role":"assistant","content":"b"}}]}}"#
            .to_owned(),
    };
    let args = || json!({"messages": [{"$call": ID}]});
    let of = |turns: &[ConversationTurn]| joined(ChatProtocol::OpenaiChat, args(), turns);
    assert!(of(&[turn(49_900), turn(49_900)]).is_ok());
    let refused = of(&[turn(50_000), turn(50_000)]).unwrap_err();
    assert_eq!(refused.code, Code::PayloadTooLarge);
}

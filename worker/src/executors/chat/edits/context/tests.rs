use fleet::manifest::ChatProtocol;
use proptest::prelude::*;

use super::{super::groups, *};
use crate::executors::chat::dialect;

fn spec(changes: &Value) -> ContextSpec {
    serde_json::from_value(changes.clone()).unwrap()
}

fn edit(protocol: ChatProtocol, spec: &ContextSpec, request: &Value) -> (Value, Option<Value>) {
    edit_with(protocol, spec, request, None)
}

fn edit_with(
    protocol: ChatProtocol,
    spec: &ContextSpec,
    request: &Value,
    summary: Option<Summary>,
) -> (Value, Option<Value>) {
    let original = request.as_object().unwrap();
    let mut request = ModelRequest {
        dialect: dialect::of(protocol),
        original,
        members: Cow::Borrowed(original),
    };
    let context = Context {
        spec,
        room: None,
        ratio: 1_000,
        summary,
        no_summary: None,
        weights: &RequestWeights::default(),
    };
    let done = context.before(&mut request);
    if done.is_none() {
        assert_eq!(*request.members, *original);
    }
    (
        Value::Object(request.members.into_owned()),
        done.map(Value::Object),
    )
}

fn said(role: &str, tokens: usize, mark: &str) -> Value {
    json!({"role": role, "content": format!("{mark}{}", "abc ".repeat(tokens))})
}

fn marks(request: &Value) -> Vec<String> {
    let messages = request["messages"].as_array().unwrap();
    let mark = |message: &Value| {
        let text = message["content"].as_str().unwrap_or_default();
        text.chars().take(2).collect()
    };
    messages.iter().map(mark).collect()
}

/// A system message and so many turns of a question and an answer, of 100 tokens each.
fn turns(n: usize) -> Value {
    let mut messages = vec![said("system", 100, "s ")];
    for turn in 0..n {
        messages.push(said("user", 100, &format!("u{turn}")));
        messages.push(said("assistant", 100, &format!("a{turn}")));
    }
    messages.pop();
    json!({"messages": messages})
}

#[test]
fn what_is_short_enough_is_not_touched() {
    for strategy in ["trim", "sliding_window", "summarize", "hybrid"] {
        let spec = spec(&json!({"strategy": strategy}));
        let (same, done) = edit(ChatProtocol::OpenaiChat, &spec, &turns(9));
        assert_eq!((same, done), (turns(9), None));
    }
    // What is no list of messages is left to the vendor.
    let text = json!({"input": "abc ".repeat(10_000)});
    let spec = spec(&json!({"strategy": "trim"}));
    assert_eq!(
        edit(ChatProtocol::OpenaiResponses, &spec, &text),
        (text, None)
    );
}

#[test]
fn a_strategy_says_what_stays() {
    let trim =
        spec(&json!({"strategy": "trim", "max_tokens": 900, "keep_first": 2, "keep_last": 3}));
    let (sent, done) = edit(ChatProtocol::OpenaiChat, &trim, &turns(9));
    assert_eq!(marks(&sent), ["s ", "u0", "a0", "u7", "a7", "u8"]);
    let done = done.unwrap();
    assert_eq!(
        (&done["dropped"], &done["limit"]),
        (&json!(12), &json!(900))
    );
    assert!(
        done["tokens"].as_u64() > Some(1_700) && done["to"].as_u64() < Some(700),
        "{done}"
    );

    let window = spec(&json!({"strategy": "sliding_window", "max_tokens": 900, "keep_turns": 2}));
    let (sent, _) = edit(ChatProtocol::OpenaiChat, &window, &turns(9));
    assert_eq!(marks(&sent), ["s ", "u7", "a7", "u8"]);

    // Where what a strategy leaves is too long the oldest go, and what the model said goes with the question.
    let window = spec(&json!({"strategy": "sliding_window", "max_tokens": 450, "keep_turns": 4}));
    let (sent, done) = edit(ChatProtocol::OpenaiChat, &window, &turns(9));
    assert_eq!(marks(&sent), ["s ", "u7", "a7", "u8"]);
    assert_eq!(done.unwrap().get("unmet"), None);

    // The system, the last question and the last group always stay, and it is said that this is too long.
    let window = spec(&json!({"strategy": "sliding_window", "max_tokens": 100, "keep_turns": 4}));
    let (sent, done) = edit(ChatProtocol::OpenaiChat, &window, &turns(9));
    assert_eq!(marks(&sent), ["s ", "u8"]);
    assert_eq!(done.unwrap()["unmet"], true);
    let (again, done) = edit(ChatProtocol::OpenaiChat, &window, &sent);
    assert_eq!(again, sent);
    assert_eq!(done.unwrap()["unmet"], true);
}

#[test]
fn a_summary_stands_for_the_beginning() {
    let hybrid = spec(&json!({"strategy": "hybrid", "max_tokens": 700}));
    let summary = Summary {
        until: 11,
        text: "S: they talked.".to_owned(),
        is_new: true,
    };
    let (sent, done) = edit_with(ChatProtocol::OpenaiChat, &hybrid, &turns(9), Some(summary));
    assert_eq!(marks(&sent), ["s ", "S:", "u6", "a6", "u7", "a7", "u8"][..]);
    let done = done.unwrap();
    assert_eq!(done["summary"], json!({"until": 11, "new": true}));
    // With the summary what follows it is too long: the oldest go.
    assert_eq!(
        (&done["dropped"], done.get("unmet")),
        (&json!(2), None),
        "{done}"
    );
}

#[test]
fn a_note_behind_results_is_no_turn_of_the_user() {
    let asked = json!([
        {"role": "user", "content": "Look at both."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "seen"}]},
    ]);
    let mut request = json!({ "messages": asked });
    let dialect = dialect::of(ChatProtocol::Anthropic);
    dialect.note(request.as_object_mut().unwrap(), "A list.");
    let (said, noted) = (asked.as_array().unwrap(), &request["messages"]);
    assert_ne!(noted, &asked);
    let has_user = |said: &[Value]| -> Vec<bool> {
        let groups = groups::of(dialect, noted.as_array().unwrap(), said);
        groups.iter().map(|group| group.has_user).collect()
    };
    assert_eq!(has_user(said), [true, false]);
    // What the user says there himself is one.
    assert_eq!(has_user(noted.as_array().unwrap()), [true, true]);
}

fn weigh(protocol: ChatProtocol, request: &Value) -> Weighed {
    let request = request.as_object().unwrap();
    Weighed::of(dialect::of(protocol), request, request, 1_000).unwrap()
}

#[test]
fn thousands_of_calls_at_once_are_one_group() {
    let ids: Vec<String> = (0..16_000).map(|n| n.to_string()).collect();
    let texts = vec!["ok".to_owned(); ids.len()];
    let mut messages = vec![json!({"role": "user", "content": "go"})];
    messages.extend(called(ChatProtocol::OpenaiChat, &ids, &texts));
    // It took seconds where each result was held against all open calls.
    let groups = groups::of(dialect::of(ChatProtocol::OpenaiChat), &messages, &messages);
    assert_eq!(groups.len(), 2);
}

#[test]
fn an_anthropic_conversation_begins_with_the_user_where_he_speaks_behind_results() {
    let window = spec(&json!({"strategy": "sliding_window", "max_tokens": 150, "keep_turns": 1}));
    let call = json!({"type": "tool_use", "id": "c", "name": "look", "input": {}});
    let result = json!({"type": "tool_result", "tool_use_id": "c", "content": "abc ".repeat(100)});
    let request = json!({"max_tokens": 10, "messages": [
        {"role": "user", "content": "abc ".repeat(100)},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result, {"type": "text", "text": "and now?"}]},
    ]});
    let (sent, _) = edit(ChatProtocol::Anthropic, &window, &request);
    let roles: Vec<&str> = sent["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    assert_eq!(sent["messages"][0]["content"], "go");
}

fn tool_call(id: &str) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": id, "type": "function", "function": {"name": "look", "arguments": "{}"}}]})
}

#[test]
fn old_results_of_tools_are_cleared_first() {
    let result =
        |id: &str, text: String| json!({"role": "tool", "tool_call_id": id, "content": text});
    let envelope = format!(
        "{{\"call_id\": \"0192a6a0-0000-7000-8000-000000000001\", \"result\": \"{}\"}}",
        "x ".repeat(400)
    );
    let request = json!({"messages": [
        {"role": "user", "content": "go"},
        tool_call("1"), result("1", envelope), tool_call("2"), result("2", "y ".repeat(400)),
        tool_call("3"), result("3", "short".to_owned()), tool_call("4"), result("4", "z ".repeat(400)),
    ]});
    let clear = spec(&json!({"strategy": "trim", "clear_tool_results": {"above": 500, "keep": 1}}));
    let (sent, done) = edit(ChatProtocol::OpenaiChat, &clear, &request);
    let texts = |n: usize| sent["messages"][n]["content"].as_str().unwrap().to_owned();
    assert_eq!(
        texts(2),
        "[result cleared: 865 bytes, tool call 1, call_id 0192a6a0-0000-7000-8000-000000000001]"
    );
    assert_eq!(texts(4), "[result cleared: 800 bytes, tool call 2]");
    assert_eq!((texts(6), texts(8)), ("short".to_owned(), "z ".repeat(400)));
    assert_eq!(done.unwrap()["cleared"], 2);
    let (again, done) = edit(ChatProtocol::OpenaiChat, &clear, &sent);
    assert_eq!((again, done), (sent, None));
}

/// What somebody says in a random conversation.
#[derive(Debug, Clone)]
enum Turn {
    System(usize),
    User(usize),
    Says(usize),
    /// It calls so many tools, whose results have so many tokens.
    Calls(Vec<usize>),
}

fn turn() -> impl Strategy<Value = Turn> {
    let tokens = prop_oneof![1..30_usize, 100..400_usize, Just(2_000)];
    prop_oneof![
        1 => (1..50_usize).prop_map(Turn::System),
        4 => tokens.clone().prop_map(Turn::User),
        3 => tokens.clone().prop_map(Turn::Says),
        4 => proptest::collection::vec(tokens, 1..4).prop_map(Turn::Calls),
    ]
}

/// The messages of these turns in a protocol.
fn conversation(protocol: ChatProtocol, turns: &[Turn]) -> Value {
    let mut messages = Vec::new();
    let mut calls = 0;
    let text = |tokens: &usize| "abc ".repeat(*tokens);
    for turn in turns {
        match (turn, protocol) {
            (Turn::System(tokens), _) => {
                messages.push(json!({"role": "system", "content": text(tokens)}))
            }
            (Turn::User(tokens), _) => {
                messages.push(json!({"role": "user", "content": text(tokens)}))
            }
            (Turn::Says(tokens), _) => {
                messages.push(json!({"role": "assistant", "content": text(tokens)}))
            }
            (Turn::Calls(results), _) => {
                let ids: Vec<String> = results
                    .iter()
                    .map(|_| {
                        calls += 1;
                        format!("c{calls}")
                    })
                    .collect();
                messages.extend(called(
                    protocol,
                    &ids,
                    &results.iter().map(text).collect::<Vec<_>>(),
                ));
            }
        }
    }
    messages.push(json!({"role": "user", "content": "and now?"}));
    if protocol == ChatProtocol::Anthropic {
        messages.retain(|message| message["role"] != "system");
        messages.insert(0, json!({"role": "user", "content": "hello"}));
        // As the package's users write them: nobody speaks twice in a row.
        let mut alternating: Vec<Value> = Vec::new();
        for message in messages {
            if alternating
                .last()
                .is_some_and(|last| last["role"] == message["role"])
            {
                let other = if message["role"] == "user" {
                    "assistant"
                } else {
                    "user"
                };
                alternating.push(json!({"role": other, "content": "go on"}));
            }
            alternating.push(message);
        }
        messages = alternating;
    }
    let member = dialect::of(protocol).messages();
    json!({ member: messages, "max_tokens": 10 })
}

fn called(protocol: ChatProtocol, ids: &[String], results: &[String]) -> Vec<Value> {
    let both = || ids.iter().zip(results);
    match protocol {
        ChatProtocol::OpenaiChat => {
            let made: Vec<Value> = ids
                .iter()
                .map(|id| tool_call(id)["tool_calls"][0].clone())
                .collect();
            let call = json!({"role": "assistant", "content": null, "tool_calls": made});
            let results = both()
                .map(|(id, text)| json!({"role": "tool", "tool_call_id": id, "content": text}));
            std::iter::once(call).chain(results).collect()
        }
        ChatProtocol::OpenaiResponses => {
            let made = ids.iter().map(|id| json!({"type": "function_call", "call_id": id, "name": "look", "arguments": "{}"}));
            let results = both().map(
                |(id, text)| json!({"type": "function_call_output", "call_id": id, "output": text}),
            );
            made.chain(results).collect()
        }
        ChatProtocol::Anthropic => {
            let made: Vec<Value> = ids
                .iter()
                .map(|id| json!({"type": "tool_use", "id": id, "name": "look", "input": {}}))
                .collect();
            let results: Vec<Value> = both()
                .map(
                    |(id, text)| json!({"type": "tool_result", "tool_use_id": id, "content": text}),
                )
                .collect();
            vec![
                json!({"role": "assistant", "content": made}),
                json!({"role": "user", "content": results}),
            ]
        }
    }
}

/// That every call has its results and every result its call, and with Anthropic that nobody speaks twice in a row.
fn check(protocol: ChatProtocol, request: &Value) {
    let dialect = dialect::of(protocol);
    let messages = request[dialect.messages()].as_array().unwrap();
    let mut open: Vec<String> = Vec::new();
    for message in messages {
        let answered: Vec<String> = dialect
            .answered(message)
            .iter()
            .map(ToString::to_string)
            .collect();
        for id in answered {
            let at = open.iter().position(|call| *call == id);
            open.remove(at.unwrap_or_else(|| panic!("nobody called {id}: {request}")));
        }
        let made = dialect.calls(message);
        if protocol != ChatProtocol::OpenaiResponses && !made.is_empty() {
            assert!(open.is_empty(), "{open:?}: {request}");
        }
        open.extend(made.iter().map(|call| call.id.to_owned()));
    }
    assert!(open.is_empty(), "{open:?} without a result: {request}");
    if protocol == ChatProtocol::Anthropic {
        assert_eq!(messages[0]["role"], "user", "{request}");
        for pair in messages.windows(2) {
            assert_ne!(pair[0]["role"], pair[1]["role"], "{request}");
        }
    }
    assert!(
        !dialect.user_texts(messages.last().unwrap()).is_empty(),
        "{request}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// Whatever is said, and whatever the strategy: what is sent is a conversation, keeps to the limit where it can be kept to, and a
    /// second look changes nothing.
    #[test]
    fn what_is_sent_is_a_conversation_within_the_limit(
        turns in proptest::collection::vec(turn(), 0..40),
        max in prop_oneof![100..400_u64, 400..4_000_u64],
        keep in 0..6_u32,
        clear in any::<bool>(),
        until in 0..60_usize,
    ) {
        for protocol in ChatProtocol::ALL {
            let request = conversation(*protocol, &turns);
            check(*protocol, &request);
            for strategy in ["trim", "sliding_window", "summarize", "hybrid"] {
                let mut said = json!({
                    "strategy": strategy, "max_tokens": max, "keep_first": keep, "keep_last": keep.max(1), "keep_turns": keep.max(1),
                    "summarize_above": max,
                });
                if clear {
                    said["clear_tool_results"] = json!({"above": max / 2, "keep": keep});
                }
                let spec = spec(&said);
                let (sent, done) = edit(*protocol, &spec, &request);
                check(*protocol, &sent);
                let weighed = weigh(*protocol, &sent);
                if let Some(done) = &done {
                    // Messages that are put together have one role less.
                    let told = done["to"].as_u64().unwrap();
                    let messages = request[dialect::of(*protocol).messages()].as_array().unwrap().len() as u64;
                    prop_assert!((weighed.all()..=weighed.all() + messages).contains(&told), "{}", done);
                }
                if weighed.all() > max {
                    prop_assert!(weighed.pinned.iter().all(|pinned| *pinned), "{}", sent);
                    prop_assert_eq!(&done.as_ref().unwrap()["unmet"], true);
                }
                let (again, _) = edit(*protocol, &spec, &sent);
                prop_assert_eq!(&again, &sent);

                // With a summary of a beginning as well.
                let weighed = weigh(*protocol, &request);
                let all_but_last = &weighed.groups[..weighed.groups.len() - 1];
                let ends = all_but_last.iter().map(|group| group.messages.end);
                if let Some(until) = ends.rev().find(|end| *end <= until) {
                    let summary = Summary { until, text: "They talked.".to_owned(), is_new: false };
                    let (sent, _) = edit_with(*protocol, &spec, &request, Some(summary));
                    check(*protocol, &sent);
                    let groups = weighed.groups.iter().zip(&weighed.pinned);
                    let stands_for = groups.filter(|(group, pinned)| !**pinned && group.messages.end <= until).count();
                    prop_assert!(stands_for == 0 || sent.to_string().contains("They talked."));
                }
            }
        }
    }
}

mod benchmark;

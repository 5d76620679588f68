use fleet::manifest::{ChatProtocol, ContextSpec};
use serde_json::json;

use super::{super::weighed::RequestWeights, *};
use crate::executors::chat::dialect;

fn turns(n: usize) -> Value {
    let mut messages = vec![json!({"role": "system", "content": "abc ".repeat(100)})];
    for turn in 0..n {
        messages.push(json!({"role": "user", "content": format!("u{turn} {}", "abc ".repeat(99))}));
        messages.push(
            json!({"role": "assistant", "content": format!("a{turn} {}", "abc ".repeat(99))}),
        );
    }
    messages.pop();
    json!({ "messages": messages })
}

/// What is needed of this request, with what is written of it where `known` is kept.
fn needed(
    spec: &Value,
    request: &Value,
    known: Option<(usize, &str)>,
) -> Option<(bool, Option<NewSummary>, usize)> {
    let spec: ContextSpec = serde_json::from_value(spec.clone()).unwrap();
    let original = request.as_object().unwrap();
    let request = ModelRequest {
        dialect: dialect::of(ChatProtocol::OpenaiChat),
        original,
        members: Cow::Borrowed(original),
    };
    let context = Context {
        spec: &spec,
        room: None,
        ratio: 1_000,
        summary: None,
        no_summary: None,
        weights: &RequestWeights::default(),
    };
    let needed = NeededSummary::of(&context, &request)?;
    let known = known.map(|(place, text)| KeptSummary {
        place,
        text: text.to_owned(),
    });
    let is_enough = known
        .as_ref()
        .is_some_and(|known| needed.enough(known).is_some());
    let new = needed.next(known.as_ref(), &request);
    Some((is_enough, new, needed.hashes().len()))
}

#[test]
fn it_is_needed_above_a_number_of_tokens_and_reaches_to_half_of_it() {
    let summarize = json!({"strategy": "summarize", "summarize_above": 2_000});
    assert!(needed(&summarize, &turns(9), None).is_none());
    let (_, new, boundaries) = needed(&summarize, &turns(12), None).unwrap();
    // The last group is never part of one.
    assert_eq!(boundaries, 22);
    let new = new.unwrap();
    // The system's 100, 500 for the summary, and three messages of 100 behind it are less than 1,000.
    assert_eq!(new.until, 1 + 20);
    assert!(
        new.transcript.starts_with("{\"content\":\"u0 "),
        "{}",
        new.transcript
    );
    assert_eq!(new.transcript.lines().count(), 20);
    // That is enough for some turns, and then another one goes on from it.
    let known = Some((19, "They talked."));
    for n in 12..20 {
        assert!(needed(&summarize, &turns(n), known).unwrap().0, "{n}");
    }
    let (is_enough, new, _) = needed(&summarize, &turns(20), known).unwrap();
    let new = new.unwrap();
    assert!(!is_enough);
    assert_eq!(new.until, 1 + 36);
    let begins = "Summary of what came before:\nThey talked.\n\n{\"content\":\"u10 ";
    assert!(new.transcript.starts_with(begins), "{}", new.transcript);
}

#[test]
fn with_turns_that_stay_it_ends_where_they_begin() {
    let hybrid = json!({"strategy": "hybrid", "max_tokens": 2_000, "keep_turns": 2});
    let (_, new, _) = needed(&hybrid, &turns(12), None).unwrap();
    assert_eq!(new.unwrap().until, 1 + 20);
    // Where these are too long it stands for some of them.
    let hybrid = json!({"strategy": "hybrid", "max_tokens": 2_000, "keep_turns": 10});
    let (_, new, _) = needed(&hybrid, &turns(12), None).unwrap();
    assert_eq!(new.unwrap().until, 1 + 20);
}

#[test]
fn what_is_said_anew_is_another_beginning_and_the_system_is_none_of_it() {
    let spec = json!({"strategy": "summarize", "summarize_above": 500});
    let hash = |request: &Value| needed(&spec, request, None).unwrap().1.unwrap().hash;
    let (one, mut other) = (turns(12), turns(12));
    other["messages"][0]["content"] = json!("another");
    assert_eq!(hash(&one), hash(&other));
    other["messages"][1]["content"] = json!("another");
    assert_ne!(hash(&one), hash(&other));
}

#[test]
fn a_text_that_saves_nothing_is_no_summary() {
    let spec = json!({"strategy": "summarize", "summarize_above": 500});
    let new = needed(&spec, &turns(6), None).unwrap().1.unwrap();
    assert_eq!(new.written("They talked."), Ok(()));
    assert_eq!(new.written(" \n"), Err("empty"));
    assert_eq!(new.written(&"abc ".repeat(2_000)), Err("longer"));
    // A single message that is too long has no beginning.
    let long = json!({"messages": [{"role": "user", "content": "abc ".repeat(1_000)}]});
    assert_eq!(needed(&spec, &long, None), Some((false, None, 0)));
}

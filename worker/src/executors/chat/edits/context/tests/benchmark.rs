//! What it takes to keep a long conversation within a number of tokens.

use super::{super::super::summary::NeededSummary, *};

/// A message of somebody who talks.
fn talk(words: &str, n: usize) -> Value {
    let text = words.repeat(1_024 / words.len());
    json!({"role": if n.is_multiple_of(2) { "user" } else { "assistant" }, "content": text})
}

/// A message of somebody who calls tools.
fn calls(words: &str, n: usize) -> Value {
    let text = words.repeat(2_048 / words.len());
    let call = json!({"id": format!("c{}", n / 2), "type": "function", "function": {"name": "look", "arguments": "{}"}});
    match n % 2 {
        _ if n == 0 => json!({"role": "user", "content": "go"}),
        1 => json!({"role": "assistant", "tool_calls": [call]}),
        _ => {
            json!({"role": "tool", "tool_call_id": format!("c{}", (n - 1) / 2), "content": text})
        }
    }
}

/// `cargo nextest run --release -p worker --run-ignored only -E 'test(a_mebibyte)' --no-capture` prints the ratios.
#[test]
#[ignore = "a benchmark"]
fn a_mebibyte_takes_so_many_times_its_parsing() {
    let best = |run: &mut dyn FnMut()| {
        let times = (0..15).map(|_| {
            let began = std::time::Instant::now();
            run();
            began.elapsed()
        });
        times.min().unwrap()
    };
    type Said = fn(&str, usize) -> Value;
    let conversations: [(&str, Said); 4] = [
        ("word and word ", talk),
        ("天气很好今天 ", talk),
        ("17, -- 3.5 ", talk),
        ("{\"result\": 17} ", calls),
    ];
    for (words, said) in conversations {
        let messages: Vec<Value> = (0..1_025).map(|n| said(words, n)).collect();
        let body = json!({ "messages": messages }).to_string();
        let parsing = best(&mut || {
            let read: Value = serde_json::from_str(&body).unwrap();
            std::hint::black_box(read);
        });
        let request: Value = serde_json::from_str(&body).unwrap();
        for (strategy, max) in [("trim", 10_000_000), ("trim", 8_000), ("hybrid", 8_000)] {
            let spec = spec(
                &json!({"strategy": strategy, "max_tokens": max, "clear_tool_results": {"above": 4_000}}),
            );
            let original = request.as_object().unwrap();
            let took = best(&mut || {
                let mut request = ModelRequest {
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
                let needed = NeededSummary::of(&context, &request);
                std::hint::black_box((needed.is_some(), context.before(&mut request)));
            });
            let times = took.as_secs_f64() / parsing.as_secs_f64();
            println!(
                "{words:?} {strategy} {max}: {times:.2} times parsing {} bytes ({parsing:?})",
                body.len()
            );
        }
    }
}

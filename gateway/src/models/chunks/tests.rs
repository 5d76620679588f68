use serde_json::{Value, json};

use super::*;

const ID: &str = "01980000-0000-7000-8000-000000000000";

fn output(attempt: u32, part: u32, chunks: &Value) -> Value {
    json!({"call_id": ID, "kind": "output", "attempt": attempt, "part": part, "route": "main", "chunks": chunks})
}

fn said(text: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]})
}

fn stop() -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
}

fn usage() -> Value {
    json!({"choices": [], "usage": {"total_tokens": 1}})
}

/// What is written of these events; why it ends, where it does.
fn heard(fold: &mut ChunkFold, events: &[Value]) -> (String, Option<CutOff>) {
    let mut to = BytesMut::new();
    let mut cut = None;
    for event in events {
        let bytes = event.to_string();
        let event = CallEvent::read(bytes.as_bytes()).unwrap();
        if let Err(why) = fold.hear(&event, &mut to) {
            cut = Some(why);
            break;
        }
    }
    (String::from_utf8(to.to_vec()).unwrap(), cut)
}

fn texts(written: &str) -> Vec<String> {
    let lines = written
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    let chunks = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let text = |chunk: Value| {
        chunk["choices"][0]["delta"]["content"]
            .as_str()
            .map(ToOwned::to_owned)
    };
    chunks.filter_map(text).collect()
}

fn chat() -> ChunkFold {
    ChunkFold::new(ChatProtocol::OpenaiChat, false)
}

#[test]
fn chunks_go_on_as_they_came() {
    let mut fold = chat();
    let raw = r#"{"call_id":"01980000-0000-7000-8000-000000000000","kind":"output","attempt":1,"part":0,"route":"r","chunks":[{"n" : 1.10,"choices":[{"index":0}]}]}"#;
    let mut to = BytesMut::new();
    fold.hear(&CallEvent::read(raw.as_bytes()).unwrap(), &mut to)
        .unwrap();
    assert_eq!(
        &to[..],
        b"data: {\"n\" : 1.10,\"choices\":[{\"index\":0}]}\n\n"
    );
    assert_eq!(
        (fold.route(), fold.has_sent(), fold.has_ended()),
        (Some("r"), true, false)
    );
    let mut fold = ChunkFold::new(ChatProtocol::Anthropic, false);
    let (written, _) = heard(
        &mut fold,
        &[output(1, 0, &json!([{"type": "message_stop"}]))],
    );
    assert_eq!(
        written,
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
    );
    assert!(fold.has_ended());
}

#[test]
fn nothing_becomes_a_line_of_its_own() {
    let mut fold = ChunkFold::new(ChatProtocol::OpenaiResponses, false);
    let odd = json!([{"type": "a\nevent: b", "x": "c\ndata: d"}]);
    let (written, _) = heard(&mut fold, &[output(1, 0, &odd)]);
    assert_eq!(written.lines().count(), 2, "{written}");
    assert!(written.starts_with("data: "), "{written}");
}

#[test]
fn tokens_are_told_to_who_wants_them() {
    let events = [output(1, 0, &json!([said("a"), stop(), usage()]))];
    for wants in [false, true] {
        let mut fold = ChunkFold::new(ChatProtocol::OpenaiChat, wants);
        let (written, _) = heard(&mut fold, &events);
        assert_eq!(written.contains("total_tokens"), wants);
        assert!(fold.has_ended());
    }
}

#[test]
fn what_is_void_or_missing_cuts_off_who_has_had_something() {
    let first = || output(1, 0, &json!([said("a")]));
    let mut restart = output(1, 1, &json!([said("b")]));
    restart["restart"] = json!(true);
    let started = json!({"call_id": ID, "kind": "started", "attempt": 2, "at": "x"});
    for (events, cut) in [
        (vec![first(), restart.clone()], Some(CutOff::Restarted)),
        (vec![first(), started.clone()], Some(CutOff::Restarted)),
        (
            vec![first(), output(2, 0, &json!([said("b")]))],
            Some(CutOff::Restarted),
        ),
        (
            vec![first(), output(1, 2, &json!([said("b")]))],
            Some(CutOff::Gap),
        ),
        // Twice, or late.
        (vec![first(), first()], None),
        (vec![started.clone(), first()], None),
    ] {
        let mut fold = chat();
        let (written, why) = heard(&mut fold, &events);
        assert_eq!(why, cut, "{events:?}");
        assert!(texts(&written).len() <= 1, "{written}");
    }
    // Who has had nothing is told from where it begins anew.
    let lost = output(1, 3, &json!([said("x")]));
    restart["part"] = json!(5);
    let mut fold = chat();
    let events = [
        lost.clone(),
        output(1, 4, &json!([said("y")])),
        restart,
        output(1, 6, &json!([said("c"), stop()])),
    ];
    let (written, why) = heard(&mut fold, &events);
    assert_eq!(
        (texts(&written), why),
        (vec!["b".to_owned(), "c".to_owned()], None)
    );
    let mut fold = chat();
    let (written, why) = heard(
        &mut fold,
        &[lost, started, output(2, 0, &json!([said("z")]))],
    );
    assert_eq!((texts(&written), why), (vec!["z".to_owned()], None));
}

#[test]
fn an_error_of_the_vendor_is_not_told_and_nothing_behind_it() {
    for (protocol, error) in [
        (ChatProtocol::OpenaiChat, json!({"error": {"message": "m"}})),
        (
            ChatProtocol::OpenaiResponses,
            json!({"type": "error", "message": "m"}),
        ),
        (
            ChatProtocol::OpenaiResponses,
            json!({"type": "response.failed"}),
        ),
        (
            ChatProtocol::Anthropic,
            json!({"type": "error", "error": {}}),
        ),
    ] {
        let mut fold = ChunkFold::new(protocol, false);
        let (written, why) = heard(&mut fold, &[output(1, 0, &json!([error, said("a")]))]);
        assert_eq!((written.as_str(), why, fold.has_sent()), ("", None, false));
    }
}

#[test]
fn a_completion_ends_with_its_last_choice() {
    let choice = |index: u64, finish: Value| json!({"choices": [{"index": index, "delta": {}, "finish_reason": finish}]});
    let mut fold = chat();
    let both = json!([
        choice(0, Value::Null),
        choice(1, Value::Null),
        choice(0, json!("stop"))
    ]);
    heard(&mut fold, &[output(1, 0, &both)]);
    assert!(!fold.has_ended());
    heard(
        &mut fold,
        &[output(1, 1, &json!([choice(1, json!("length"))]))],
    );
    assert!(fold.has_ended());
}

#[test]
fn an_odd_member_hides_no_other() {
    for odd in [
        json!({"type": 5}),
        json!({"sequence_number": "x", "usage": 7, "error": null}),
        json!({"choices": [{"index": 0, "delta": 3, "finish_reason": {"a": 1}}, 5]}),
    ] {
        let mut last = stop();
        last.as_object_mut()
            .unwrap()
            .extend(odd.as_object().unwrap().clone());
        // What is no choice of its own is not one that has to stop.
        let mut fold = chat();
        heard(&mut fold, &[output(1, 0, &json!([said("a"), last]))]);
        assert!(fold.has_ended(), "{last}");
    }
    let twice = r#"{"type":1,"type":2,"choices":[{"finish_reason":"stop"}]}"#;
    let raw = output(1, 0, &json!([])).to_string();
    let raw = raw.replace(r#""chunks":[]"#, &format!(r#""chunks":[{twice}]"#));
    let mut fold = chat();
    let event = CallEvent::read(raw.as_bytes()).unwrap();
    fold.hear(&event, &mut BytesMut::new()).unwrap();
    assert!(fold.has_ended());
}

#[test]
fn a_stream_without_an_end_is_whole_where_it_has_told_the_reply() {
    let reply = |content: &str, finish: Value| {
        let message = json!({"role": "assistant", "content": content, "tool_calls": [
            {"id": "x", "function": {"name": "look", "arguments": "{}"}},
        ]});
        let reply = json!({"choices": [{"index": 0, "message": message, "finish_reason": finish}]});
        WholeSaid::read(reply.to_string().as_bytes())
    };
    let call = |function: Value| json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": function}]}}]});
    let chunks = json!([
        said("on"),
        said("ce"),
        call(json!({"name": "look", "arguments": "{"})),
        call(json!({"arguments": "}"})),
    ]);
    let mut fold = chat();
    heard(&mut fold, &[output(1, 0, &chunks)]);
    assert!(!fold.has_ended());
    assert!(fold.has_told(&reply("once", Value::Null)));
    assert!(!fold.has_told(&reply("once upon", Value::Null)));
    // Why it stopped has been lost.
    assert!(!fold.has_told(&reply("once", json!("stop"))));
    assert!(!fold.has_told(&WholeSaid::read(b"nothing")));
}

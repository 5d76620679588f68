use serde_json::json;

use super::*;
use crate::{
    arguments::Level,
    manifest::{ManifestProblem, Timeout, lint, parse},
};

fn route(changes: &Value) -> Value {
    let mut route = json!({
        "name": "main", "url": "https://api.example.com/v1/chat/completions", "model": "large-1",
        "headers": {"authorization": "secret://KEY"},
    });
    for (field, value) in changes.as_object().unwrap() {
        route[field] = value.clone();
    }
    route
}

/// A manifest of a model; changes of its executor, and of the rest.
fn text(chat: &Value, rest: &Value) -> String {
    let mut manifest = json!({
        "name": "ask_model", "version": 1, "description": "Answers a conversation with the company's model.", "effect": "read",
        "executor": {"chat": {"protocol": "openai_chat", "routes": [route(&json!({}))]}},
    });
    for (field, value) in chat.as_object().unwrap() {
        manifest["executor"]["chat"][field] = value.clone();
    }
    for (field, value) in rest.as_object().unwrap() {
        manifest[field] = value.clone();
    }
    manifest.to_string()
}

fn problems(chat: &Value, rest: &Value) -> Vec<ManifestProblem> {
    parse(&text(chat, rest)).err().unwrap_or_default()
}

#[test]
fn a_model_has_defaults_of_its_own_and_what_is_stored_says_them() {
    for (protocol, demanded) in [
        ("openai_chat", "messages"),
        ("anthropic", "messages"),
        ("openai_responses", "input"),
    ] {
        let read = parse(&text(&json!({"protocol": protocol}), &json!({}))).unwrap();
        // Its names are the vendor's.
        let warned: Vec<String> = lint(&read).into_iter().map(|it| it.path).collect();
        assert!(warned.is_empty(), "{warned:?}");
        assert_eq!(read.timeout, Timeout::Fixed(Duration::from_secs(120)));
        assert_eq!(read.deadline, Duration::from_secs(600));
        assert_eq!(read.output_limit, 4 * 1024 * 1024);
        assert_eq!(read.coercion_level(), Level::Off);
        assert_eq!(read.input_schema["required"], json!([demanded]));
        assert_eq!(read.input_schema.get("additionalProperties"), None);
        let stored = serde_json::to_value(&read).unwrap();
        assert_eq!(
            serde_json::from_value::<Manifest>(stored).unwrap(),
            read,
            "{protocol}"
        );
    }
    let own = json!({"timeout": "10s", "deadline": "20s", "coercion": "on", "output_limit": "1KiB", "input_schema": {"type": "object"}});
    let read = parse(&text(&json!({}), &own)).unwrap();
    assert_eq!(
        (
            read.output_limit,
            read.deadline.as_secs(),
            read.input_schema
        ),
        (1024, 20, json!({"type": "object"}))
    );
}

#[test]
fn what_does_not_fit_a_model_is_refused_where_it_stands() {
    let routes = |routes: &[Value]| json!({"routes": routes});
    let one = |changes: Value| routes(&[route(&changes)]);
    let rest = |rest: Value| (json!({}), rest);
    let chat = |chat: Value| (chat, json!({}));
    for ((of_chat, of_rest), path, says) in [
        (
            rest(json!({"effect": "idempotent"})),
            "/effect",
            "write read",
        ),
        (rest(json!({"effect": "once"})), "/effect", "write read"),
        (rest(json!({"files": {}})), "/files", "leave files out"),
        (
            rest(json!({"baggage": true})),
            "/baggage",
            "leave baggage out",
        ),
        (
            rest(json!({"idempotency": {"header": "Idempotency-Key"}})),
            "/idempotency",
            "leave idempotency out",
        ),
        (
            rest(json!({"output": "content"})),
            "/output",
            "leave output out",
        ),
        (
            rest(json!({"completion": {"wait": "1h"}})),
            "/completion",
            "a chat tool answers when it ends",
        ),
        (
            rest(json!({"not_applied_statuses": [429]})),
            "/not_applied_statuses",
            "leave the field out",
        ),
        (
            rest(json!({"todo": {}, "cache": {"ttl": "5m"}})),
            "/cache",
            "two lists",
        ),
        (
            rest(json!({"todo": {"directives": true}, "sensitive": {"pointers": ["/messages"]}})),
            "/todo/directives",
            "nothing in it would be masked",
        ),
        (
            rest(json!({"budget": {"cost_per_run": "1"}})),
            "/budget/cost_per_run",
            "has no price",
        ),
        (
            chat(json!({"first_token": "99ms"})),
            "/executor/chat/first_token",
            "between",
        ),
        (
            chat(json!({"idle": "2h"})),
            "/executor/chat/idle",
            "between",
        ),
        (
            chat(json!({"idle": 30})),
            "/executor/chat/idle",
            "write 30s",
        ),
        (
            chat(json!({"fixed": {"stream": "yes"}})),
            "/executor/chat/fixed/stream",
            "write true or false",
        ),
        (
            (
                json!({"defaults": {"stream": true}}),
                json!({"sensitive": {"pointers": ["/messages"]}}),
            ),
            "/executor/chat/defaults/stream",
            "leave stream out",
        ),
        (
            chat(json!({"protocol": "gemini"})),
            "/executor/chat/protocol",
            "openai_chat",
        ),
        (chat(json!({"routes": []})), "/executor/chat/routes", ""),
        (
            chat(routes(&[
                route(&json!({})),
                route(&json!({"model": "small-1"})),
            ])),
            "/executor/chat/routes/1/name",
            "route 0 has the name \"main\" too",
        ),
        (
            chat(one(json!({"url": "api.example.com/v1"}))),
            "/executor/chat/routes/0/url",
            "write https://api.example.com/v1",
        ),
        (
            chat(one(json!({"url": "https://k:v@api.example.com/v1"}))),
            "/executor/chat/routes/0/url",
            "secret://NAME",
        ),
        (
            chat(one(json!({"url": "https://api.example.com/{model}"}))),
            "/executor/chat/routes/0/url",
            "literal",
        ),
        (
            chat(one(json!({"headers": {"traceparent": "x"}}))),
            "/executor/chat/routes/0/headers/traceparent",
            "leave it out",
        ),
        (
            chat(one(json!({"headers": {"x-a": "{messages}"}}))),
            "/executor/chat/routes/0/headers/x-a",
            "no argument",
        ),
        (
            chat(one(json!({"headers": {"x-a": "secret://../x"}}))),
            "/executor/chat/routes/0/headers/x-a",
            "name of a secret",
        ),
        (
            chat(one(json!({"headers": {"x-a": "1", "X-A": "2"}}))),
            "/executor/chat/routes/0/headers/x-a",
            "stands twice",
        ),
        (
            chat(one(json!({"lacks": ["audio"]}))),
            "/executor/chat/routes/0/lacks/0",
            "images",
        ),
        (
            chat(one(json!({"context_tokens": 0}))),
            "/executor/chat/routes/0/context_tokens",
            "",
        ),
        (
            chat(one(
                json!({"price": {"currency": "USD", "input": "cheap", "output": "1"}}),
            )),
            "/executor/chat/routes/0/price/input",
            "",
        ),
        (
            chat(one(
                json!({"price": {"currency": "USD", "input": 2.5, "output": "1"}}),
            )),
            "/executor/chat/routes/0/price/input",
            "",
        ),
        (
            chat(json!({"fixed": {"model": "large-1"}})),
            "/executor/chat/fixed/model",
            "each route names its model",
        ),
        (
            chat(json!({"fixed": {"background": true}})),
            "/executor/chat/fixed/background",
            "leave background out",
        ),
        (
            chat(json!({"fixed": {"metadata": {"key": ["secret://KEY"]}}})),
            "/executor/chat/fixed/metadata/key/0",
            "a header of a route",
        ),
    ] {
        let problems = problems(&of_chat, &of_rest);
        let found = problems.iter().find(|problem| problem.path == path);
        let found = found.unwrap_or_else(|| panic!("{path} is not in {problems:#?}"));
        assert!(found.message.contains(says), "{found:?}");
    }
}

#[test]
fn nothing_is_refused_that_a_route_may_have() {
    let spare = route(&json!({
        "name": "spare", "url": "http://[::1]:8080/v1/messages?beta=true", "context_tokens": 8192,
        "lacks": ["tools", "images", "schema"],
        "price": {"currency": "EUR", "input": "0", "cached_input": "0.000000001", "cache_write": "3.75", "output": "75"},
    }));
    let chat = json!({
        "routes": [route(&json!({})), spare], "hosted_tools": ["web_search"],
        "defaults": {"temperature": 0.7, "stream": true}, "fixed": {"store": false, "background": false},
        "first_token": "100ms", "idle": "1h",
    });
    assert_eq!(problems(&chat, &json!({})), []);
    assert_eq!(problems(&json!({}), &json!({"cache": {"ttl": "1h"}})), []);
}

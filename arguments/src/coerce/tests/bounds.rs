//! Hostile inputs are refused quickly.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Coercing, Fitted, Level, Limits, Schema, parse};

/// Far more than it takes on a slow machine without optimisation, far less than anything quadratic.
const SOON: Duration = Duration::from_secs(5);

fn fit(schema: &Value, body: &str) -> Option<Fitted> {
    let schema = Schema::compile_input(schema).unwrap();
    let args = parse(body.as_bytes(), &Limits::DEFAULT).unwrap();
    let started = Instant::now();
    let how = Coercing {
        level: Level::Read,
        tool: "t",
    };
    let fitted = schema.fit(args, how).ok();
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    fitted
}

fn listed(item: &str, count: usize) -> String {
    format!(r#"{{"x":[{}]}}"#, vec![item; count].join(","))
}

fn of_items(items: Value) -> Value {
    json!({"type": "object", "properties": {"x": {"type": "array", "items": items}}})
}

#[test]
fn no_more_than_so_many_values_are_changed() {
    let schema = of_items(json!({"type": "integer"}));
    let fitted = fit(&schema, &listed(r#""1""#, 64)).unwrap();
    assert_eq!(fitted.coercions.len(), 64);
    assert_eq!(fit(&schema, &listed(r#""1""#, 65)), None);
    assert_eq!(fit(&schema, &listed(r#""1""#, 9_998)), None);
    assert_eq!(fit(&schema, &listed(r#""x""#, 9_998)), None);
}

#[test]
fn no_more_than_so_many_readings_are_tried() {
    let branch = |n: usize| json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "array"}, "n": {"const": n}}});
    let branches: Vec<Value> = (0..40).map(branch).collect();
    let union = of_items(json!({"anyOf": branches}));
    let item = r#"{"a":"1","b":"[1]","n":99}"#;
    assert_eq!(fit(&union, &listed(item, 1)), None);
    assert_eq!(fit(&union, &listed(item, 60)), None);
    assert_eq!(fit(&union, &listed(item, 2_000)), None);

    let nested = json!({"anyOf": [
        {"type": ["integer", "boolean", "array", "object"]},
        {"anyOf": [{"type": ["integer", "array"]}, {"type": "array", "items": {"type": "integer"}}]},
    ]});
    assert_eq!(fit(&of_items(nested), &listed(r#""a b""#, 64)), None);
}

#[test]
fn text_is_read_under_the_limits_of_the_door() {
    let schema = json!({"type": "object", "properties": {"x": {"type": "array"}}});
    let text = |inner: &str| format!(r#"{{"x":"{inner}"}}"#);
    let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(fit(&schema, &text(&deep(63))).is_some());
    assert_eq!(fit(&schema, &text(&deep(64))), None);
    assert_eq!(fit(&schema, &text(&deep(50_000))), None);
    let wide = |items: usize| format!("[{}]", vec!["1"; items].join(","));
    assert!(fit(&schema, &text(&wide(9_990))).is_some());
    assert_eq!(fit(&schema, &text(&wide(9_999))), None);
    assert_eq!(fit(&schema, &text(&wide(60_000))), None);
    let schema = json!({"type": "object", "properties": {"x": {"type": "object"}}});
    for unclosed in ["/*", "'", "{a:", "//", "[/**/", "```"] {
        assert_eq!(fit(&schema, &text(&unclosed.repeat(10_000))), None);
    }

    let several = of_items(json!({"type": "array"}));
    let both = listed(&format!("\"{}\"", wide(6_000)), 2);
    assert_eq!(fit(&several, &both), None);
}

#[test]
fn defaults_cannot_make_arguments_too_large() {
    let item = json!({"properties": {"d": {"default": "x".repeat(2_000)}}});
    let schema = of_items(item);
    assert_eq!(
        fit(&schema, &listed("{}", 100)).unwrap().coercions.len(),
        100
    );
    assert_eq!(fit(&schema, &listed("{}", 200)).unwrap().coercions.len(), 0);

    let small = of_items(json!({"properties": {"d": {"default": 1}}}));
    assert_eq!(
        fit(&small, &listed("{}", 256)).unwrap().coercions.len(),
        256
    );
    assert_eq!(fit(&small, &listed("{}", 257)).unwrap().coercions.len(), 0);
}

#[test]
fn what_is_filled_in_must_be_let_in_as_it_is_written() {
    let schema = json!({"type": "object", "properties": {
        "text": {"type": "string"}, "more": {"type": "string"}, "filled": {"type": "string", "default": "x".repeat(60_000)},
    }});
    let escapes = |count: usize| r"\n".repeat(count);
    let body = format!(
        r#"{{"text":"{}","more":"{}"}}"#,
        escapes(60_000),
        escapes(60_000)
    );
    let fitted = fit(&schema, &body).unwrap();
    assert_eq!(fitted.coercions, [], "it would have 300,000 bytes");
    let body = format!(r#"{{"text":"{}"}}"#, escapes(60_000));
    let fitted = fit(&schema, &body).unwrap();
    assert_eq!(fitted.coercions.len(), 1);
    let text = crate::canonical::to_text(&fitted.args);
    assert_eq!(parse(text.as_bytes(), &Limits::DEFAULT), Ok(fitted.args));
}

#[test]
fn a_long_text_and_a_large_pattern_are_refused_soon() {
    let large = json!({"type": "object", "properties": {
        "text": {"type": "string", "pattern": "^[ab]*a[ab]{500}c$"}, "n": {"type": "integer"},
    }});
    let text = "ab".repeat(60_000);
    assert_eq!(
        fit(&large, &format!(r#"{{"text":"{text}","n":"1"}}"#)),
        None
    );
}

#[test]
fn patterns_are_bounded_in_size_and_in_number() {
    let of = |patterns: &[String]| {
        let property = |(n, pattern): (usize, &String)| {
            (
                format!("p{n}"),
                json!({"type": "string", "pattern": pattern}),
            )
        };
        let properties: serde_json::Map<_, _> = patterns.iter().enumerate().map(property).collect();
        Schema::compile(&json!({"type": "object", "properties": properties}))
    };
    let several = |pattern: &str, count: usize| vec![pattern.to_owned(); count];
    for usual in [
        r"^\d{4}-\d{2}-\d{2}$",
        "^[A-Za-z0-9_-]{1,64}$",
        "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
    ] {
        assert!(of(&several(usual, 100)).is_ok(), "{usual}");
    }
    assert!(of(&several("^.{1,50}$", 8)).is_ok());
    for refused in [several("^.{1,500}$", 1), several("^.{1,50}$", 9)] {
        let problems = of(&refused).unwrap_err();
        assert!(problems[0].message.contains("maxLength"), "{problems:?}");
    }
}

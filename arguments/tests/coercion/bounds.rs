//! Input made to keep `Schema::fit` busy: it comes to an end, the laws hold, and four times as much takes not much more
//! than four times as long.

use std::time::{Duration, Instant};

use arguments::{Coercing, Level, Limits, Schema, parse};
use serde_json::{Value, json};

use crate::{
    laws::broken,
    tools::{Tool, tools},
};

/// A string of the most bytes that come through the door.
const STRING: usize = 128 * 1024;
/// Linear would be 4, quadratic 16.
const FOURFOLD_MAX: u32 = 10;
/// What is faster than that cannot be compared.
const COMPARABLE: Duration = Duration::from_millis(25);

fn tool<'a>(tools: &'a [Tool], name: &str) -> &'a Tool {
    tools
        .iter()
        .find(|tool| tool.name == name)
        .expect("the tool is there")
}

fn read(tool: &Tool) -> Coercing<'_> {
    Coercing {
        level: Level::Read,
        tool: &tool.name,
    }
}

/// Strings that open, quote, repeat and nest.
fn strings() -> Vec<String> {
    let units = [
        "[",
        "{",
        "{\"a\":",
        "[1,",
        "\"",
        "'",
        "\\",
        "\\\"",
        " ",
        "9",
        "0",
        "-",
        "/*",
        "//",
        "\n",
        "`",
        "```json\n",
        "e9",
        "[[],",
        "{a:",
        "🦀",
        "true",
        "(",
        "#",
        "1.",
        "['a',",
        "\\u0061",
        "{'a': [",
    ];
    let mut all: Vec<String> = units
        .iter()
        .map(|unit| unit.repeat(STRING / unit.len()))
        .collect();
    let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let many = |item: &str| format!("[{}]", vec![item; STRING / (item.len() + 1) - 2].join(","));
    all.extend([
        nested(63),
        nested(64),
        nested(65),
        nested(50_000),
        many("1"),
        many("\"1\""),
        many("[]"),
        many("{}"),
    ]);
    all.push(format!("```json\n{}\n```", nested(30_000)));
    all.push(format!("{{\"a\":{}}}", "{\"a\":".repeat(20_000)));
    all.push(format!("['{}']", "a', '".repeat(STRING / 5 - 1)));
    all.push(onion(10));
    all
}

/// Text that holds text that holds text …
fn onion(levels: usize) -> String {
    (0..levels).fold("5".to_owned(), |inner, _| {
        let text = json!([inner]).to_string();
        if text.len() < STRING { text } else { inner }
    })
}

fn hold(tool: &Tool, args: &Value) {
    for level in [Level::Safe, Level::Read] {
        let how = Coercing {
            level,
            tool: &tool.name,
        };
        if let Err(law) = broken(&tool.schema, args, how) {
            let text = args.to_string();
            panic!("{}: {law}: {:.200} ({} bytes)", tool.name, text, text.len());
        }
    }
}

#[test]
fn long_texts_keep_the_laws() {
    let tools = tools(1);
    let places = [
        ("all_optional", "/tags"),
        ("all_optional", "/days"),
        ("all_optional", "/detailed"),
        ("all_optional_nested", "/location"),
        ("type_lists", "/a"),
        ("tree", "/root"),
        ("mixed_enums", "/mode"),
        ("expression", "/expr"),
    ];
    for text in strings() {
        for (name, place) in places {
            let value = json!(text);
            let args = place
                .rsplit('/')
                .filter(|part| !part.is_empty())
                .fold(value, |inner, key| json!({key: inner}));
            hold(tool(&tools, name), &args);
        }
        hold(tool(&tools, "all_optional"), &json!({"arguments": text}));
    }
}

/// Arguments in which nearly everything is wrong, as many as `count` says.
fn crowds(count: usize) -> Vec<(&'static str, Value)> {
    let keyed = |make: fn(usize) -> Value| -> Value {
        Value::Object(
            (0..count.min(1_000))
                .map(|n| (format!("k{n}"), make(n)))
                .collect(),
        )
    };
    let texts: Vec<Value> = (0..count).map(|n| json!(n.to_string())).collect();
    let words: Vec<Value> = (0..count).map(|n| json!(format!("w{n}"))).collect();
    let wrong_rows = |row: Value| vec![row; count / 4];
    vec![
        (
            "search_hotels",
            json!({"city": "x", "rooms": [{"adults": 1, "children_ages": texts.clone()}]}),
        ),
        (
            "search_hotels",
            json!({"city": "x", "rooms": [{"adults": 1, "children_ages": words.clone()}]}),
        ),
        (
            "search_hotels",
            json!({"city": "x", "rooms": wrong_rows(json!({"adults": "2", "children": null}))}),
        ),
        (
            "lists_of_lists",
            json!({"matrix": [texts.clone()], "words": words.clone()}),
        ),
        ("lists_of_lists", json!({"matrix": texts})),
        ("all_optional", keyed(|n| json!(n))),
        ("all_optional", json!({"arguments": keyed(|n| json!(n))})),
        (
            "update_stock",
            json!({"levels": keyed(|n| json!(n.to_string()))}),
        ),
        ("update_stock", json!({"levels": keyed(|_| json!("five"))})),
        (
            "maps_of_lists",
            json!({"groups": keyed(|_| json!("a")), "nested": keyed(|_| json!("{\"a\":\"true\"}"))}),
        ),
        (
            "filter_tickets",
            json!({"filter": {"all": wrong_rows(json!({"field": "Age", "above": "5"}))}}),
        ),
        (
            "shapes",
            json!({"shapes": wrong_rows(json!({"kind": "Circle", "radius": "2"}))}),
        ),
        (
            "shapes",
            json!({"shapes": wrong_rows(json!({"kind": "square", "radius": {}}))}),
        ),
        (
            "edit_file",
            json!({"path": "p", "edits": wrong_rows(json!({"op": "Insert", "line": "1", "text": 5}))}),
        ),
        (
            "expression",
            json!({"expr": {"op": "+", "args": wrong_rows(json!({"op": "x", "args": "[]"}))}}),
        ),
        ("mixed_enums", json!({"mode": words})),
    ]
}

/// Values inside one another, each of them wrong in itself.
fn deep(depth: usize) -> Vec<(&'static str, Value)> {
    let nest =
        |leaf: Value, wrap: fn(Value) -> Value| (0..depth).fold(leaf, |inner, _| wrap(inner));
    vec![
        (
            "tree",
            json!({"root": nest(json!({"label": 5}), |inner| json!({"label": 5, "children": inner}))}),
        ),
        (
            "linked_list",
            nest(
                json!({"value": "x"}),
                |inner| json!({"value": "1", "next": inner}),
            ),
        ),
        (
            "expression",
            json!({"expr": nest(json!("1"), |inner| json!({"op": " + ", "args": [inner, "2"]}))}),
        ),
        (
            "filter_tickets",
            json!({"filter": nest(json!({"field": "x"}), |inner| json!({"all": inner}))}),
        ),
        (
            "linked_list",
            nest(json!({}), |inner| json!({"arguments": inner})),
        ),
        (
            "lists_of_lists",
            json!({"matrix": nest(json!("1"), |inner| json!([inner]))}),
        ),
        (
            "all_optional_nested",
            nest(
                json!({"location": "{}"}),
                |inner| json!({"location": inner.to_string().get(..9_000)}),
            ),
        ),
    ]
}

#[test]
fn crowds_and_depths_keep_the_laws() {
    let tools = tools(1);
    let wide = crowds(63).into_iter().chain(crowds(9_000));
    for (name, args) in wide.chain(deep(10)).chain(deep(31)).chain(deep(62)) {
        if parse(args.to_string().as_bytes(), &Limits::DEFAULT).is_ok() {
            hold(tool(&tools, name), &args);
        }
    }
}

/// The shortest of some runs: what else the machine does only makes them longer.
fn shortest(schema: &Schema, how: Coercing<'_>, args: &Value) -> Duration {
    let run = || {
        let sent = args.clone();
        let started = Instant::now();
        let fitted = schema.fit(sent, how);
        let took = started.elapsed();
        drop(fitted);
        took
    };
    (0..4).map(|_| run()).min().expect("there were runs")
}

fn grows_evenly(tool: &Tool, less: &Value, more: &Value) {
    let how = read(tool);
    let one = shortest(&tool.schema, how, less).max(COMPARABLE);
    // A second look: once in a while all runs of one of the two are disturbed.
    let fits = (0..5).any(|_| shortest(&tool.schema, how, more) <= one * FOURFOLD_MAX);
    let text = more.to_string();
    assert!(
        fits,
        "{}: {one:?} for a quarter of {:.200} ({} bytes)",
        tool.name,
        text,
        text.len()
    );
}

#[test]
fn four_times_as_much_takes_no_longer_than_it_must() {
    let tools = tools(1);
    for ((name, less), (_, more)) in crowds(2_000).into_iter().zip(crowds(8_000)) {
        grows_evenly(tool(&tools, name), &less, &more);
    }
    for text in strings() {
        let quarter = text.floor_char_boundary(text.len() / 4);
        let less = json!({"tags": text[..quarter]});
        grows_evenly(tool(&tools, "all_optional"), &less, &json!({"tags": text}));
    }
}

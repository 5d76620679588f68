use serde_json::{Value, json};

use crate::{message::Language, schema::Schema, violations::Violations};

fn order() -> Schema {
    Schema::compile(&json!({
        "type": "object",
        "properties": {
            "item": {"$ref": "#/$defs/item"},
            "size": {"enum": ["small", "medium", "large"]},
            "count": {"type": "integer", "minimum": 1},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "when": {"type": "string", "format": "date-time"},
            "code": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]+$", "examples": ["ABC-12"]},
            "kind": {"const": "gift"},
            "to": {"type": "object", "properties": {"city": {"type": ["string", "null"], "description": "Where to"}},
                   "required": ["city"], "additionalProperties": false},
            "level": {"enum": [1, 2, 3]},
        },
        "required": ["item", "size"],
        "additionalProperties": false,
        "$defs": {"item": {"type": "string", "description": "What to send."}},
    }))
    .unwrap()
}

fn damaged() -> Violations {
    order().validate(&json!({
        "size": "Large ", "count": "2", "tags": "[\"a\"]", "when": "tomorrow", "code": "abc", "kind": "present",
        "to": {}, "level": "2", "itme": "a book",
    }))
}

fn lines(violations: &Violations, language: Language) -> Vec<String> {
    let line =
        |item: &crate::Violation| format!("{} {}", item.path, item.sentence().told(language));
    violations.items().iter().map(line).collect()
}

#[test]
fn every_violation_tells_how_to_repair_it() {
    assert_eq!(
        lines(&damaged(), Language::En),
        [
            r#"/code expected a string that matches "^[A-Z]{3}-[0-9]+$", such as "ABC-12", found string "abc""#,
            r#"/count expected integer, found string "2""#,
            r#"/item expected the required property "item" (string: What to send.), found nothing"#,
            r#"/itme expected only the properties "code", "count", "item", "kind", "level", "size", "tags", "to", "when"; the nearest is "item", found string "a book""#,
            r#"/kind expected "gift", found string "present""#,
            r#"/level expected one of 1, 2, 3; the nearest is 2, found string "2""#,
            r#"/size expected one of "small", "medium", "large"; the nearest is "large", found string "Large ""#,
            r#"/tags expected array (the value itself, not its text), found string "[\"a\"]""#,
            r#"/to/city expected the required property "city" (string or null: Where to), found nothing"#,
            r#"/when expected a string in the format date-time such as 2026-01-31T12:00:00Z, found string "tomorrow""#,
        ]
    );
}

#[test]
fn the_same_is_told_in_chinese() {
    assert_eq!(
        lines(&damaged(), Language::Zh),
        [
            r#"/code 应为匹配 "^[A-Z]{3}-[0-9]+$" 的 string，例如 "ABC-12"，实际：string "abc""#,
            r#"/count 应为 integer，实际：string "2""#,
            r#"/item 应为必填属性 "item"（string：What to send.），实际：缺失"#,
            r#"/itme 应为属性 "code"、"count"、"item"、"kind"、"level"、"size"、"tags"、"to"、"when" 之一（最接近的是 "item"），实际：string "a book""#,
            r#"/kind 应为 "gift"，实际：string "present""#,
            r#"/level 应为 1、2、3 之一（最接近的是 2），实际：string "2""#,
            r#"/size 应为 "small"、"medium"、"large" 之一（最接近的是 "large"），实际：string "Large ""#,
            r#"/tags 应为 array（值本身，而不是它的文本），实际：string "[\"a\"]""#,
            r#"/to/city 应为必填属性 "city"（string 或 null：Where to），实际：缺失"#,
            r#"/when 应为格式为 date-time 的 string，例如 2026-01-31T12:00:00Z，实际：string "tomorrow""#,
        ]
    );
}

#[test]
fn programs_find_the_nearest_apart_from_the_sentence() {
    let details = damaged().details(Language::En);
    let nearest = |path: &str| {
        let items = details["violations"].as_array().unwrap();
        let item = items.iter().find(|item| item["path"] == path).unwrap();
        item.get("nearest").cloned()
    };
    assert_eq!(nearest("/itme"), Some(json!("item")));
    assert_eq!(nearest("/size"), Some(json!("large")));
    assert_eq!(nearest("/level"), Some(json!(2)));
    assert_eq!(nearest("/kind"), Some(json!("gift")));
    assert_eq!(nearest("/count"), None);
    assert_eq!(details["left_out"], 0);
    assert_eq!(
        details["violations"][1],
        json!({"path": "/count", "expected": "integer", "found": "string \"2\""})
    );
}

#[test]
fn a_property_that_is_there_is_not_what_another_name_meant() {
    let schema = Schema::compile(&json!({
        "properties": {"city": {}, "cities": {}}, "additionalProperties": false,
    }))
    .unwrap();
    let nearest = |value: Value| schema.validate(&value).items()[0].nearest.clone();
    assert_eq!(nearest(json!({"citi": 1})), Some(json!("city")));
    assert_eq!(
        nearest(json!({"citi": 1, "city": 2})),
        Some(json!("cities"))
    );
}

#[test]
fn a_hidden_value_is_told_by_its_kind_alone() {
    let secret = "hunter2-large";
    let schema = Schema::compile(&json!({
        "properties": {"pin": {"enum": ["hunter3-large"]}, "size": {"type": "integer"}},
        "patternProperties": {"^x-": {"type": "integer"}},
        "additionalProperties": false,
    }))
    .unwrap();
    let sent = json!({"pin": secret, "size": secret, "x-a": secret, "pni": secret});
    let hidden = schema
        .validate(&sent)
        .without_values(|path| path == "/pin")
        .without_undeclared_values();
    let found: Vec<_> = hidden
        .items()
        .iter()
        .map(|item| {
            (
                item.path.as_str(),
                item.found.english(),
                item.nearest.clone(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("/pin", "string", None),
            ("/pni", "string", None),
            ("/size", "string \"hunter2-large\"", None),
            ("/x-a", "string", None),
        ]
    );
    let all = schema.validate(&sent).without_values(|_| true);
    for language in Language::ALL {
        let told = format!(
            "{}{}",
            all.details(*language),
            all.summary().told(*language)
        );
        assert!(!told.contains("hunter2"), "{told}");
    }
}

#[test]
fn a_union_of_words_has_a_nearest_one() {
    let schema =
        Schema::compile(&json!({"anyOf": [{"type": "null"}, {"enum": ["north", "south"]}]}))
            .unwrap();
    let violations = schema.validate(&json!("sout"));
    assert_eq!(violations.items()[0].nearest, Some(json!("south")));
    assert_eq!(
        violations.summary().told(Language::Zh),
        r#"参数：应为 2 种备选之一；最接近的一种要求 "north"、"south" 之一（最接近的是 "south"），实际：string "sout""#
    );
}

#[test]
fn both_languages_keep_within_their_bounds() {
    let names: Vec<String> = (0..40).map(|n| format!("必填属性的名字{n:02}")).collect();
    let described = |name: &String| {
        (
            name.clone(),
            json!({"type": "string", "description": "说明".repeat(40)}),
        )
    };
    let schema = Schema::compile(&json!({
        "properties": names.iter().map(described).collect::<serde_json::Map<_, _>>(), "required": names,
    }))
    .unwrap();
    let violations = schema.validate(&json!({}));
    assert_eq!(violations.total(), 40);
    assert!(
        violations.items().len() >= 5,
        "{}",
        violations.items().len()
    );
    for language in Language::ALL {
        let details = violations.details(*language).to_string();
        assert!(details.len() <= 2 * 1024, "{}", details.len());
        let summary = violations.summary();
        let summary = summary.told(*language);
        assert!(summary.len() <= 480, "{summary}");
        assert!(
            summary.contains("more)") || summary.contains("（另有"),
            "{summary}"
        );
    }
}

#[test]
fn a_number_that_is_too_large_is_not_sent_in_a_circle() {
    let limits = crate::Limits::DEFAULT;
    let number = "18446744073709551616";
    let refused = crate::parse(format!(r#"{{"count":{number}}}"#).as_bytes(), &limits);
    let told = refused.unwrap_err().message;
    assert_eq!(
        told.english(),
        "a number is outside what is kept exactly, integers of 64 bits and decimals up to 1e308; send one within it (in \
         quotes it fits only where the schema says string)"
    );
    let schema = json!({"type": "object", "properties": {"count": {"type": "integer"}}});
    let violations = Schema::compile(&schema)
        .unwrap()
        .validate(&json!({"count": number}));
    assert_eq!(
        lines(&violations, Language::En),
        [
            r#"/count expected integer (of at most 64 bits, or 1e308), found string "18446744073709551616""#
        ]
    );
    assert_eq!(
        lines(&violations, Language::Zh),
        [
            r#"/count 应为 integer（整数不超过 64 位，小数不超过 1e308），实际：string "18446744073709551616""#
        ]
    );
}

#[test]
fn a_wrapper_is_named_within_the_bounds() {
    let closed = Schema::compile(
        &json!({"type": "object", "properties": {}, "additionalProperties": false}),
    )
    .unwrap();
    let entries = (0..40).map(|n| (format!("a{n:02}{}", "k".repeat(90)), json!("x".repeat(200))));
    let mut sent: serde_json::Map<String, Value> = entries.collect();
    sent.insert("params".to_owned(), json!({"a": 1}));
    let sent = Value::Object(sent);
    let violations = closed.validate(&sent);
    let named = violations.clone().with_wrapper("params", &sent["params"]);
    assert_eq!(named.items().last().unwrap().path, "/params");
    assert!(named.items().len() <= 16 && named.total() <= violations.total() + 1);
    for language in Language::ALL {
        assert!(named.details(*language).to_string().len() <= 2 * 1024);
    }
    let params = named.without_undeclared_values();
    assert_eq!(
        params.items().last().unwrap().found.english(),
        "object with 1 key"
    );
}

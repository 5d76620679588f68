//! Laws that hold for every schema and every input.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{Coercing, Level, Rule, Schema};

/// Schemas of one value, nested a little.
fn schemas() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!({"type": "integer"})),
        Just(json!({"type": "integer", "default": 1})),
        Just(json!({"type": "integer", "minimum": 2})),
        Just(json!({"type": "number"})),
        Just(json!({"type": "boolean"})),
        Just(json!({"type": "string"})),
        Just(json!({"type": "string", "minLength": 2})),
        Just(json!({"type": ["integer", "null"]})),
        Just(json!({"enum": ["a", "B", "1"]})),
        Just(json!({"enum": [1, 2]})),
        Just(json!({"const": "a", "default": "a"})),
        Just(json!({"$ref": "#/$defs/leaf"})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let properties = || prop::collection::btree_map("[abc]", inner.clone(), 0..3);
        prop_oneof![
            inner
                .clone()
                .prop_map(|items| json!({"type": "array", "items": items})),
            (properties(), any::<bool>(), any::<bool>()).prop_map(
                |(properties, open, required)| {
                    object(properties.into_iter().collect(), open, required)
                }
            ),
            prop::collection::vec(inner.clone(), 1..3)
                .prop_map(|branches| json!({"anyOf": branches})),
            prop::collection::vec(inner.clone(), 1..3)
                .prop_map(|branches| json!({"oneOf": branches})),
            prop::collection::vec(inner, 1..3).prop_map(|branches| json!({"allOf": branches})),
        ]
    })
}

fn object(properties: Map<String, Value>, open: bool, required: bool) -> Value {
    let names: Vec<&String> = properties.keys().take(usize::from(required)).collect();
    json!({
        "type": "object",
        "properties": properties,
        "required": names,
        "additionalProperties": open,
    })
}

fn inputs() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map("[abcd]", values(), 0..4).prop_map(|map| map.into_iter().collect())
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (0..4).prop_map(Value::from),
        prop::sample::select(vec![
            "", "1", "2.0", "true", " A ", "b", "ab", "a,b", "null", "[1]", "{}", "[\"1\"]"
        ])
        .prop_map(Value::from),
        prop::sample::select(vec![
            "{\"a\":\"1\"}",
            "{'a': True}",
            "{a: 1,}",
            "[1",
            "```json\n[1]\n```"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[abcd]", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn levels() -> impl Strategy<Value = Level> {
    prop::sample::select(vec![Level::Off, Level::Safe, Level::Read])
}

fn whole(properties: Map<String, Value>, open: bool) -> Schema {
    let mut schema = object(properties, open, true);
    schema["$defs"] = json!({"leaf": {"type": "integer", "default": 2}});
    Schema::compile_input(&schema).unwrap()
}

/// Every key of every object in a value, including those in a text that looks like JSON.
fn keys(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| keys(item, into)),
        Value::Object(entries) => entries.iter().for_each(|(key, value)| {
            into.insert(key.clone());
            keys(value, into);
        }),
        Value::String(text) if text.contains('{') => {
            into.insert("a".to_owned());
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn fitting_keeps_its_laws(
        properties in prop::collection::btree_map("[abc]", schemas(), 1..4),
        open in any::<bool>(),
        sent in inputs(),
        level in levels(),
    ) {
        let schema = whole(properties.into_iter().collect(), open);
        // The tool's own name, which no schema here declares.
        let is_wrapped = sent.len() == 1 && sent.contains_key("d");
        let sent = Value::Object(sent);
        let how = Coercing { level, tool: "d" };
        let was_valid = !is_wrapped && schema.is_valid(&sent);
        let found = schema.fit(sent.clone(), how);

        let again = schema.fit(sent.clone(), how);
        prop_assert_eq!(&found, &again, "not deterministic");
        let Ok(fitted) = found else {
            prop_assert!(!was_valid, "refused what is valid");
            return Ok(());
        };

        prop_assert!(schema.is_valid(&fitted.args), "made what is not valid");
        prop_assert_eq!(fitted.coercions.is_empty(), fitted.args == sent, "changed and not told");
        let only_defaults = fitted.coercions.iter().all(|one| one.rule == Rule::Default);
        prop_assert!(!was_valid || only_defaults, "changed what is valid");
        prop_assert!(level != Level::Off || fitted.coercions.is_empty(), "changed though off");

        let (mut before, mut after) = (BTreeSet::new(), BTreeSet::new());
        keys(&sent, &mut before);
        keys(&fitted.args, &mut after);
        let filled = fitted.coercions.iter().filter(|one| one.rule == Rule::Default);
        before.extend(filled.map(|one| one.path.rsplit('/').next().unwrap().to_owned()));
        prop_assert!(after.is_subset(&before), "{:?} from nowhere", after);

        let twice = schema.fit(fitted.args.clone(), how).unwrap();
        prop_assert_eq!(&twice.args, &fitted.args, "not stable");
        prop_assert!(twice.coercions.is_empty(), "not stable");

        // A change that a stricter level allows gives the same result at a freer one.
        if level == Level::Safe {
            let freely = schema.fit(sent, Coercing { level: Level::Read, tool: "d" });
            prop_assert_eq!(freely, Ok(fitted));
        }
    }
}

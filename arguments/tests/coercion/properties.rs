//! The laws, held against whatever comes: objects that nearly fit, and such as have nothing to do with the schema.

use std::sync::LazyLock;

use arguments::{Coercing, Schema};
use proptest::prelude::*;
use serde_json::{Map, Number, Value, json};

use crate::{
    damage::{KINDS, Source},
    gold::draw,
    laws::broken,
    pointer::places,
    random::Chance,
    report::LEVELS,
    tools::{Tool, tools},
};

const SEED: u64 = 0x1a35;

static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| tools(SEED));

/// Every name of a property in any of the schemas.
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut names: Vec<String> = TOOLS
        .iter()
        .flat_map(|tool| places(tool.schema.source()))
        .filter(|(at, _)| at.contains("/properties/"))
        .filter_map(|(at, _)| Some(at.rsplit_once('/')?.1.to_owned()))
        .collect();
    names.sort();
    names.dedup();
    names
});

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>().prop_map(|text| text.replace('\0', "")),
        "-?[0-9]{1,3}(\\.[0-9]{1,2})?( )?",
        prop::sample::select(vec![
            "",
            " ",
            "true",
            "FALSE",
            "null",
            "None",
            "[]",
            "{}",
            "[1, \"2\"]",
            "{\"value\": \"5\"}",
            "['a', True]",
            "{city: 'x',}",
            "```json\n[1]\n```",
            "\"5\"",
            "[[[[",
            "1e5",
            "-0",
            "1e400",
            "CELSIUS",
            "asc ",
            "A",
        ])
        .prop_map(ToOwned::to_owned),
    ]
}

fn anything() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        (-9..99_i64).prop_map(|n| n.to_string()),
        "-?(0|[1-9][0-9]{0,3})\\.[0-9]{1,3}([eE][+-]?[0-9]{1,2})?",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number.prop_map(|token| Value::Number(Number::from_string_unchecked(token))),
        text().prop_map(Value::String),
    ];
    let name = prop_oneof![3 => prop::sample::select(NAMES.clone()), 1 => text()];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(name.clone(), inner.clone(), 0..5)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            // The same as text.
            inner.prop_map(|value| json!(value.to_string())),
        ]
    })
}

/// Gold, with some of its values put in place by others, and some properties added.
fn nearly(tool: &Tool, seed: u64, others: Vec<Value>) -> Option<Value> {
    let mut chance = Chance::new(seed, 0);
    let gold = (0..40).find_map(|_| draw(&tool.schema, &mut chance))?;
    let source = Source {
        gold: &gold,
        tool: &tool.name,
        schema: &tool.schema,
    };
    let mut args = gold.args.clone();
    for _ in 0..chance.below(3) {
        let damage = (chance.of(&KINDS).draw)(&source, &mut chance);
        args = damage
            .and_then(|damage| damage.of_args(&args))
            .unwrap_or(args);
    }
    for other in others {
        let found: Vec<String> = places(&args).into_iter().map(|(at, _)| at).collect();
        let place = args
            .pointer_mut(chance.of(found.as_slice()).as_str())
            .expect("it was found there");
        match place {
            Value::Object(entries) if chance.percent(60) => {
                entries.insert(chance.of(&NAMES).clone(), other);
            }
            place => *place = other,
        }
    }
    Some(args)
}

fn laws(tool: &Tool, args: &Value) -> Result<(), TestCaseError> {
    for level in LEVELS {
        let how = Coercing {
            level,
            tool: &tool.name,
        };
        broken(&tool.schema, args, how).map_err(|law| {
            TestCaseError::fail(format!("{law}\n{}\n{}", tool.schema.source(), args))
        })?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_laws_hold_near_what_fits(
        tool in 0..TOOLS.len(),
        seed in any::<u64>(),
        others in prop::collection::vec(anything(), 0..4),
    ) {
        if let Some(args) = nearly(&TOOLS[tool], seed, others) {
            laws(&TOOLS[tool], &args)?;
        }
    }

    #[test]
    fn the_laws_hold_far_from_what_fits(tool in 0..TOOLS.len(), args in anything()) {
        laws(&TOOLS[tool], &args)?;
    }

    #[test]
    fn the_laws_hold_of_names_with_anything_in_them(
        tool in 0..TOOLS.len(),
        seed in any::<u64>(),
        values in prop::collection::vec(anything(), 1..8),
    ) {
        let tool = &TOOLS[tool];
        let mut chance = Chance::new(seed, 1);
        let declared: Vec<&String> =
            tool.schema.source()["properties"].as_object().into_iter().flat_map(Map::keys).collect();
        let args = values
            .into_iter()
            .map(|value| (chance.pick(&declared).unwrap_or(&NAMES[0]).clone(), value))
            .collect();
        laws(tool, &Value::Object(args))?;
    }
}

#[test]
fn a_schema_that_is_compiled_again_makes_the_same() {
    for (part, tool) in TOOLS.iter().enumerate() {
        let again = Schema::compile_input(tool.schema.source()).expect("it was compiled before");
        for seed in 0..4 {
            let args = nearly(tool, seed + part as u64 * 4, Vec::new()).expect("gold is drawn");
            for level in LEVELS {
                let how = Coercing {
                    level,
                    tool: &tool.name,
                };
                assert_eq!(
                    tool.schema.fit(args.clone(), how),
                    again.fit(args.clone(), how),
                    "{args}"
                );
            }
        }
    }
}

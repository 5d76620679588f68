//! Grows schemas from a seed, of any depth and width that a tool may have.

use serde_json::{Map, Value, json};

use crate::random::Chance;

const NAMES: [&str; 36] = [
    "city",
    "days",
    "units",
    "query",
    "limit",
    "offset",
    "start",
    "end",
    "start_date",
    "tags",
    "filter",
    "name",
    "title",
    "body",
    "to",
    "from",
    "amount",
    "value",
    "kind",
    "mode",
    "path",
    "content",
    "items",
    "quantity",
    "id",
    "userId",
    "verbose",
    "enabled",
    "options",
    "labels",
    "note",
    "zip",
    "lat",
    "lon",
    "size",
    "字段",
];
const WORDS: [&[&str]; 6] = [
    &["low", "medium", "high"],
    &["Open", "Closed", "In Progress"],
    &["asc", "DESC"],
    &["a", "A", "b"],
    &["1", "2", "3"],
    &["north-east", "north_west", "south"],
];

/// Booleans spelt as words, by authors who did not know that JSON has booleans.
const SPELLINGS: [&[&str]; 4] = [
    &["True", "False"],
    &["true", "false", "auto"],
    &["TRUE", "FALSE"],
    &["true", "True", "false"],
];

/// The schema of some tool's arguments.
pub(crate) fn grown(chance: &mut Chance) -> Value {
    let depth = chance.below(4);
    let mut schema = object(depth, chance);
    if chance.percent(50) {
        let defs = json!({"shared": object(1, chance), "word": leaf(chance)});
        schema["$defs"] = defs;
        let mut more = Map::new();
        more.insert("first".into(), json!({"$ref": "#/$defs/shared"}));
        more.insert(
            "all".into(),
            json!({"type": "array", "items": {"$ref": "#/$defs/shared"}}),
        );
        more.insert("word".into(), json!({"$ref": "#/$defs/word"}));
        for (name, part) in more {
            if chance.percent(60) {
                schema["properties"][name] = part;
            }
        }
    }
    if chance.percent(20) {
        schema["properties"]["children"] = json!({"type": "array", "items": {"$ref": "#"}});
    }
    schema
}

/// As the catalogues of models have them: scalars side by side, nearly all of them optional, often open.
pub(crate) fn flat(chance: &mut Chance) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for _ in 0..6 + chance.below(9) {
        let name = *chance.of(&NAMES);
        let schema = match chance.below(10) {
            0 => json!({"type": "string", "enum": chance.of(&SPELLINGS)}),
            1 => json!({"type": "array", "items": {"type": "string", "enum": chance.of(&WORDS)}}),
            _ => leaf(chance),
        };
        let is_new = properties.insert(name.to_owned(), schema).is_none();
        if is_new && chance.percent(12) {
            required.push(name);
        }
    }
    let mut schema = json!({"type": "object", "properties": properties, "required": required});
    if chance.percent(50) {
        schema["additionalProperties"] = json!(false);
    }
    schema
}

fn object(depth: usize, chance: &mut Chance) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for _ in 0..=chance.below(7) {
        let name = *chance.of(&NAMES);
        if properties
            .insert(name.to_owned(), any(depth, chance))
            .is_none()
            && chance.percent(40)
        {
            required.push(name);
        }
    }
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    match chance.below(10) {
        0 => schema["additionalProperties"] = leaf(chance),
        1 | 2 => {}
        _ => schema["additionalProperties"] = json!(false),
    }
    schema
}

fn any(depth: usize, chance: &mut Chance) -> Value {
    if depth == 0 {
        return leaf(chance);
    }
    match chance.below(14) {
        0..=3 => leaf(chance),
        4 | 5 => object(depth - 1, chance),
        6 | 7 => array(any(depth - 1, chance), chance),
        8 => json!({"type": "object", "additionalProperties": any(depth - 1, chance)}),
        9 => nullable(any(depth - 1, chance)),
        10 => json!({"anyOf": [any(depth - 1, chance), leaf(chance)]}),
        11 => tagged(depth - 1, chance),
        12 => json!({"allOf": [object(depth - 1, chance)]}),
        _ => {
            json!({"type": "array", "prefixItems": [leaf(chance), any(depth - 1, chance)], "items": false})
        }
    }
}

fn array(items: Value, chance: &mut Chance) -> Value {
    let mut schema = json!({"type": "array", "items": items});
    if chance.percent(25) {
        schema["minItems"] = json!(1);
    }
    if chance.percent(20) {
        schema["uniqueItems"] = json!(true);
    }
    if chance.percent(15) {
        schema["maxItems"] = json!(4);
    }
    schema
}

fn nullable(schema: Value) -> Value {
    match schema["type"].as_str() {
        Some(kind) if schema.get("enum").is_none() && schema.get("default").is_none() => {
            let kinds = json!([kind, "null"]);
            let mut schema = schema;
            schema["type"] = kinds;
            schema
        }
        _ => json!({"anyOf": [schema, {"type": "null"}]}),
    }
}

fn tagged(depth: usize, chance: &mut Chance) -> Value {
    let branch = |tag: &str, part: Value| {
        json!({
            "type": "object",
            "properties": {"kind": {"const": tag}, "value": part},
            "required": ["kind"],
            "additionalProperties": false,
        })
    };
    let first = branch("one", any(depth, chance));
    let second = branch("two", leaf(chance));
    json!({chance.of(&["anyOf", "oneOf"]).to_owned(): [first, second]})
}

fn leaf(chance: &mut Chance) -> Value {
    match chance.below(16) {
        0..=2 => json!({"type": "string"}),
        3 => json!({"type": "string", "minLength": 1, "maxLength": 20}),
        4 => {
            json!({"type": "string", "format": chance.of(&["date", "email", "uuid", "date-time"])})
        }
        5 => {
            json!({"type": "string", "pattern": chance.of(&["^[a-z]{2,5}$", "^[0-9]{4}$", "^#[0-9a-f]{6}$"])})
        }
        6 => json!({"type": "integer"}),
        7 => json!({"type": "integer", "minimum": 0, "maximum": 1000, "default": 7}),
        8 => json!({"type": "number"}),
        9 => json!({"type": "number", "minimum": 0, "default": 0.5}),
        10 => json!({"type": "boolean"}),
        11 => json!({"type": "boolean", "default": true}),
        12 => json!({"enum": chance.of(&WORDS)}),
        13 => json!({"type": "string", "enum": chance.of(&WORDS)}),
        14 => {
            let kinds = [
                json!(["string", "integer"]),
                json!(["number", "boolean"]),
                json!(["string", "null"]),
                json!(["integer", "null"]),
                json!(["string", "boolean"]),
            ];
            json!({"type": chance.of(&kinds)})
        }
        _ => {
            let kind = *chance.of(&["string", "integer", "boolean"]);
            array(json!({"type": kind}), chance)
        }
    }
}

use serde_json::{Value, json};

use crate::{
    arguments::Schema,
    definitions::{Format, definitions, strict_definitions},
    manifest::{Manifest, parse},
};

fn tool(input_schema: &Value, more: &Value) -> Manifest {
    let mut manifest = json!({
        "name": "look", "version": 1, "description": "Looks something up.", "effect": "read",
        "input_schema": input_schema, "executor": {"process": {"command": ["/bin/cat"]}},
    });
    manifest
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    parse(&manifest.to_string()).unwrap()
}

fn object(properties: Value, required: Value) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn strict(schema: &Value) -> Result<Value, String> {
    strict_of(&tool(schema, &json!({})))
}

fn strict_of(tool: &Manifest) -> Result<Value, String> {
    let listed = strict_definitions([tool].into_iter());
    let function = &listed.tools[0]["function"];
    match listed.not_strict.first() {
        None => {
            assert_eq!(function["strict"], true);
            Ok(function["parameters"].clone())
        }
        Some(not) => {
            let plain = definitions([tool].into_iter(), Format::Openai);
            assert_eq!(function["strict"], false);
            assert_eq!(function["parameters"], plain[0]["function"]["parameters"]);
            Err(not.reason.clone())
        }
    }
}

#[test]
fn an_optional_property_may_be_null() {
    let schema = object(
        json!({
            "city": {"type": "string", "minLength": 1, "description": "Where"},
            "days": {"type": "integer", "minimum": 1, "default": 3, "description": "How many days"},
            "unit": {"enum": ["c", "f"]},
            "kind": {"const": "now"},
            "near": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"], "additionalProperties": false},
            "note": {"type": ["string", "null"], "default": null},
        }),
        json!(["city"]),
    );
    let strict = strict(&schema).unwrap();
    assert_eq!(
        strict,
        object(
            json!({
                "city": {"type": "string", "description": "Where [minLength 1]"},
                "days": {"type": ["integer", "null"], "minimum": 1, "description": "How many days [default 3] (null: not given)"},
                "unit": {"type": ["string", "null"], "enum": ["c", "f", null], "description": "null: not given"},
                "kind": {"anyOf": [{"type": "string", "const": "now"}, {"type": "null"}], "description": "null: not given"},
                "near": {
                    "anyOf": [object(json!({"x": {"type": "number"}}), json!(["x"])), {"type": "null"}],
                    "description": "null: not given",
                },
                "note": {"type": ["string", "null"], "description": "[default null]"},
            }),
            json!(["city", "days", "kind", "near", "note", "unit"]),
        )
    );
    let compiled = Schema::compile_input(&strict).unwrap();
    assert!(compiled.is_valid(
        &json!({"city": "Oslo", "days": null, "kind": null, "near": null, "note": null, "unit": null})
    ));
}

#[test]
fn unions_references_and_recursion_keep_their_meaning() {
    let schema = json!({
        "type": "object",
        "properties": {
            "shape": {"oneOf": [
                {"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}, "required": ["kind", "r"]},
                {"type": "object", "properties": {"kind": {"const": "square"}, "a": {"type": "number"}}, "required": ["kind"]},
            ]},
            "tree": {"$ref": "#/$defs/node", "description": "The tree"},
            "more": {"$ref": "#/$defs/node"},
            "either": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        },
        "required": ["shape", "tree", "either"],
        "$defs": {"node": {"type": "object", "properties": {"below": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "required": ["below"]}},
        "$schema": "https://json-schema.org/draft/2020-12/schema",
    });
    let strict = strict(&schema).unwrap();
    let properties = &strict["properties"];
    assert_eq!(
        properties["shape"]["anyOf"][0]["required"],
        json!(["kind", "r"])
    );
    assert_eq!(
        properties["shape"]["anyOf"][1]["properties"]["a"]["type"],
        json!(["number", "null"])
    );
    assert_eq!(
        properties["tree"],
        json!({"anyOf": [{"$ref": "#/$defs/node"}], "description": "The tree"})
    );
    assert_eq!(
        properties["more"]["anyOf"],
        json!([{"$ref": "#/$defs/node"}, {"type": "null"}])
    );
    assert_eq!(strict["$defs"]["node"]["additionalProperties"], false);
    assert!(strict.get("$schema").is_none());
    let compiled = Schema::compile_input(&strict).unwrap();
    let value = json!({"shape": {"kind": "square", "a": null}, "tree": {"below": [{"below": []}]}, "more": null, "either": "x"});
    assert!(
        compiled.is_valid(&value),
        "{}",
        compiled.validate(&value).summary()
    );
}

#[test]
fn a_tool_without_arguments_is_strict() {
    let nothing = object(json!({}), json!([]));
    for schema in [
        json!({"type": "object"}),
        json!({"type": "object", "properties": {}}),
        nothing.clone(),
    ] {
        assert_eq!(strict(&schema), Ok(nothing.clone()), "{schema}");
    }
}

#[test]
fn a_tool_that_would_lose_something_is_not_strict_and_says_why() {
    let one = |schema: Value| object(json!({"a": schema}), json!(["a"]));
    let optional = |schema: Value| object(json!({"a": schema}), json!([]));
    let far = (0..11).fold(json!({"type": "string"}), |inner, _| one(inner));
    let many = |items: Value| one(json!({"type": "array", "items": items}));
    let rows = [
        (one(json!({})), "/properties/a takes any value"),
        (
            one(json!({"type": "object"})),
            "/properties/a declares no properties",
        ),
        (
            one(json!({"type": "object", "additionalProperties": {"type": "string"}})),
            "takes properties of any name",
        ),
        (
            json!({"type": "object", "properties": {}, "additionalProperties": true}),
            "the schema takes properties of any name",
        ),
        (
            one(json!({"type": "array"})),
            "does not say what its items are",
        ),
        (
            one(json!({"type": "string", "not": {"const": "x"}})),
            "uses not",
        ),
        (
            one(json!({"allOf": [{"type": "string"}, {"minLength": 1}]})),
            "uses allOf",
        ),
        (
            one(json!({"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 5}]})),
            "oneOf of which several could fit",
        ),
        (
            one(
                json!({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}}),
            ),
            "uses prefixItems",
        ),
        (
            one(json!({"enum": [[1], [2]]})),
            "enum of arrays or objects",
        ),
        (one(json!({"minimum": 1})), "says no type"),
        (
            one(json!({"$ref": "#/properties/a/items", "items": {"type": "string"}})),
            "refers to a place other than",
        ),
        (
            optional(json!({"type": ["string", "null"]})),
            "may be left out or be null",
        ),
        (
            json!({"type": "object", "anyOf": [{"required": ["a"]}], "properties": {"a": {"type": "string"}}}),
            "are a union",
        ),
        (far, "11 levels"),
        (
            one(json!({"enum": (0..1_001).collect::<Vec<_>>()})),
            "1001 allowed values",
        ),
        (
            one(json!({"enum": (0..300).map(|n| format!("{n:060}")).collect::<Vec<_>>()})),
            "18000 characters in one long enum",
        ),
        (
            many(optional(json!({"type": "string"}))),
            "more than 64 optional properties",
        ),
        (
            many(
                json!({"anyOf": [optional(json!({"type": "string"})), object(json!({"b": {"type": "string"}}), json!([]))]}),
            ),
            "union with optional properties",
        ),
        (
            json!({"type": "object", "properties": {"a": {"$ref": "#"}}}),
            "more than 64 optional properties",
        ),
    ];
    for (schema, why) in rows {
        let reason = strict(&schema).expect_err(why);
        assert!(reason.contains(why), "{why}: {reason}");
    }
    let bounded =
        one(json!({"type": "array", "items": optional(json!({"type": "string"})), "maxItems": 64}));
    assert!(strict(&bounded).is_ok());
}

#[test]
fn with_coercion_off_nothing_optional_is_strict() {
    let optional = object(json!({"a": {"type": "string"}}), json!([]));
    let off = json!({"coercion": "off"});
    let reason = strict_of(&tool(&optional, &off)).unwrap_err();
    assert!(reason.contains("coercion is off"), "{reason}");
    let required = object(json!({"a": {"type": "string"}}), json!(["a"]));
    assert!(strict_of(&tool(&required, &off)).is_ok());
    assert!(strict_of(&tool(&optional, &json!({"coercion": "safe"}))).is_ok());
}

#[test]
fn the_argument_that_carries_the_key_is_not_asked_for() {
    let schema = object(
        json!({"key": {"type": "string"}, "to": {"type": "string"}}),
        json!(["to"]),
    );
    let more = json!({"effect": "idempotent", "idempotency": {"argument": "key"}});
    let strict = strict_of(&tool(&schema, &more)).unwrap();
    assert_eq!(
        strict,
        object(json!({"to": {"type": "string"}}), json!(["to"]))
    );
}

#[test]
fn what_is_added_to_a_description_is_in_the_tools_language() {
    let schema = object(
        json!({"城市": {"type": "string", "description": "哪个城市"}}),
        json!([]),
    );
    let strict = strict_of(&tool(&schema, &json!({"language": "zh"}))).unwrap();
    assert_eq!(
        strict["properties"]["城市"]["description"],
        "哪个城市（null 表示不提供）"
    );
}

#[test]
fn many_references_are_counted_in_linear_time() {
    let mut defs = json!({"d20": {"type": "string"}});
    for n in 0..20 {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        defs[format!("d{n}")] = object(
            json!({"a": next, "b": next, "c": next}),
            json!(["a", "b", "c"]),
        );
    }
    let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "required": ["a"], "$defs": defs});
    assert!(strict(&schema).is_ok());
}

/// The promise of strict mode: a null that stands for "not given" reaches no tool.
#[test]
fn what_strict_mode_sends_is_what_the_tool_would_have_got() {
    use crate::arguments::{Coercing, Level};
    let item = json!({"type": "object", "properties": {"sku": {"type": "string"}, "note": {"type": "string"}}, "required": ["sku"], "additionalProperties": false});
    let schema = object(
        json!({
            "city": {"type": "string"},
            "days": {"type": "integer", "default": 3},
            "unit": {"enum": ["c", "f"]},
            "near": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}, "required": ["x"], "additionalProperties": false},
            "items": {"type": "array", "items": item, "maxItems": 5},
            "shape": {"oneOf": [
                {"type": "object", "properties": {"kind": {"const": "a"}, "r": {"type": "number"}}, "required": ["kind"], "additionalProperties": false},
                {"type": "object", "properties": {"kind": {"const": "b"}, "s": {"type": "number"}}, "required": ["kind"], "additionalProperties": false},
            ]},
        }),
        json!(["city", "items"]),
    );
    let (plain, strict) = (
        Schema::compile_input(&schema).unwrap(),
        Schema::compile_input(&strict(&schema).unwrap()).unwrap(),
    );
    for (sent, wanted) in [
        (
            json!({"city": "Oslo", "days": null, "unit": null, "near": null, "items": [], "shape": null}),
            json!({"city": "Oslo", "days": 3, "items": []}),
        ),
        (
            json!({
                "city": "Oslo", "days": 1, "unit": "c", "near": {"x": 1, "y": null},
                "items": [{"sku": "a", "note": null}, {"sku": "b", "note": "n"}], "shape": {"kind": "b", "s": null},
            }),
            json!({
                "city": "Oslo", "days": 1, "unit": "c", "near": {"x": 1},
                "items": [{"sku": "a"}, {"sku": "b", "note": "n"}], "shape": {"kind": "b"},
            }),
        ),
    ] {
        assert!(
            strict.is_valid(&sent),
            "{}",
            strict.validate(&sent).summary()
        );
        let fitted = plain
            .fit(
                sent,
                Coercing {
                    level: Level::Safe,
                    tool: "look",
                },
            )
            .unwrap();
        assert_eq!(fitted.args, wanted);
    }
}

#[test]
fn a_reference_leads_to_a_definition_and_not_into_one() {
    // Nested schemas change: an optional property takes null, and a oneOf becomes an anyOf.
    let kept = object(json!({"to": {"$ref": "#/$defs/place"}}), json!(["to"]));
    let with_defs = |mut schema: Value, target: &str| {
        schema["properties"]["to"]["$ref"] = target.into();
        schema["$defs"] = json!({"place": object(json!({"city": {"type": "string"}}), json!([]))});
        schema
    };
    strict(&with_defs(kept.clone(), "#/$defs/place")).unwrap();
    let reason = strict(&with_defs(kept, "#/$defs/place/properties/city")).unwrap_err();
    assert!(
        reason.contains("refers to a place other than # and #/$defs"),
        "{reason}"
    );
}

//! An operation for each tool: that of any call, with the tool's own name, words and input schema.

use fleet::{arguments::inner, manifest::Visibility};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::bundle;

/// The operation of a call of any tool.
const ANY: &str = "/v1/call/{tool}";
/// The parameter that says the same to all tries.
const KEY: &str = "#/components/parameters/IdempotencyKey";

/// A tool in the format `full`, as far as it is described.
#[derive(Debug, Deserialize)]
struct Described {
    name: String,
    version: i64,
    description: String,
    effect: String,
    key: String,
    #[serde(default)]
    visibility: String,
    input_schema: Value,
}

/// The text of the document with an operation for each of these tools; one that is not listed, or cannot be read, is left out.
pub(crate) fn document(tools: &[Box<RawValue>]) -> String {
    let mut document = bundle::document().clone();
    let any = document["paths"][ANY]["post"].clone();
    for tool in tools {
        let Ok(tool) = serde_json::from_str::<Described>(tool.get()) else {
            continue;
        };
        if tool.visibility == Visibility::Unlisted.as_str() {
            continue;
        }
        let own = format!("tool.{}", tool.name);
        let place = format!("/components/schemas/{own}");
        document["paths"][format!("/v1/call/{}", tool.name)] =
            json!({ "post": operation(any.clone(), &tool, &place) });
        let mut schema = tool.input_schema;
        point_inside(&mut schema, &place);
        document["components"]["schemas"][own] = schema;
    }
    document.to_string()
}

fn operation(mut any: Value, tool: &Described, place: &str) -> Value {
    any["operationId"] = json!(format!("call_{}", tool.name));
    any["summary"] = json!(format!("Call {}", tool.name));
    any["description"] = json!(tool.description);
    any["x-toolfleet-version"] = json!(tool.version);
    any["x-toolfleet-effect"] = json!(tool.effect);
    any["requestBody"]["content"]["application/json"]["schema"] =
        json!({ "$ref": format!("#{place}") });
    if let Some(parameters) = any["parameters"].as_array_mut() {
        parameters.retain(|parameter| !names_the_tool(parameter));
        for parameter in parameters {
            if tool.key == "required" && parameter["$ref"] == KEY {
                let mut key = bundle::document().pointer(&KEY[1..]).cloned();
                if let Some(key) = &mut key {
                    key["required"] = json!(true);
                }
                *parameter = key.unwrap_or_default();
            }
        }
    }
    any
}

/// Whether it is the part of the path that an operation of one tool does not have, itself or by reference.
fn names_the_tool(parameter: &Value) -> bool {
    let shared = parameter["$ref"].as_str();
    let shared = shared.and_then(|target| bundle::document().pointer(target.strip_prefix('#')?));
    shared.unwrap_or(parameter)["in"] == "path"
}

/// Has the references of a tool's schema lead to where it stands in the document. Only where a schema stands: what it gives as examples
/// or allowed values may look like a reference and is none.
fn point_inside(schema: &mut Value, own: &str) {
    let places: Vec<String> = inner(schema).into_iter().map(|inner| inner.place).collect();
    for place in places {
        if let Some(inner) = schema.pointer_mut(&place) {
            point_inside(inner, own);
        }
    }
    if let Some(Value::String(target)) = schema.get_mut("$ref")
        && let Some(pointer) = target.strip_prefix('#')
    {
        *target = format!("#{own}{pointer}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::bundle::tests::references;

    #[test]
    fn a_tool_has_an_operation_with_its_own_schema() {
        let tool = json!({
            "name": "charge", "version": 2, "description": "Charges an account.", "effect": "once", "key": "required",
            "input_schema": {
                "type": "object",
                "properties": {
                    "to": { "$ref": "#/$defs/account" },
                    "$ref": { "type": "string" },
                    "self": { "$ref": "#" }
                },
                "$defs": { "account": { "enum": [{ "$ref": "#/not/one" }] } }
            }
        });
        let tools = [serde_json::value::to_raw_value(&tool).unwrap()];
        let document: Value = serde_json::from_str(&document(&tools)).unwrap();
        let post = &document["paths"]["/v1/call/charge"]["post"];
        assert_eq!(post["operationId"], "call_charge");
        let schema = &post["requestBody"]["content"]["application/json"]["schema"];
        assert_eq!(schema["$ref"], "#/components/schemas/tool.charge");
        let own = &document["components"]["schemas"]["tool.charge"];
        let target = &own["properties"]["to"]["$ref"];
        assert_eq!(*target, "#/components/schemas/tool.charge/$defs/account");
        assert_eq!(
            own["properties"]["self"]["$ref"],
            "#/components/schemas/tool.charge"
        );
        assert_eq!(own["$defs"]["account"]["enum"][0]["$ref"], "#/not/one");
        let mut parameters = post["parameters"].as_array().unwrap().iter();
        assert!(parameters.all(|parameter| !names_the_tool(parameter)));
        let parameters = post["parameters"].as_array().unwrap();
        let key = parameters
            .iter()
            .find(|one| one["name"] == "Idempotency-Key");
        assert_eq!(key.unwrap()["required"], true);
        let others: Vec<_> = references(&document, &document)
            .into_iter()
            .filter(|(_, leads)| !leads)
            .collect();
        assert_eq!(others, [("#/not/one".to_owned(), false)]);
    }
}

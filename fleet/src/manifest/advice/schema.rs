//! Advice for the schemas in a manifest: what to write instead of an invalid type or pattern.

use serde_json::Value;

use crate::arguments::{SchemaProblem, nearest};

/// What other languages call the types of JSON Schema.
const TYPES: [(&str, &str); 14] = [
    ("str", "string"),
    ("text", "string"),
    ("date", "string, with format: date"),
    ("datetime", "string, with format: date-time"),
    ("int", "integer"),
    ("long", "integer"),
    ("float", "number"),
    ("double", "number"),
    ("decimal", "number"),
    ("bool", "boolean"),
    ("list", "array"),
    ("dict", "object"),
    ("map", "object"),
    ("none", "null"),
];

/// What is wrong with a schema, with the advice for an invalid type or pattern.
pub(in crate::manifest) fn sentence(schema: &Value, problem: &SchemaProblem) -> String {
    let found = schema.pointer(&problem.path).and_then(Value::as_str);
    match (problem.path.rsplit('/').next(), found) {
        (Some("type"), Some(word)) if !problem.path.is_empty() && problem.path != "/type" => {
            let lower = word.to_lowercase();
            let known = TYPES.iter().find(|(theirs, _)| *theirs == lower);
            let words = [
                "string", "integer", "number", "boolean", "array", "object", "null",
            ];
            let meant = known
                .map(|(_, ours)| *ours)
                .or_else(|| nearest(&lower, words.into_iter()))
                .unwrap_or("string, integer, number, boolean, array, object or null");
            format!("{word:?} is not a type of JSON Schema; write {meant}")
        }
        (Some("pattern"), Some(pattern)) => {
            let back = |digit: char| pattern.contains(&format!("\\{digit}"));
            if ["(?=", "(?!", "(?<=", "(?<!"]
                .iter()
                .any(|around| pattern.contains(around))
            {
                "look-around does not run in linear time; write the pattern without (?= (?! and (?<, \
                 and say the rest in the description"
                    .to_owned()
            } else if ('1'..='9').any(back) {
                "a back-reference does not run in linear time; write the pattern without it, \
                 and say the rest in the description"
                    .to_owned()
            } else if pattern.len() <= 64 && !pattern.contains('{') {
                "this is not a regular expression; write a \\ before a letter that is meant as itself, and close every ( and ["
                    .to_owned()
            } else {
                problem.message.clone()
            }
        }
        _other => problem.message.clone(),
    }
}

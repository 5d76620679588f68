//! What one value may be: whether it is bounded, and whether a model is told its format.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{keyword::says, warnings::Warnings};
use crate::arguments::keywords;

/// Warnings about a schema by itself, wherever it is.
pub(super) fn lint(schema: &Value, place: &str, writes: bool, warnings: &mut Warnings) {
    let types = keywords::types(schema);
    let is = |kind: &str| types.contains(&kind);
    let listed = says(schema, "enum") || says(schema, "const");
    let without = |keywords: &[&str]| !keywords.iter().any(|keyword| says(schema, keyword));
    if writes
        && (is("integer") || is("number"))
        && !listed
        && without(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])
    {
        warnings.add(
            place,
            "a write takes any number here, 0, -1 and 1e300 too; add minimum and maximum",
        );
    }
    if writes && is("array") && without(&["maxItems"]) && !listed {
        warnings.add(
            place,
            "a write takes any number of items here; add maxItems",
        );
    }
    if is("array") && without(&["items", "prefixItems", "contains"]) && !listed {
        warnings.add(
            place,
            "the items may be anything; say with items what each is",
        );
    }
    shown(schema, place, warnings);
    if let Some(options) = schema.get("enum").and_then(Value::as_array) {
        enumerated(options, &types, place, warnings);
    }
}

/// Whether a model sees the format of a text.
fn shown(schema: &Value, place: &str, warnings: &mut Warnings) {
    let Some(keyword) = ["format", "pattern"]
        .into_iter()
        .find(|word| says(schema, word))
    else {
        return;
    };
    let described = schema
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let lower = described.to_lowercase();
    let told = ["example", "such as", "e.g.", "like", "例如", "比如", "如："]
        .iter()
        .any(|word| lower.contains(word));
    let has_example = ["examples", "default", "enum", "const"]
        .iter()
        .any(|word| says(schema, word));
    if !told && !has_example {
        warnings.add(
            place,
            format!(
                "a model guesses how a {keyword} looks; add examples: [\"…\"] with one that fits"
            ),
        );
    }
}

fn enumerated(options: &[Value], types: &[&str], place: &str, warnings: &mut Warnings) {
    let mut alike: BTreeMap<String, &str> = BTreeMap::new();
    let path = || format!("{place}/enum");
    let says = |word: &str| {
        let mut texts = options.iter().filter_map(Value::as_str);
        texts.any(|text| text.trim().eq_ignore_ascii_case(word))
    };
    if says("true") && says("false") {
        warnings.add(
            path(),
            "models send true and false for these texts; write type: boolean, and turn it into a text where the tool is called",
        );
    }
    for option in options {
        if !types.is_empty() && !types.iter().any(|kind| is_of(option, kind)) {
            let types = types.join(" or ");
            warnings.add(
                path(),
                format!(
                    "{option} is no {types}, so it can never be sent; add its type, or take it out"
                ),
            );
        }
        let Some(text) = option.as_str() else {
            continue;
        };
        if let Some(other) = alike.insert(text.trim().to_lowercase(), text) {
            warnings.add(
                path(),
                format!("{text:?} and {other:?} differ only in case or space, so neither can be mended for a model; keep one"),
            );
        }
    }
}

fn is_of(value: &Value, kind: &str) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "boolean",
        // 5.0 is an integer too, and for this purpose 5.5 need not be told apart.
        Value::Number(_) => kind == "number" || kind == "integer",
        Value::String(_) => kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
    }
}

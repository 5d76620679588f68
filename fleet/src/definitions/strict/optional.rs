//! A property that may be left out, in a mode that requires every property: it may be null instead.

use serde_json::{Map, Value, json};

use super::place::{Keywords, Strict, at};
use crate::{
    arguments::{
        Level,
        keywords::{resolve, types, values},
    },
    call::Language,
    said,
};

impl Strict<'_> {
    /// An optional property as one that may be null.
    pub(super) fn optional(
        &self,
        schema: &Value,
        mut strict: Keywords,
        place: &str,
    ) -> Result<Keywords, String> {
        if takes_null(schema, self.root) {
            return if schema.get("default") == Some(&Value::Null) {
                Ok(strict)
            } else {
                Err(at(
                    place,
                    "may be left out or be null, which strict mode cannot tell apart; require it, or write default: null",
                ))
            };
        }
        if self.tool.coercion_level() == Level::Off {
            return Err(at(
                place,
                "is optional, and coercion is off, so the null that stands for it would not be left out; require it",
            ));
        }
        let not_given = said!("null: not given", "null 表示不提供");
        let not_given = not_given.told(self.tool.language);
        let described = strict.remove("description");
        let described = match (
            described.as_ref().and_then(Value::as_str),
            self.tool.language,
        ) {
            (Some(described), Language::En) => format!("{described} ({not_given})"),
            (Some(described), Language::Zh) => format!("{described}（{not_given}）"),
            (None, _) => not_given.to_owned(),
        };
        let mut nullable = match strict.remove("anyOf") {
            Some(Value::Array(mut branches)) => {
                branches.push(json!({"type": "null"}));
                strict.insert("anyOf".into(), branches.into());
                strict
            }
            _no_union => or_null(strict),
        };
        nullable.insert("description".into(), described.into());
        Ok(nullable)
    }
}

/// Adds null to the values of a schema that is no union.
fn or_null(mut strict: Keywords) -> Keywords {
    let kind = strict
        .get("type")
        .and_then(Value::as_str)
        .map(str::to_owned);
    match kind {
        Some(kind) if kind != "object" && kind != "array" && !strict.contains_key("const") => {
            strict.insert("type".into(), json!([kind, "null"]));
            if let Some(options) = strict.get_mut("enum").and_then(Value::as_array_mut) {
                options.push(Value::Null);
            }
            strict
        }
        _container_reference_or_constant => {
            Map::from_iter([("anyOf".to_owned(), json!([strict, {"type": "null"}]))])
        }
    }
}

fn takes_null(schema: &Value, root: &Value) -> bool {
    let schema = resolve(schema, root);
    if let Some(options) = values(schema) {
        return options.contains(&&Value::Null);
    }
    let branches = ["anyOf", "oneOf", "allOf"]
        .iter()
        .filter_map(|word| schema.get(*word)?.as_array())
        .flatten();
    types(schema).contains(&"null") || branches.clone().any(|branch| takes_null(branch, root))
}

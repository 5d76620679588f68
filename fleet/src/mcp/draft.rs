//! **The manifest for a tool as its server describes it.** Pure.
//!
//! What a server says reaches models with it, once somebody has applied it. So what nobody sees is taken out of its words, and a definition
//! with such characters elsewhere, where they may mean something, makes none.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{UNREADABLE, dialect::in_2020, pin::Pin};
use crate::{
    call::Effect,
    invisible::{first_invisible, is_invisible},
    manifest::{Manifest, McpErrors, McpServer, Trust},
};

/// The most characters of a description.
pub(super) const DESCRIPTION_MAX: usize = 4_000;
/// Members of a schema that are words for people and models.
const WORDS: [&str; 3] = ["title", "description", "$comment"];
/// Members of a schema whose values are data.
const DATA: [&str; 4] = ["enum", "const", "default", "examples"];
/// Fields that are written whatever they say.
const WRITTEN: [&str; 9] = [
    "name",
    "version",
    "description",
    "effect",
    "queue",
    "output",
    "input_schema",
    "output_schema",
    "executor",
];

/// A field of a tool's definition in which the server says something else than the manifest that is applied.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldChange {
    /// The field.
    pub field: &'static str,
    /// As it was applied; null where it has none.
    pub was: Value,
    /// As the server says it now.
    pub is: Value,
}

/// A tool as its server describes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Described<'a> {
    pub(super) server: &'a McpServer,
    pub(super) upstream: &'a str,
    pub(super) definition: &'a Value,
}

impl Described<'_> {
    /// The manifest for it: new, or an earlier one with what has changed.
    pub(super) fn manifest(&self, name: &str, pin: &Pin, earlier: Option<&Manifest>) -> Value {
        let (server, is_read) = (self.server, self.is_read());
        // Most servers report every exception as an error of the tool, also one after its effect.
        let errors = if is_read || server.trust == Trust::Trusted {
            McpErrors::SaidNo
        } else {
            McpErrors::Unknown
        };
        let mut manifest = match earlier {
            Some(earlier) => {
                let mut manifest = sparse(earlier);
                manifest["version"] = json!(earlier.version.saturating_add(1));
                // What a person has made of a write stays; a read has to be one still.
                if earlier.effect == Effect::Read && !is_read {
                    manifest["effect"] = json!("once");
                    manifest["executor"]["mcp"]["errors"] = json!(errors);
                }
                manifest
            }
            None => json!({
                "name": name, "version": 1, "effect": if is_read { "read" } else { "once" }, "output": "content",
                "queue": server.queue,
                "executor": {"mcp": {"server": server.name, "tool": self.upstream, "errors": errors}},
            }),
        };
        manifest["description"] = json!(self.description());
        manifest["input_schema"] = self.input_schema();
        manifest["executor"]["mcp"]["pin"] = json!(pin.whole);
        manifest["executor"]["mcp"]["shape"] = json!(pin.shape);
        if let Value::Object(fields) = &mut manifest {
            fields.remove("output_schema");
            if let Some(schema) = self.output_schema() {
                fields.insert("output_schema".to_owned(), schema);
            }
        }
        manifest
    }

    /// Why it can be no tool of the fleet, as far as the door does not say it.
    pub(super) fn is_unfit(&self) -> Option<String> {
        if let Some(why) = self.unreadable() {
            return Some(why.to_owned());
        }
        let task = self.definition.pointer("/execution/taskSupport");
        if task == Some(&json!("required")) {
            return Some(
                "it can be called as a task of revision 2025-11-25 alone, which the fleet does not speak"
                    .to_owned(),
            );
        }
        let schemas = [
            ("inputSchema", Some(self.input_schema())),
            ("outputSchema", self.output_schema()),
        ];
        schemas.into_iter().find_map(|(name, schema)| {
            let place = hidden(&schema?, name)?;
            Some(format!("there are characters that nobody sees at {place}"))
        })
    }

    /// Why the worker could not read what the server says.
    fn unreadable(&self) -> Option<&str> {
        self.definition[UNREADABLE].as_str()
    }

    /// In what an applied manifest is not what the server says, where that could be read.
    pub(super) fn differing(&self, manifest: &Manifest) -> Vec<FieldChange> {
        if self.unreadable().is_some() {
            return Vec::new();
        }
        let effect = (manifest.effect == Effect::Read && !self.is_read())
            .then(|| ("effect", json!("read"), json!("once")));
        let fields = [
            (
                "description",
                json!(manifest.description),
                json!(self.description()),
            ),
            (
                "inputSchema",
                manifest.input_schema.clone(),
                self.input_schema(),
            ),
            (
                "outputSchema",
                json!(manifest.output_schema),
                json!(self.output_schema()),
            ),
        ];
        let differing = fields.into_iter().filter(|(_, was, is)| was != is);
        effect
            .into_iter()
            .chain(differing)
            .map(|(field, was, is)| FieldChange { field, was, is })
            .collect()
    }

    /// Whether it is a read by what the server says, as far as that is trusted.
    fn is_read(&self) -> bool {
        let hint = self.definition.pointer("/annotations/readOnlyHint");
        self.server.trust == Trust::Trusted && hint == Some(&Value::Bool(true))
    }

    fn input_schema(&self) -> Value {
        clean(in_2020(&self.definition["inputSchema"]))
    }

    fn output_schema(&self) -> Option<Value> {
        let schema = self.definition.get("outputSchema")?;
        (!schema.is_null()).then(|| clean(in_2020(schema)))
    }

    /// What the server says of the tool, without what nobody sees.
    fn description(&self) -> String {
        let text = |field: &str| {
            let text = self.definition[field].as_str().map(shown)?;
            (!text.trim().is_empty()).then(|| text.trim().to_owned())
        };
        text("description")
            .or_else(|| text("title"))
            .unwrap_or_else(|| {
                format!(
                    "The tool {} of the MCP server {}.",
                    shown(self.upstream),
                    self.server.name
                )
            })
    }
}

/// A manifest without the fields that say what they would say if they were left out.
fn sparse(manifest: &Manifest) -> Value {
    let whole = json!(manifest);
    let least: Map<String, Value> = WRITTEN
        .iter()
        .filter_map(|field| Some(((*field).to_owned(), whole.get(field)?.clone())))
        .collect();
    let usual: Option<Manifest> = serde_json::from_value(Value::Object(least)).ok();
    let usual = usual.map(|usual| json!(usual));
    let Value::Object(mut fields) = whole else {
        return whole;
    };
    fields.retain(|field, value| {
        WRITTEN.contains(&field.as_str())
            || usual.as_ref().and_then(|usual| usual.get(field)) != Some(value)
    });
    Value::Object(fields)
}

/// A schema whose words have nothing that nobody sees.
fn clean(mut schema: Value) -> Value {
    clean_words(&mut schema);
    schema
}

fn clean_words(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(words) if WORDS.contains(&name.as_str()) => *words = shown(words),
                    _data if DATA.contains(&name.as_str()) => {}
                    other => clean_words(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(clean_words),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Where there is a character that nobody sees.
fn hidden(value: &Value, place: &str) -> Option<String> {
    match value {
        Value::String(text) => hides(text).then(|| place.to_owned()),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(at, item)| hidden(item, &format!("{place}/{at}"))),
        Value::Object(members) => members.iter().find_map(|(name, value)| {
            if hides(name) {
                return Some(format!("a name in {place}"));
            }
            hidden(value, &format!("{place}/{name}"))
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

fn hides(text: &str) -> bool {
    first_invisible(text).is_some() || text.chars().any(is_control)
}

fn is_control(one: char) -> bool {
    one.is_control() && !matches!(one, '\n' | '\t')
}

/// A text as people see it, cut where it is too long to be read.
pub(super) fn shown(text: &str) -> String {
    let mut seen = String::new();
    let mut count = 0;
    for one in text.chars() {
        if is_control(one) || is_invisible(seen.chars().next_back(), one) {
            continue;
        }
        seen.push(one);
        count += 1;
        if count > DESCRIPTION_MAX {
            break;
        }
    }
    if count > DESCRIPTION_MAX {
        seen.pop();
        seen.push('…');
    }
    seen
}

//! **What is new, changed, gone and unfit** among the tools of a server. Pure.
//!
//! From what it says and what is applied comes a list for a person, with a manifest for each tool that could be applied. Nothing
//! discovered can be called before somebody has applied it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};

use super::{DISCOVER, dialect::in_2020, is_for_operators, name::name_of, pin::Pin};
use crate::{
    call::Effect,
    invisible::is_invisible,
    manifest::{ExecutorSpec, Manifest, McpServer, Trust, parse},
};

/// The most characters of a description.
const DESCRIPTION_MAX: usize = 4_000;

/// A tool of a server, or one that it had.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FoundTool {
    /// What the server calls it.
    pub upstream: String,
    /// What it is or would be called here.
    pub name: String,
    /// What it is.
    #[serde(flatten)]
    pub standing: Standing,
    /// The manifest that could be applied, where there is something to apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Value>,
}

/// What a tool of a server is to the fleet.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "standing", rename_all = "snake_case")]
pub enum Standing {
    /// It was never applied.
    New,
    /// The server says what it said when it was applied.
    Unchanged,
    /// It says something else.
    Changed {
        /// The fields of its definition in which the manifest that is applied differs from it; none where a person had edited them.
        fields: Vec<&'static str>,
        /// Whether only title and description are others.
        words_only: bool,
        /// Why what it says now cannot be a tool of the fleet, if it cannot.
        #[serde(skip_serializing_if = "Option::is_none")]
        unfit: Option<String>,
    },
    /// It was applied, and the server does not have it any more.
    Gone,
    /// It cannot become a tool of the fleet.
    Unfit {
        /// Why.
        reason: String,
    },
}

/// Every tool of a server, by the server's names: what it says of them in `definitions`, and those of its tools that are applied. One that is
/// applied under several names is there once for each.
pub fn compare(server: &McpServer, definitions: &[Value], applied: &[Manifest]) -> Vec<FoundTool> {
    let mut known: BTreeMap<&str, Vec<&Manifest>> = BTreeMap::new();
    for manifest in applied {
        if let ExecutorSpec::Mcp(spec) = &manifest.executor {
            known.entry(&spec.tool).or_default().push(manifest);
        }
    }
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    // The applied ones have their names already.
    let mut names: BTreeMap<String, usize> = known
        .values()
        .flatten()
        .map(|manifest| (manifest.name.to_string(), 1))
        .collect();
    for definition in definitions {
        let Some(upstream) = definition["name"].as_str() else {
            found.push(unfit("", String::new(), "it has no name"));
            continue;
        };
        if !seen.insert(upstream) {
            let name = name_of(server, upstream);
            found.push(unfit(upstream, name, "the server lists this name twice"));
            continue;
        }
        if let Some(manifests) = known.get(upstream) {
            for manifest in manifests {
                let name = manifest.name.to_string();
                found.push(one(server, upstream, name, definition, Some(manifest)));
            }
            continue;
        }
        let name = name_of(server, upstream);
        if is_for_operators(&name) {
            let reason =
                format!("{DISCOVER} and names that begin with {DISCOVER}_ are the fleet's own");
            found.push(unfit(upstream, name, &reason));
            continue;
        }
        *names.entry(name.clone()).or_default() += 1;
        found.push(one(server, upstream, name, definition, None));
    }
    for one in &mut found {
        let is_taken = names.get(&one.name).is_some_and(|count| *count > 1);
        if is_taken && !known.contains_key(one.upstream.as_str()) {
            let reason = format!(
                "another tool of the server is or would be called {} too",
                one.name
            );
            *one = unfit(&one.upstream, one.name.clone(), &reason);
        }
    }
    for (upstream, manifests) in &known {
        if !seen.contains(upstream) {
            found.extend(manifests.iter().map(|manifest| FoundTool {
                upstream: (*upstream).to_owned(),
                name: manifest.name.to_string(),
                standing: Standing::Gone,
                manifest: None,
            }));
        }
    }
    found.sort_by(|one, other| (&one.upstream, &one.name).cmp(&(&other.upstream, &other.name)));
    found
}

fn unfit(upstream: &str, name: String, reason: &str) -> FoundTool {
    FoundTool {
        upstream: shown(upstream),
        name,
        standing: Standing::Unfit {
            reason: reason.to_owned(),
        },
        manifest: None,
    }
}

fn one(
    server: &McpServer,
    upstream: &str,
    name: String,
    definition: &Value,
    applied: Option<&Manifest>,
) -> FoundTool {
    let pin = Pin::of(definition);
    let pinned = applied.and_then(|manifest| match &manifest.executor {
        ExecutorSpec::Mcp(spec) => Some((spec.pin.as_str(), spec.shape.as_deref())),
        _other => None,
    });
    if pinned.is_some_and(|(whole, _)| whole == pin.whole) {
        return FoundTool {
            upstream: upstream.to_owned(),
            name,
            standing: Standing::Unchanged,
            manifest: None,
        };
    }
    let draft = draft(server, upstream, &name, definition, &pin, applied);
    // The door holds what it says here: schemas that refer elsewhere, that are too large or that mean nothing.
    if let Err(problems) = parse(&draft.to_string()) {
        let reason = problems.first().map_or_else(String::new, |problem| {
            format!("{}: {}", problem.path, problem.message)
        });
        let Some(manifest) = applied else {
            return unfit(upstream, name, &reason);
        };
        // Its calls fail as those of any other that has changed.
        return FoundTool {
            upstream: upstream.to_owned(),
            name,
            standing: Standing::Changed {
                fields: differing(server, definition, manifest),
                words_only: false,
                unfit: Some(reason),
            },
            manifest: None,
        };
    }
    let standing = match (applied, pinned) {
        (Some(manifest), Some((_, shape))) => Standing::Changed {
            fields: differing(server, definition, manifest),
            words_only: shape == Some(pin.shape.as_str()),
            unfit: None,
        },
        (_, _) => Standing::New,
    };
    FoundTool {
        upstream: upstream.to_owned(),
        name,
        standing,
        manifest: Some(draft),
    }
}

/// The manifest for what the server says: new, or the applied one with what has changed.
fn draft(
    server: &McpServer,
    upstream: &str,
    name: &str,
    definition: &Value,
    pin: &Pin,
    applied: Option<&Manifest>,
) -> Value {
    let is_read = is_read(server, definition);
    let mut manifest = match applied {
        Some(applied) => {
            let mut manifest = serde_json::to_value(applied).unwrap_or_default();
            manifest["version"] = json!(applied.version.saturating_add(1));
            // What a person has made of a write stays; a read has to be one still.
            if applied.effect == Effect::Read && !is_read {
                manifest["effect"] = json!("once");
            }
            manifest
        }
        None => json!({
            "name": name, "version": 1, "effect": if is_read { "read" } else { "once" }, "output": "content",
            "queue": server.queue,
            "executor": {"mcp": {"server": server.name, "tool": upstream}},
        }),
    };
    manifest["description"] = json!(description(server, upstream, definition));
    manifest["input_schema"] = in_2020(&definition["inputSchema"]);
    manifest["executor"]["mcp"]["pin"] = json!(pin.whole);
    manifest["executor"]["mcp"]["shape"] = json!(pin.shape);
    if let Value::Object(fields) = &mut manifest {
        fields.remove("output_schema");
        if let Some(schema) = definition
            .get("outputSchema")
            .filter(|schema| !schema.is_null())
        {
            fields.insert("output_schema".to_owned(), in_2020(schema));
        }
    }
    manifest
}

/// Whether the tool is a read by what the server says, as far as it is trusted.
fn is_read(server: &McpServer, definition: &Value) -> bool {
    server.trust == Trust::Trusted
        && definition.pointer("/annotations/readOnlyHint") == Some(&Value::Bool(true))
}

/// What the server says of the tool, without what nobody sees.
fn description(server: &McpServer, upstream: &str, definition: &Value) -> String {
    let text = |field: &str| {
        let text = definition[field].as_str().map(shown)?;
        (!text.trim().is_empty()).then(|| text.trim().to_owned())
    };
    text("description")
        .or_else(|| text("title"))
        .unwrap_or_else(|| {
            format!(
                "The tool {} of the MCP server {}.",
                shown(upstream),
                server.name
            )
        })
}

/// A text as people see it, cut where it is too long to be read.
fn shown(text: &str) -> String {
    let mut seen = String::new();
    let mut count = 0;
    for one in text.chars() {
        let is_control = one.is_control() && !matches!(one, '\n' | '\t');
        if is_control || is_invisible(seen.chars().next_back(), one) {
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

/// The fields in which an applied manifest is not what the server says.
fn differing(server: &McpServer, definition: &Value, manifest: &Manifest) -> Vec<&'static str> {
    let mut fields = Vec::new();
    if manifest.effect == Effect::Read && !is_read(server, definition) {
        fields.push("effect");
    }
    if definition["description"].as_str() != Some(manifest.description.as_str()) {
        fields.push("description");
    }
    if in_2020(&definition["inputSchema"]) != manifest.input_schema {
        fields.push("inputSchema");
    }
    let schema = definition
        .get("outputSchema")
        .filter(|schema| !schema.is_null());
    if schema.map(in_2020) != manifest.output_schema {
        fields.push("outputSchema");
    }
    fields
}

#[cfg(test)]
mod tests;

//! **What is new, changed, gone and unfit** among the tools of a server. Pure.
//!
//! From what it says and what is applied comes a list for a person, with a manifest for each tool that could be applied. Nothing
//! discovered can be called before somebody has applied it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};

pub use super::draft::FieldChange;
use super::{
    DISCOVER, UNREADABLE,
    draft::{Described, shown},
    is_for_operators,
    name::name_of,
    pin::Pin,
};
use crate::manifest::{ExecutorSpec, Manifest, McpServer, parse};

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
    /// What was applied and what the server says now, for each field in which they differ.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FieldChange>,
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
    /// It was applied under this name and retired; its manifest would bring it back.
    Retired,
    /// The server says what it said when it was applied.
    Unchanged,
    /// It says something else.
    Changed {
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

/// Every tool of a server, by the server's names: what it says of them in `definitions`, and those of its tools that are applied.
///
/// One that is applied under several names is there once for each. `retired` are the newest manifests of those that are retired.
pub fn compare(
    server: &McpServer,
    definitions: &[Value],
    applied: &[Manifest],
    retired: &[Manifest],
) -> Vec<FoundTool> {
    let (known, retired) = (by_upstream(applied), by_upstream(retired));
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    // The applied ones have their names already.
    let mut names: BTreeMap<String, usize> = known
        .values()
        .flatten()
        .map(|manifest| (manifest.name.to_string(), 1))
        .collect();
    let twice = listed_twice(definitions);
    for definition in definitions {
        let Some(upstream) = definition["name"].as_str() else {
            let reason = definition[UNREADABLE].as_str().unwrap_or("it has no name");
            found.push(unfit("", String::new(), reason));
            continue;
        };
        if !seen.insert(upstream) {
            continue;
        }
        let definition = twice.get(upstream).unwrap_or(definition);
        if let Some(manifests) = known.get(upstream) {
            for manifest in manifests {
                let name = manifest.name.to_string();
                found.push(one(server, upstream, name, definition, Some(manifest)));
            }
            continue;
        }
        if let Some(manifests) = retired.get(upstream) {
            for manifest in manifests {
                let name = manifest.name.to_string();
                *names.entry(name.clone()).or_default() += 1;
                found.push(again(server, upstream, name, definition, manifest));
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
                changes: Vec::new(),
                manifest: None,
            }));
        }
    }
    found.sort_by(|one, other| (&one.upstream, &one.name).cmp(&(&other.upstream, &other.name)));
    found
}

/// Manifests by what their servers call them.
fn by_upstream(manifests: &[Manifest]) -> BTreeMap<&str, Vec<&Manifest>> {
    let mut known: BTreeMap<&str, Vec<&Manifest>> = BTreeMap::new();
    for manifest in manifests {
        if let ExecutorSpec::Mcp(spec) = &manifest.executor {
            known.entry(&spec.tool).or_default().push(manifest);
        }
    }
    known
}

/// The names that the server lists more than once, each as what cannot be read: no worker calls one of them.
fn listed_twice(definitions: &[Value]) -> BTreeMap<&str, Value> {
    let (mut seen, mut twice) = (BTreeSet::new(), BTreeMap::new());
    for name in definitions.iter().filter_map(|one| one["name"].as_str()) {
        if !seen.insert(name) {
            let why = "the server lists this name twice";
            twice.insert(name, json!({ "name": name, UNREADABLE: why }));
        }
    }
    twice
}

fn unfit(upstream: &str, name: String, reason: &str) -> FoundTool {
    FoundTool {
        upstream: shown(upstream),
        name,
        standing: Standing::Unfit {
            reason: reason.to_owned(),
        },
        changes: Vec::new(),
        manifest: None,
    }
}

/// A tool that is there, and was never applied or stands applied.
fn one(
    server: &McpServer,
    upstream: &str,
    name: String,
    definition: &Value,
    applied: Option<&Manifest>,
) -> FoundTool {
    let described = Described {
        server,
        upstream,
        definition,
    };
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
            changes: Vec::new(),
            manifest: None,
        };
    }
    let draft = fit(&described, &name, &pin, applied);
    let standing = match (applied, &draft) {
        (None, Ok(_)) => Standing::New,
        (None, Err(reason)) => return unfit(upstream, name, reason),
        // The calls of an unfit one fail as those of any other that has changed.
        (Some(_), draft) => Standing::Changed {
            words_only: draft.is_ok() && pinned.is_some_and(|(_, shape)| shape == Some(&pin.shape)),
            unfit: draft.as_ref().err().cloned(),
        },
    };
    FoundTool {
        upstream: upstream.to_owned(),
        name,
        standing,
        changes: applied.map_or_else(Vec::new, |manifest| described.differing(manifest)),
        manifest: draft.ok(),
    }
}

/// A tool that is there, and was retired.
fn again(
    server: &McpServer,
    upstream: &str,
    name: String,
    definition: &Value,
    retired: &Manifest,
) -> FoundTool {
    let described = Described {
        server,
        upstream,
        definition,
    };
    match fit(&described, &name, &Pin::of(definition), Some(retired)) {
        Err(reason) => unfit(upstream, name, &reason),
        Ok(manifest) => FoundTool {
            upstream: upstream.to_owned(),
            name,
            standing: Standing::Retired,
            changes: described.differing(retired),
            manifest: Some(manifest),
        },
    }
}

/// The manifest for a tool that can be one of the fleet.
///
/// # Errors
///
/// It cannot, and why.
fn fit(
    described: &Described<'_>,
    name: &str,
    pin: &Pin,
    earlier: Option<&Manifest>,
) -> Result<Value, String> {
    // Before the door: it says of such characters what is of no use here.
    if let Some(reason) = described.is_unfit() {
        return Err(reason);
    }
    let draft = described.manifest(name, pin, earlier);
    // The door holds what it says here: schemas that refer elsewhere, that are too large or that mean nothing.
    match parse(&draft.to_string()) {
        Ok(_) => Ok(draft),
        Err(problems) => Err(problems.first().map_or_else(String::new, |problem| {
            format!("{}: {}", problem.path, problem.message)
        })),
    }
}

#[cfg(test)]
mod tests;

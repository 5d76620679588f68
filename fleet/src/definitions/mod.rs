//! Tools as a model and its program see them: definitions in the shape that their API takes, and instructions for answers.
//!
//! A tool has one name everywhere: our names fit the rule of every vendor, so the name that a model calls is the tool's own.

mod instructions;
mod models;
mod nulls;
mod size;
mod strict;
mod union;

use std::{borrow::Cow, time::Duration};

use serde::Serialize;
use serde_json::{Value, json};

pub use self::{
    instructions::instructions,
    models::{for_model, for_models, shown_to},
};
use crate::{
    call::{Effect, Language, words},
    ids::ToolName,
    manifest::{AnswerForm, ExecutorSpec, Manifest, OverMcp, Visibility},
};

words! {
    /// The shape of a list of definitions.
    Format {
        /// The `tools` of a chat completion of `OpenAI`.
        Openai = "openai",
        /// The `tools` of an Anthropic message.
        Anthropic = "anthropic",
        /// The `tools` of an MCP `tools/list` result.
        Mcp = "mcp",
        /// Everything that a caller may know, for programs.
        Full = "full",
    }
}

/// The definitions of these tools as a JSON array, sorted by name. They contain nothing about how a tool is run. Unlisted ones are
/// among them for programs alone.
pub fn definitions<'a>(tools: impl Iterator<Item = &'a Manifest>, format: Format) -> Value {
    let is_told_of = |tool: &&Manifest| match format {
        Format::Full => true,
        Format::Openai | Format::Anthropic | Format::Mcp => is_listed(tool),
    };
    sorted(tools.filter(is_told_of))
        .into_iter()
        .map(|tool| definition(tool, format))
        .collect()
}

/// The definition of a tool, listed or not.
pub fn definition(tool: &Manifest, format: Format) -> Value {
    let (name, description, schema) = (&tool.name, described(tool), shown_schema(tool));
    match format {
        Format::Openai => json!({
            "type": "function",
            "function": {"name": name, "description": description, "parameters": schema},
        }),
        Format::Anthropic => {
            json!({"name": name, "description": description, "input_schema": schema})
        }
        Format::Mcp => mcp(tool, schema),
        Format::Full => full(tool, schema),
    }
}

/// Definitions for `OpenAI`, each in strict mode where that loses nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StrictDefinitions {
    /// All of them, sorted by name.
    pub tools: Vec<Value>,
    /// The tools among them that have `"strict": false`.
    pub not_strict: Vec<NotStrict>,
}

/// A tool whose schema strict mode cannot express.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotStrict {
    /// The tool.
    pub name: ToolName,
    /// The place in its schema, and the reason.
    pub reason: String,
}

/// The definitions of these tools for `OpenAI`'s strict mode, in which a model cannot send arguments that do not fit. Unlisted ones
/// are left out.
pub fn strict_definitions<'a>(tools: impl Iterator<Item = &'a Manifest>) -> StrictDefinitions {
    let mut listed = StrictDefinitions {
        tools: Vec::new(),
        not_strict: Vec::new(),
    };
    for tool in sorted(tools.filter(|tool| is_listed(tool))) {
        let (definition, not_strict) = strict_definition(tool);
        listed.tools.push(definition);
        listed.not_strict.extend(not_strict);
    }
    listed
}

/// The same of one tool, listed or not; why it is not strict, where it is not.
pub fn strict_definition(tool: &Manifest) -> (Value, Option<NotStrict>) {
    let mut strict = definition(tool, Format::Openai);
    let schema = strict::schema(&shown_schema(tool), tool);
    strict["function"]["strict"] = schema.is_ok().into();
    let reason = match schema {
        Ok(schema) => {
            strict["function"]["parameters"] = schema;
            None
        }
        Err(reason) => Some(NotStrict {
            name: tool.name.clone(),
            reason,
        }),
    };
    (strict, reason)
}

fn is_listed(tool: &Manifest) -> bool {
    match tool.visibility {
        Visibility::Shown | Visibility::Hidden => true,
        Visibility::Unlisted => false,
    }
}

fn sorted<'a>(tools: impl Iterator<Item = &'a Manifest>) -> Vec<&'a Manifest> {
    let mut tools: Vec<_> = tools.collect();
    tools.sort_by_key(|tool| (tool.name.as_str(), tool.version));
    tools
}

/// What a model reads to decide whether to call it; where calls need somebody's yes, it says so.
pub fn described(tool: &Manifest) -> Cow<'_, str> {
    let Some(approval) = &tool.approval else {
        return Cow::Borrowed(&tool.description);
    };
    let waits = match (tool.language, approval.when.is_empty()) {
        (Language::En, true) => "Each call waits until a person has agreed.",
        (Language::En, false) => "Some calls wait until a person has agreed.",
        (Language::Zh, true) => "每次调用都要等人同意后才会执行。",
        (Language::Zh, false) => "部分调用要等人同意后才会执行。",
    };
    let reason = approval.reason.as_deref().unwrap_or_default();
    let parts = [tool.description.trim_end(), waits, reason];
    let said = parts.into_iter().filter(|part| !part.is_empty());
    Cow::Owned(said.collect::<Vec<_>>().join(" "))
}

fn mcp(tool: &Manifest, schema: Value) -> Value {
    let mut definition = json!({
        "name": tool.name,
        "description": described(tool),
        "inputSchema": schema,
        "annotations": annotations(tool.effect),
    });
    // The only kind of answer that MCP takes as structured content.
    let answer = tool.output_schema.as_ref();
    if let Some(answer) = answer.filter(|schema| schema.get("type") == Some(&json!("object"))) {
        definition["outputSchema"] = bare(answer.clone());
    }
    definition
}

fn full(tool: &Manifest, schema: Value) -> Value {
    let mut definition = json!({
        "name": tool.name,
        "version": tool.version,
        "description": described(tool),
        "effect": tool.effect,
        "input_schema": schema,
        "key": tool.key_policy(),
        "timeout_ms": millis(tool.timeout.longest()),
        "deadline_ms": millis(tool.deadline),
        "key_retention_ms": millis(tool.key_retention),
        "queue": tool.queue,
        "coercion": tool.coercion,
        "language": tool.language,
    });
    if let Some(answer) = &tool.output_schema {
        definition["output_schema"] = bare(answer.clone());
    }
    if tool.output != AnswerForm::Json {
        definition["output"] = json!(tool.output);
    }
    if tool.visibility != Visibility::Shown {
        definition["visibility"] = json!(tool.visibility);
    }
    if let Some(presents) = tool.presents {
        definition["presents"] = json!(presents);
    }
    if tool.probe.is_some() {
        definition["probed"] = json!(true);
    }
    if tool.mcp != OverMcp::default() {
        definition["mcp"] = json!(tool.mcp);
    }
    if let ExecutorSpec::Chat(chat) = &tool.executor {
        definition["protocol"] = json!(chat.protocol);
    }
    if let Some(concurrency) = tool.concurrency {
        definition["concurrency"] = json!(concurrency);
    }
    if let Some(rate) = &tool.rate_limit {
        definition["rate_limit"] = json!(rate);
    }
    if tool.is_final {
        definition["final"] = json!(true);
    }
    definition
}

/// The input schema without the argument that carries the downstream key: the fleet fills it in, so a model need not know it.
fn shown_schema(tool: &Manifest) -> Value {
    let mut schema = bare(tool.input_schema.clone());
    let argument = tool
        .idempotency
        .as_ref()
        .and_then(|idempotency| idempotency.argument.as_deref());
    if let (Some(argument), Some(properties)) = (
        argument,
        schema.get_mut("properties").and_then(Value::as_object_mut),
    ) {
        properties.remove(argument);
    }
    schema
}

/// A schema without keywords about the document: vendors take a fragment, and some refuse more.
fn bare(mut schema: Value) -> Value {
    if let Some(keywords) = schema.as_object_mut() {
        for about_the_document in ["$schema", "$id", "$comment"] {
            keywords.remove(about_the_document);
        }
    }
    schema
}

/// MCP's hints. A write may overwrite, and may reach beyond this system: the fleet does not know better.
fn annotations(effect: Effect) -> Value {
    let (read_only, idempotent) = match effect {
        Effect::Read => (true, true),
        Effect::Idempotent => (false, true),
        Effect::Once | Effect::Transaction => (false, false),
    };
    json!({
        "readOnlyHint": read_only,
        "destructiveHint": !read_only,
        "idempotentHint": idempotent,
        "openWorldHint": true,
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

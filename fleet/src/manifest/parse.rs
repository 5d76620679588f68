//! Reads one manifest file and reports everything that is wrong with it at once.
//!
//! Three steps, each reporting all it finds: the text must be YAML, the value must fit `schemas/manifest.json`, or
//! `schemas/mcp_server.json`, and its fields must fit together (`check`).

use std::sync::LazyLock;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    advice, chat_defaults, check, document, mcp_server::McpServer, problem::ManifestProblem,
    version::Manifest,
};
use crate::arguments::Schema;

/// The most bytes of one manifest.
const BYTES_MAX: usize = 256 * 1024;

/// The schema of a manifest, a promise to operators.
static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let schema = serde_json::from_str(include_str!("../../../schemas/manifest.json"))
        .expect("our schema is JSON");
    Schema::compile(&schema).expect("our schema compiles")
});

/// The same of a manifest of an MCP server.
static SERVER_SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let schema = serde_json::from_str(include_str!("../../../schemas/mcp_server.json"))
        .expect("our schema is JSON");
    Schema::compile(&schema).expect("our schema compiles")
});

/// What a file may hold.
#[derive(Debug, Clone, PartialEq)]
pub enum AnyManifest {
    /// A tool.
    Tool(Box<Manifest>),
    /// A server whose tools manifests name.
    McpServer(Box<McpServer>),
}

/// Reads one manifest of a tool, YAML or JSON.
///
/// # Errors
///
/// Every problem found, in a stable order.
pub fn parse(text: &str) -> Result<Manifest, Vec<ManifestProblem>> {
    tool(read(text)?)
}

/// Reads one manifest of either kind, YAML or JSON: one with `kind: mcp_server` is that of a server.
///
/// # Errors
///
/// Every problem found, in a stable order.
pub fn parse_any(text: &str) -> Result<AnyManifest, Vec<ManifestProblem>> {
    let value = read(text)?;
    if value.get("kind").is_some() {
        server(value).map(|server| AnyManifest::McpServer(Box::new(server)))
    } else {
        tool(value).map(|tool| AnyManifest::Tool(Box::new(tool)))
    }
}

fn read(text: &str) -> Result<Value, Vec<ManifestProblem>> {
    if text.len() > BYTES_MAX {
        let message = format!(
            "the file has {} bytes; at most {BYTES_MAX} are allowed",
            text.len()
        );
        return Err(vec![ManifestProblem::new("", message)]);
    }
    document::read(text).map_err(|message| vec![ManifestProblem::new("", message)])
}

fn tool(mut value: Value) -> Result<Manifest, Vec<ManifestProblem>> {
    chat_defaults::fill_in(&mut value);
    fits(&SCHEMA, &value)?;
    let manifest: Manifest = typed(value)?;
    sound(check::check(&manifest), manifest)
}

fn server(value: Value) -> Result<McpServer, Vec<ManifestProblem>> {
    fits(&SERVER_SCHEMA, &value)?;
    let server: McpServer = typed(value)?;
    sound(server.check(), server)
}

fn fits(schema: &Schema, value: &Value) -> Result<(), Vec<ManifestProblem>> {
    let unfit = schema.validate(value);
    if unfit.is_empty() {
        return Ok(());
    }
    let mut problems: Vec<_> = unfit
        .items()
        .iter()
        .map(|violation| {
            let message = advice::sentence(violation, value, schema.source());
            ManifestProblem::new(violation.path.clone(), message)
        })
        .collect();
    if unfit.left_out() > 0 {
        let message = format!(
            "{} more problems are not shown; fix these first",
            unfit.left_out()
        );
        problems.push(ManifestProblem::new("", message));
    }
    Err(problems)
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<T, Vec<ManifestProblem>> {
    serde_json::from_value(value).map_err(|error| vec![ManifestProblem::new("", error.to_string())])
}

fn sound<T>(problems: Vec<ManifestProblem>, manifest: T) -> Result<T, Vec<ManifestProblem>> {
    if problems.is_empty() {
        Ok(manifest)
    } else {
        Err(problems)
    }
}

#[cfg(test)]
mod tests;

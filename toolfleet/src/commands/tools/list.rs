//! `toolfleet tools list`.

use std::process::ExitCode;

use fleet::config::StoreArgs;
use fleet_history::{
    instant,
    tools::{ListedTool, tools},
};
use serde_json::Value;

use crate::commands::{connect, output};

/// What `tools list` is told.
#[derive(Debug, clap::Args)]
pub struct ListTools {
    /// Every version, not only the current one of each tool
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: an array of rows of the view toolfleet.tools, without their manifests
    #[arg(long)]
    json: bool,
}

impl ListTools {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let rows = tools(&pool, self.all).await?;
        let headings = [
            "TOOL", "VERSION", "EFFECT", "EXECUTOR", "QUEUE", "KEY", "LIMIT", "APPLIED", "BY",
            "RETIRED",
        ];
        output::print_rows(&rows, self.json, &headings, cells)
    }
}

fn cells(version: ListedTool) -> Vec<String> {
    let none = || "-".to_owned();
    let limits = [
        version
            .concurrency
            .map(|limit| format!("{limit} at a time")),
        version.rate_limit.as_ref().and_then(rate),
    ];
    let limits: Vec<String> = limits.into_iter().flatten().collect();
    let limit = (!limits.is_empty()).then(|| limits.join(", "));
    vec![
        version.tool,
        version.version.to_string(),
        version.effect,
        version.executor,
        version.queue,
        version.key,
        limit.unwrap_or_else(none),
        instant(version.applied_at),
        version.applied_by,
        version.retired_at.map_or_else(none, instant),
    ]
}

/// The numbers of a manifest's rate limit, or the name under which tools share one.
fn rate(limit: &Value) -> Option<String> {
    if let Some(name) = limit["share"].as_str() {
        return Some(format!("shares {name}"));
    }
    let (calls, per) = (limit["calls"].as_u64()?, limit["per"].as_str()?);
    let whose = match limit["by"].as_str() {
        Some("tenant") => " for each tenant".to_owned(),
        Some(pointer) if pointer.starts_with('/') => format!(" for each value of {pointer}"),
        _tool => String::new(),
    };
    Some(format!("{calls}/{per}{whose}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rate_is_told_as_the_commands_take_it() {
        for (limit, told) in [
            (json!({"calls": 50, "per": "1s"}), "50/1s"),
            (
                json!({"calls": 5, "per": "1m", "by": "tenant"}),
                "5/1m for each tenant",
            ),
            (
                json!({"calls": 5, "per": "1m", "by": "/account/id"}),
                "5/1m for each value of /account/id",
            ),
            (json!({"share": "bank"}), "shares bank"),
        ] {
            assert_eq!(rate(&limit).as_deref(), Some(told));
        }
    }
}

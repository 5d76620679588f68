//! `toolfleet tools list`.

use std::process::ExitCode;

use fleet::config::StoreArgs;
use fleet_history::{
    instant,
    tools::{ListedTool, tools},
};

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
    let limit = version.concurrency.map(|limit| limit.to_string());
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

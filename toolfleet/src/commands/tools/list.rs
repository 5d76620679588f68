//! `toolfleet tools list`.

use std::process::ExitCode;

use anyhow::Context;
use fleet::config::StoreArgs;
use serde::Deserialize;

use crate::commands::{connect, history, json, output};

/// What `tools list` is told.
#[derive(Debug, clap::Args)]
pub struct List {
    /// Every version, not only the current one of each tool
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: an array of rows of the view toolfleet.tools, without their manifests
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let rows = history::tools(&pool, self.all).await?;
        if self.json {
            output::print(&json::compact(&format!("[{}]", rows.join(","))))?;
            return Ok(ExitCode::SUCCESS);
        }
        let rows: Result<Vec<Row>, _> = rows.iter().map(|row| serde_json::from_str(row)).collect();
        let cells: Vec<_> = rows
            .context("read the view of tools")?
            .into_iter()
            .map(Row::cells)
            .collect();
        let headings = [
            "TOOL", "VERSION", "EFFECT", "EXECUTOR", "QUEUE", "KEY", "LIMIT", "APPLIED", "BY",
            "RETIRED",
        ];
        output::print(&output::table(&headings, &cells))?;
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Deserialize)]
struct Row {
    tool: String,
    version: i32,
    effect: String,
    executor: String,
    queue: String,
    key: String,
    concurrency: Option<i32>,
    #[serde(with = "time::serde::rfc3339")]
    applied_at: time::OffsetDateTime,
    applied_by: String,
    #[serde(with = "time::serde::rfc3339::option")]
    retired_at: Option<time::OffsetDateTime>,
}

impl Row {
    fn cells(self) -> Vec<String> {
        let (version, applied) = (self.version.to_string(), output::instant(self.applied_at));
        let limit = self.concurrency;
        let limit = limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string());
        let retired = self.retired_at;
        let retired = retired.map_or_else(|| "-".to_owned(), output::instant);
        vec![
            self.tool,
            version,
            self.effect,
            self.executor,
            self.queue,
            self.key,
            limit,
            applied,
            self.applied_by,
            retired,
        ]
    }
}

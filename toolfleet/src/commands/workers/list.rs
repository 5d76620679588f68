//! `toolfleet workers list`.

use std::process::ExitCode;

use anyhow::Context;
use fleet::config::StoreArgs;
use serde::Deserialize;
use time::OffsetDateTime;

use crate::commands::{connect, history, json, output};

/// What `workers list` is told.
#[derive(Debug, clap::Args)]
pub struct List {
    /// Those too that have left in order or are fenced
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: an array of rows of the view toolfleet.workers
    #[arg(long)]
    json: bool,
}

impl List {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let rows = history::workers(&pool, self.all).await?;
        if self.json {
            output::print(&json::compact(&format!("[{}]", rows.join(","))))?;
            return Ok(ExitCode::SUCCESS);
        }
        let rows: Result<Vec<Row>, _> = rows.iter().map(|row| serde_json::from_str(row)).collect();
        let rows = rows.context("read the view of workers")?;
        let cells: Vec<_> = rows.into_iter().map(Row::cells).collect();
        let headings = [
            "WORKER",
            "NAME",
            "HOST",
            "PID",
            "STATE",
            "QUEUES",
            "RUNNING",
            "LAST BEAT",
            "ENDED",
            "BY",
        ];
        output::print(&output::table(&headings, &cells))?;
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Deserialize)]
struct Row {
    worker_id: String,
    name: String,
    host: String,
    pid: i32,
    state: String,
    queues: Vec<String>,
    concurrency: i32,
    running: i64,
    #[serde(with = "time::serde::rfc3339")]
    beat_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339::option")]
    ended_at: Option<OffsetDateTime>,
    ended_by: Option<String>,
    fenced_by: Option<String>,
    fence_note: Option<String>,
}

impl Row {
    fn cells(self) -> Vec<String> {
        let none = || "-".to_owned();
        let note = self.fence_note.map(|note| format!(": {note}"));
        let fenced = self.fenced_by.map(|by| by + &note.unwrap_or_default());
        vec![
            self.worker_id,
            self.name,
            self.host,
            self.pid.to_string(),
            self.state,
            self.queues.join(","),
            format!("{} of {}", self.running, self.concurrency),
            output::instant(self.beat_at),
            self.ended_at.map_or_else(none, output::instant),
            fenced.or(self.ended_by).unwrap_or_else(none),
        ]
    }
}

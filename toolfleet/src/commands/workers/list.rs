//! `toolfleet workers list`.

use std::process::ExitCode;

use fleet::config::StoreArgs;
use fleet_history::{
    instant,
    workers::{ListedWorker, workers},
};

use crate::commands::{connect, output};

/// What `workers list` is told.
#[derive(Debug, clap::Args)]
pub struct ListWorkers {
    /// Those too that have left in order or are fenced
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: an array of rows of the view toolfleet.workers
    #[arg(long)]
    json: bool,
}

impl ListWorkers {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let rows = workers(&pool, self.all).await?;
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
        output::print_rows(&rows, self.json, &headings, cells)
    }
}

fn cells(worker: ListedWorker) -> Vec<String> {
    let none = || "-".to_owned();
    let note = worker.fence_note.map(|note| format!(": {note}"));
    let fenced = worker.fenced_by.map(|by| by + &note.unwrap_or_default());
    vec![
        worker.worker_id,
        worker.name,
        worker.host,
        worker.pid.to_string(),
        worker.state,
        worker.queues.join(","),
        format!("{} of {}", worker.running, worker.concurrency),
        instant(worker.beat_at),
        worker.ended_at.map_or_else(none, instant),
        fenced.or(worker.ended_by).unwrap_or_else(none),
    ]
}

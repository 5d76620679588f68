//! Which tools this worker cannot run, whatever the arguments are: written to its row for `toolfleet doctor`, when it changes.

use std::{sync::Arc, time::Duration};

use fleet::{
    ids::{QueueName, ToolName},
    manifest::Manifest,
    obstacle::{Inability, Obstacle},
    store::workers,
    telemetry::report,
};
use tokio_util::sync::CancellationToken;

use crate::{consent, worker::WorkerProcess};

/// How often it looks: a secret may come or go at any time.
const LOOK: Duration = Duration::from_secs(10);
/// The most tools that are written.
const TOLD_MAX: usize = 1_000;

/// Looks until `stop` is cancelled. Cancel-safe: what it writes is one statement.
pub(crate) async fn run(
    worker: Arc<WorkerProcess>,
    queues: Vec<QueueName>,
    stop: CancellationToken,
) {
    let mut told = Vec::new();
    while !stop.is_cancelled() {
        let found = found(&worker, &queues);
        for Inability {
            tool,
            version,
            obstacle,
        } in &found
        {
            worker.lacks.found(tool, *version, obstacle);
        }
        worker
            .lacks
            .look(|tool, version| lacks(&worker, tool, version));
        if found != told {
            match workers::cannot_run(&worker.pool, worker.id, &found).await {
                Ok(()) => told = found,
                Err(error) => tracing::debug!(
                    error = report(&error),
                    "what this worker cannot run was not written; the next look does it"
                ),
            }
        }
        stop.run_until_cancelled(tokio::time::sleep(LOOK)).await;
    }
}

/// The current tools of its queues that this worker cannot run, by name.
fn found(worker: &WorkerProcess, queues: &[QueueName]) -> Vec<Inability> {
    let mut found: Vec<Inability> = worker
        .registry
        .all_current()
        .iter()
        .map(|tool| &tool.manifest)
        .filter(|manifest| queues.contains(&manifest.queue) && !manifest.is_run_by_client())
        .filter_map(|manifest| {
            Some(Inability {
                tool: manifest.name.clone(),
                version: manifest.version,
                obstacle: check(worker, manifest).err()?,
            })
        })
        .collect();
    found.sort_by(|a, b| a.tool.cmp(&b.tool));
    found.truncate(TOLD_MAX);
    found
}

/// Whether the worker cannot run this version, or does not have it.
fn lacks(worker: &WorkerProcess, tool: &ToolName, version: i32) -> bool {
    let Some(tool) = worker.registry.version(tool, version) else {
        return true;
    };
    check(worker, &tool.manifest).is_err()
}

fn check(worker: &WorkerProcess, manifest: &Manifest) -> Result<(), Obstacle> {
    let newest = worker.registry.current(&manifest.name);
    let newest = newest.as_ref().map(|newest| &newest.manifest);
    consent::lacking(manifest, newest, &worker.interceptors, &worker.name)?;
    let executor = worker.executors.of(manifest);
    let checked = executor.and_then(|executor| executor.check(manifest, &worker.secrets));
    checked.map_err(|failure| Obstacle::of(&failure, &worker.name))
}

//! Writes to the ledger what the interceptors, caches, fallbacks, large results and edits of model calls did: every five seconds,
//! and only where there is something new.

use std::{sync::Arc, time::Duration};

use fleet::{store::interceptors, telemetry::report};
use tokio_util::sync::CancellationToken;

use crate::worker::WorkerProcess;

/// How often it looks.
const LOOK: Duration = Duration::from_secs(5);

/// Looks until `stop` is cancelled, and then once more. A worker without any of them never asks Postgres.
pub(crate) async fn run(worker: Arc<WorkerProcess>, stop: CancellationToken) {
    let mut told = Vec::new();
    loop {
        let is_last = stop
            .run_until_cancelled(tokio::time::sleep(LOOK))
            .await
            .is_none();
        let chain = worker.interceptors.iter();
        let own = chain.map(|link| link.active.tally.counts(&link.active.about.name));
        let counts: Vec<_> = own
            .chain(worker.cache.counts())
            .chain(worker.fallbacks.counts())
            .chain(worker.large_results.counts())
            .chain(worker.model_edits.counts())
            .collect();
        let ran: Vec<_> = counts
            .iter()
            .map(|now| (now.calls, now.errors, now.own_us))
            .collect();
        let is_new = ran != told && ran.iter().any(|(calls, errors, _)| calls + errors > 0);
        if is_new {
            match interceptors::record(&worker.pool, worker.id, &counts).await {
                Ok(()) => told = ran,
                Err(error) => tracing::debug!(
                    error = report(&error),
                    "what the interceptors did was not written; the next look does it"
                ),
            }
        }
        if is_last {
            return;
        }
    }
}

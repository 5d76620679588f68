//! Cancel: ends an attempt that runs here and whose call was cancelled.
//!
//! The flag in the row is the request; the message is only a bell. At a bell, from whatever sender, this worker reads the rows
//! of those calls that it runs, and stops only what carries the flag. A lost bell costs a few seconds, for every heartbeat
//! reads all rows of this worker.
//!
//! A row that another attempt owns, or that was settled, tells the attempt nothing: it goes on and reports late. To abort a
//! running write would only make its effect unknown.

use std::{collections::HashSet, sync::Arc, time::Duration};

use fleet::{
    bus::BusError,
    ids::CallId,
    store::workers::{self, OwnRow},
    telemetry::report,
};
use futures_util::{FutureExt, StreamExt};
use tokio_util::sync::CancellationToken;

use crate::worker::WorkerProcess;

/// The most bells that one look answers.
const HEARD_MAX: usize = 1_000;
/// The pause between two looks, however fast bells ring.
const REST: Duration = Duration::from_millis(50);

/// Subscribes to this worker's bell. What it returns hears the bell until `stop` is cancelled.
pub(crate) async fn listen(
    worker: Arc<WorkerProcess>,
    stop: CancellationToken,
) -> Result<impl Future<Output = ()> + Send, BusError> {
    let subject = worker.bus.subjects.cancel_of_worker(worker.id);
    let subscription = worker.bus.client.subscribe(subject).await;
    let mut bells = subscription.map_err(|error| BusError::Unavailable {
        doing: "listen for cancelled calls",
        source: Some(Box::new(error)),
    })?;
    Ok(async move {
        while let Some(Some(bell)) = stop.run_until_cancelled(bells.next()).await {
            let mut rung: HashSet<CallId> = call_of(&bell.payload).into_iter().collect();
            for _ in 1..HEARD_MAX {
                match bells.next().now_or_never() {
                    Some(Some(bell)) => rung.extend(call_of(&bell.payload)),
                    Some(None) | None => break,
                }
            }
            look(&worker, &rung).await;
            stop.run_until_cancelled(tokio::time::sleep(REST)).await;
        }
        // Without a bell, the heartbeats find the flags.
        stop.cancelled().await;
    })
}

/// Reads the rows of those of these calls that run here.
async fn look(worker: &WorkerProcess, calls: &HashSet<CallId>) {
    let running = worker.attempts.uncancelled(|call| calls.contains(&call));
    if running.is_empty() {
        return;
    }
    match workers::own_rows(&worker.pool, &running).await {
        Ok(rows) => heed(worker, &rows),
        Err(error) => tracing::debug!(
            error = report(&error),
            "the rows were not looked at; the next heartbeat does"
        ),
    }
}

/// Cancels the attempts whose rows carry the flag.
pub(crate) fn heed(worker: &WorkerProcess, rows: &[OwnRow]) {
    for row in rows.iter().filter(|row| row.cancel_requested) {
        worker.attempts.cancel(row.attempt_id);
    }
}

fn call_of(payload: &[u8]) -> Option<CallId> {
    std::str::from_utf8(payload).ok()?.parse().ok()
}

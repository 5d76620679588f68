//! Cancel: a call that runs here is to stop.
//!
//! The flag in the row is the wish; the message is only a bell. Whoever rings it makes this process look at the rows of
//! calls that it runs, and no more: without the flag nothing is stopped. A bell that is lost costs a few seconds, for with
//! every heartbeat all rows are looked at.
//!
//! A row that is no longer this attempt's, because it was fenced or settled, tells the attempt nothing. It goes on and
//! reports late: aborting a running write would only manufacture doubt.

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

/// How many bells are heard together at most.
const HEARD_MAX: usize = 1_000;
/// The rest between two looks: however fast somebody rings, there are no more looks than this.
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
        // Without a bell the heartbeats are left.
        stop.cancelled().await;
    })
}

/// Looks at the rows of those of these calls that run here.
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

/// Tells the attempts of rows that carry the flag.
pub(crate) fn heed(worker: &WorkerProcess, rows: &[OwnRow]) {
    for row in rows.iter().filter(|row| row.cancel_requested) {
        worker.attempts.cancel(row.attempt_id);
    }
}

fn call_of(payload: &[u8]) -> Option<CallId> {
    std::str::from_utf8(payload).ok()?.parse().ok()
}

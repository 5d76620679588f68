//! The reporter: tells the ledger what this worker has counted of its breakers, and hears what became of them.
//!
//! It sends nothing while there is nothing, else four times a second, and at once when a probe has ended or when its counts alone
//! would open a breaker. Its connection is its own, so that no report waits for one of the pool, and is there before the first report
//! where a tool has a breaker: what makes a target fail often makes opening one slow, up to seconds.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fleet::{
    breaker::ReportVerdict,
    checkpoint::{Checkpoint, reached},
    delay::Reconnect,
    registry::Registry,
    store::{
        PgConnection, StoreError,
        breakers::{self, CountedSecond, REPORT_MAX, ReportAnswer},
        session::within,
    },
    telemetry::{metrics, report},
};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::counts::Circuit;
use crate::worker::WorkerProcess;

/// How often it reports.
const EVERY: Duration = Duration::from_millis(250);
/// How long a statement may take before its connection is given up.
const STATEMENT_MAX: Duration = Duration::from_secs(5);
/// The longest pause between two attempts to reach the ledger.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Reports until `stop` is cancelled, and then once more.
pub(crate) async fn run(worker: Arc<WorkerProcess>, stop: CancellationToken) {
    let mut connection = None;
    let mut reconnect = Reconnect::up_to(PAUSE_MAX);
    let (mut next, mut has_warned) = (Instant::now(), false);
    while !stop.is_cancelled() {
        let due = async {
            worker.breakers.something().await;
            tokio::select! {
                () = sleep_until(next) => {}
                () = worker.breakers.urgent() => {}
            }
        };
        let done = tokio::select! {
            () = stop.cancelled() => break,
            () = due => {
                next = Instant::now() + EVERY;
                tell(&worker, &mut connection).await
            }
            () = breakers_are_known(&worker.registry), if connection.is_none() => {
                // What was to be told before is still to be told.
                worker.breakers.again();
                connected(&worker, &mut connection).await.map(drop)
            }
        };
        match done {
            Ok(()) => {
                // Without a connection there was nothing to tell, and nobody was reached.
                if connection.is_some() {
                    reconnect.reached();
                    has_warned = false;
                }
            }
            Err(error) => {
                let what = report(&error);
                // The process says once that Postgres does not answer; what it refuses is said here, once in a row.
                if error.is_unavailable() || has_warned {
                    tracing::debug!(error = what, "breakers were not told; going on");
                } else {
                    tracing::warn!(error = what, "breakers were not told; going on");
                    has_warned = true;
                }
                connection = None;
                worker.breakers.again();
                stop.run_until_cancelled(reconnect.pause()).await;
            }
        }
    }
    if let Err(error) = tell(&worker, &mut connection).await {
        tracing::debug!(
            error = report(&error),
            "the last counts of breakers were not told"
        );
    }
}

/// Waits until calls of a tool meet a breaker. Cancel-safe.
async fn breakers_are_known(registry: &Registry) {
    while !registry.has_breakers() {
        sleep(Registry::POLL).await;
    }
}

async fn connected<'a>(
    worker: &WorkerProcess,
    connection: &'a mut Option<PgConnection>,
) -> Result<&'a mut PgConnection, StoreError> {
    Ok(match connection {
        Some(connection) => connection,
        none => none.insert(breakers::connect(&worker.postgres).await?),
    })
}

async fn tell(
    worker: &WorkerProcess,
    connection: &mut Option<PgConnection>,
) -> Result<(), StoreError> {
    let (unused, seconds) = (worker.breakers.take_unused(), worker.breakers.unreported());
    if unused.is_empty() && seconds.is_empty() {
        return Ok(());
    }
    reached(Checkpoint::Counted);
    let connection = connected(worker, connection).await?;
    let mut has_moved = false;
    for (Circuit { tool, target }, generation) in unused {
        let giving = breakers::give_back(connection, &tool, &target, generation);
        has_moved |= within("give a permit back", STATEMENT_MAX, giving).await?;
    }
    if !seconds.is_empty() {
        let reporting = breakers::report(connection, worker.id, &seconds);
        let answers = within("report breakers", STATEMENT_MAX, reporting).await?;
        reached(Checkpoint::Reported);
        let is_unsure = |one: &CountedSecond| {
            let mut unsure = answers
                .iter()
                .filter(|answer| answer.verdict == ReportVerdict::Unsure);
            unsure.any(|answer| answer.tool == one.tool && answer.target == one.target)
        };
        // What is undecided is told again, when others have told theirs.
        let (undecided, told): (Vec<_>, Vec<_>) = seconds.into_iter().partition(is_unsure);
        if !undecided.is_empty() || undecided.len() + told.len() == REPORT_MAX {
            worker.breakers.again();
        }
        worker.breakers.reported(&told);
        let mut is_stale = false;
        for answer in answers {
            is_stale |= answer.verdict != ReportVerdict::Unsure;
            has_moved |= heard(worker, answer);
        }
        if is_stale {
            let looking = worker.registry.refresh_breakers(connection);
            within("look at breakers", STATEMENT_MAX, looking).await?;
        }
    }
    if has_moved {
        ring(worker).await;
    }
    Ok(())
}

/// Whether the breaker has moved, of which the others have to hear.
fn heard(worker: &WorkerProcess, answer: ReportAnswer) -> bool {
    let ReportAnswer {
        tool,
        target,
        verdict,
        local_for,
    } = answer;
    match verdict {
        ReportVerdict::Opened => {
            tracing::warn!(%tool, target, "the breaker opened: nothing is sent to this target for a while");
            metrics().breaker_opened(&tool);
            true
        }
        ReportVerdict::Closed => {
            tracing::info!(%tool, target, "the breaker is closed: calls are sent to this target again");
            true
        }
        ReportVerdict::Local => {
            let circuit = Circuit { tool, target };
            let Circuit { tool, target } = &circuit;
            tracing::warn!(%tool, target, "only this worker cannot reach the target; it leaves such calls to others for a while");
            worker
                .breakers
                .is_bad_for(&circuit, local_for.unwrap_or_default());
            false
        }
        ReportVerdict::Stale | ReportVerdict::Stays | ReportVerdict::Unsure => false,
    }
}

/// Tells every process that a breaker has moved. Without the bell they find out within a second.
async fn ring(worker: &WorkerProcess) {
    let lost = "that a breaker has moved was not told; processes find out by themselves";
    let subject = worker.bus.subjects.control_changed();
    worker.bus.tell(subject, Bytes::new(), lost).await;
}

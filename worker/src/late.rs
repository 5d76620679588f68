//! Records the outcome of an attempt that was taken from this worker, as late evidence. It moves no call.

use std::time::Duration;

use fleet::{
    delay::Reconnect,
    store::late::{self, LateOutcome, LateReport},
    telemetry::{metrics, report},
};
use tokio::time::Instant;

use crate::{stage::Executed, worker::WorkerProcess};

/// How long it waits for the ledger.
const PATIENCE: Duration = Duration::from_secs(60);

/// Has the ledger keep how the attempt ended, and logs an error if that contradicts how the call ended.
pub(crate) async fn record_late_outcome(worker: &WorkerProcess, executed: &Executed) {
    let claimed = &executed.attempt.claimed;
    let call = claimed.call_id;
    let evidence = LateReport {
        call_id: call,
        attempt_id: executed.attempt.id,
        number: claimed.attempt,
        worker: worker.id,
        actor: worker.actor(),
        attempt_until: claimed.attempt_until,
        timeout_ms: claimed.timeout_ms,
        ended: executed.ended(),
    };
    let outcome = evidence.ended.outcome;
    match keep(worker, &evidence).await {
        Some(LateOutcome::Recorded) => {
            metrics().lost_answer("complete", true);
            tracing::debug!("this worker had recorded the end of its attempt already");
            return;
        }
        Some(LateOutcome::Kept { contradicts: true }) => {
            metrics().integrity_alarm();
            tracing::error!(%call, "a call that ended as not applied had its effect after all");
        }
        Some(LateOutcome::Kept { contradicts: false }) => {}
        Some(LateOutcome::NoCall) => {
            tracing::error!(%call, "a completed call is not in the ledger")
        }
        None => tracing::error!(%call, %outcome, "late evidence could not be kept"),
    }
    metrics().fenced();
    tracing::warn!(%outcome, "attempt was fenced: its outcome came too late to decide the call");
}

async fn keep(worker: &WorkerProcess, evidence: &LateReport) -> Option<LateOutcome> {
    let began = Instant::now();
    let mut reconnect = Reconnect::default();
    while began.elapsed() < PATIENCE {
        match late::keep(&worker.pool, evidence).await {
            Ok(outcome) => return Some(outcome),
            Err(error) => tracing::debug!(error = report(&error), "late evidence was not kept"),
        }
        reconnect.pause().await;
    }
    None
}

//! Complete and reply: the ledger learns how the attempt ended, then whoever waits.

use std::time::Duration;

use fleet::{
    checkpoint::{Checkpoint, reached},
    delay::Reconnect,
    ids::{AttemptId, CallId},
    outcome::Outcome,
    store::{
        StoreError,
        claim::Claimed,
        complete::{Ended, Ending},
        read,
    },
    telemetry::{
        metrics, report,
        spans::{self, Step},
    },
};
use tracing::Instrument;

use crate::{
    conclude::{conclude, envelope, proven_not_applied, without_result},
    execute::{Executed, Execution},
    worker::Worker,
};

/// How long a completion waits for the ledger. Longer than any outage that a worker should live through.
const PATIENCE: Duration = Duration::from_secs(900);

/// Records how an attempt ended and tells whoever waits.
///
/// What cannot be recorded is left as it is: the call stays with this worker, and the sweep decides about it without us
/// when it is overdue. It is never given back, for the tool may have run.
pub(crate) async fn complete(worker: &Worker, executed: Executed) {
    let Executed {
        claimed,
        attempt_id,
        tool,
        claim_sent,
        execution,
    } = executed;
    let (call, name) = (claimed.call_id, &tool.manifest.name);
    let elapsed = claim_sent.elapsed();
    let mut ending = conclude(
        &claimed,
        attempt_id,
        &tool.manifest,
        &execution,
        elapsed,
        worker.actor(),
    );
    let recording = record(worker, &mut ending, &execution).instrument(spans::step(Step::Complete));
    match recording.await {
        Ok(Some(ended)) => {
            reached(Checkpoint::Completed);
            metrics().ended(name, execution.word());
            if !ended.state.answers_waiters() {
                metrics().retried(name);
            }
            reply(worker, call, &ended, ending)
                .instrument(spans::step(Step::Reply))
                .await;
        }
        Ok(None) => look_again(worker, &claimed, attempt_id, ending, &execution).await,
        Err(error) => {
            tracing::error!(
                error = report(&error),
                "an outcome could not be recorded; the sweep decides without it"
            );
        }
    }
}

/// Completes. A result that Postgres refuses is left out: that the tool did it must not be lost with its answer.
async fn record(
    worker: &Worker,
    ending: &mut Ending,
    execution: &Execution,
) -> Result<Option<Ended>, StoreError> {
    match worker.completing.complete(ending, PATIENCE).await {
        Err(StoreError::Refused { .. })
            if matches!(execution, Execution::Ran(Outcome::Applied { .. })) =>
        {
            tracing::warn!(
                "the ledger does not take the tool's answer; recording the outcome without it"
            );
            *ending = without_result(ending.clone());
            worker.completing.complete(ending, PATIENCE).await
        }
        recorded => recorded,
    }
}

/// The completion moved nothing. Zero rows is not an answer: the row is.
async fn look_again(
    worker: &Worker,
    claimed: &Claimed,
    attempt: AttemptId,
    ending: Ending,
    execution: &Execution,
) {
    let call = claimed.call_id;
    let Some(row) = find_patiently(worker, call).await else {
        metrics().fenced();
        tracing::error!("a completed call is not in the ledger");
        return;
    };
    if row.attempt_id == Some(attempt) {
        if row.state.is_terminal() {
            tracing::debug!("this attempt had ended the call already");
            return;
        }
        // In doubt because of this very attempt: what it proves now settles it.
        if let Some(settling) = proven_not_applied(&ending, execution, claimed.effect_unknown) {
            match worker.completing.complete(&settling, PATIENCE).await {
                Ok(Some(ended)) => return reply(worker, call, &ended, settling).await,
                Ok(None) => {}
                Err(error) => tracing::error!(
                    error = report(&error),
                    "late evidence could not be recorded"
                ),
            }
        }
    }
    metrics().fenced();
    tracing::warn!(
        state = %row.state,
        outcome = %execution.word(),
        "attempt was fenced: its outcome came too late to decide the call"
    );
}

async fn find_patiently(worker: &Worker, call: CallId) -> Option<read::CallRow> {
    let mut reconnect = Reconnect::default();
    for _ in 0..20 {
        match read::find(&worker.pool, call).await {
            Ok(row) => return row,
            Err(error) => tracing::debug!(error = report(&error), "looking again"),
        }
        reconnect.pause().await;
    }
    None
}

/// Larger envelopes are read from the row by whoever waits.
const REPLY_MAX: usize = 512 * 1024;

/// Tells the dispatcher that accepted the call, when the call is decided.
pub(crate) async fn reply(worker: &Worker, call: CallId, ended: &Ended, ending: Ending) {
    if !ended.state.answers_waiters() {
        return;
    }
    let envelope = envelope(call, ended, ending.kind).map(|envelope| envelope.to_bytes());
    let limit = REPLY_MAX.min(worker.bus.payload_max().saturating_sub(4 * 1024));
    // Empty rings the bell only.
    let body = envelope
        .filter(|bytes| bytes.len() <= limit)
        .unwrap_or_default();
    let subject = worker.bus.subjects.done(ended.dispatcher, call);
    // A connection that is down takes a bounded number of messages and then blocks for ever.
    let telling = worker.bus.client.publish(subject, body.into());
    if !matches!(
        tokio::time::timeout(Duration::from_secs(2), telling).await,
        Ok(Ok(()))
    ) {
        tracing::debug!("waiters were not told; they find out by themselves");
    }
}

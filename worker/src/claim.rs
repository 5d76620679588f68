//! Claim: the start mark. Before it nothing has happened; after it this process, and no other, may run the call once.

use std::{sync::Arc, time::Duration};

use fleet::{
    call::State,
    ids::{AttemptId, CallId},
    registry::Tool,
    store::{
        claim::{ClaimRow, Claimed},
        read,
    },
    telemetry::{metrics, report},
};
use tokio::time::Instant;

use crate::{dispose::Skip, executors::Prepared, gate::Gated, running::Entry, worker::Worker};

/// A claimed call.
pub(crate) struct Running {
    pub(crate) claimed: Claimed,
    pub(crate) attempt_id: AttemptId,
    pub(crate) tool: Arc<Tool>,
    /// Hash of the arguments that were prepared; the row's are the truth.
    pub(crate) args_hash: [u8; 32],
    pub(crate) prepared: Box<dyn Prepared>,
    /// When the claim was sent, before the ledger's clock started: the attempt ends by it.
    pub(crate) claim_sent: Instant,
    pub(crate) entry: Entry,
}

/// Claims a call that has passed the gate.
pub(crate) async fn claim(worker: &Worker, gated: Gated) -> Result<Running, Skip> {
    let Gated {
        call,
        tool,
        args_hash,
        prepared,
    } = gated;
    if !worker.may_start() {
        return Err(Skip::NoLease);
    }
    // Made and remembered before the claim is sent: what was not answered can be found again.
    let attempt_id = AttemptId::generate();
    let remembered = worker.remember(call, attempt_id);
    let entry = worker.attempts.enter(call, attempt_id, &worker.work);
    let claim_sent = Instant::now();
    let timeout_ms = i64::try_from(tool.manifest.timeout.as_millis()).unwrap_or(i64::MAX);
    let claimed = match worker
        .claiming
        .claim(ClaimRow {
            call_id: call,
            attempt_id,
            timeout_ms,
        })
        .await
    {
        Ok(Some(claimed)) => {
            remembered.answered();
            claimed
        }
        Ok(None) => {
            remembered.answered();
            return Err(why_not(worker, call).await);
        }
        Err(error) => {
            tracing::debug!(error = report(&error), "claim was given up");
            return Err(Skip::StoreSilent);
        }
    };
    if claimed.cancel_requested {
        entry.stop.cancel();
    }
    metrics().claimed(Duration::from_millis(
        u64::try_from(claimed.queued_ms).unwrap_or(0),
    ));
    Ok(Running {
        claimed,
        attempt_id,
        tool,
        args_hash,
        prepared,
        claim_sent,
        entry,
    })
}

/// The claim took nothing: the row says why.
async fn why_not(worker: &Worker, call: CallId) -> Skip {
    match read::find(&worker.pool, call).await {
        Ok(Some(row)) if row.state != State::Queued => Skip::NotQueued(row.state),
        Ok(Some(row)) if row.overdue => Skip::Overdue,
        Ok(Some(row)) if row.held => Skip::Held,
        Ok(Some(_)) => Skip::NotYet,
        Ok(None) => Skip::Gone,
        Err(_silent) => Skip::StoreSilent,
    }
}

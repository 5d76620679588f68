//! Claim: the start mark. Before it nothing has happened; after it this process, and no other, may run the call once.

use std::sync::Arc;

use fleet::{
    call::Awaiting,
    checkpoint::{Checkpoint, reached},
    ids::{AttemptId, CallId},
    modes::Brake,
    registry::Tool,
    store::{
        StoreError,
        claim::ClaimRow,
        limited::Limited,
        read::{self, CallState},
    },
    telemetry::{metrics, report},
    wire::token::{Handed, HandedAs},
};
use secrecy::SecretString;
use tokio::time::Instant;

use crate::{
    dispose::Skip,
    files::AttemptFiles,
    gate,
    stage::{Attempt, Gated, Running, millis},
    worker::WorkerProcess,
};

/// Claims a call that has passed the gate.
pub(crate) async fn claim(worker: &WorkerProcess, mut gated: Gated) -> Result<Running, Skip> {
    let (call, tool) = (gated.call, Arc::clone(&gated.tool));
    if !worker.may_start() {
        return Err(Skip::NoLease);
    }
    // Made and remembered before the claim is sent, so that an unanswered claim can be found again.
    let attempt_id = AttemptId::generate();
    let remembered = worker.remember(call, attempt_id);
    let entry = worker.attempts.enter(call, attempt_id, &worker.work);
    let claim_sent = Instant::now();
    let timeout = gated.timeout;
    let timeout_ms = i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX);
    let row = ClaimRow {
        call_id: call,
        attempt_id,
        timeout_ms,
    };
    // Boxed: it would make the future of every claim as large as its own.
    let answer = match gated.limited {
        Some(rate_mode) => Box::pin(worker.claiming.claim_limited(row, rate_mode)).await,
        None => {
            let claimed = worker.claiming.claim(row).await;
            claimed.map(|claimed| claimed.map(Limited::without_place))
        }
    };
    let (claimed, took_place) = match answer {
        Ok(answer) => {
            remembered.answered();
            match answer {
                Some(Limited::Claimed {
                    claimed,
                    took_place,
                    is_observed,
                }) => {
                    if is_observed {
                        metrics().observed(&tool.manifest.name, Brake::RateLimit);
                    }
                    (claimed, took_place)
                }
                Some(Limited::NoSlot | Limited::NoStart) => return Err(Skip::Limited),
                Some(Limited::StartsIn(wait)) => {
                    reached(Checkpoint::Paced);
                    return Err(Skip::StartsIn(wait));
                }
                Some(Limited::Busy) => return Err(Skip::StartsBusy),
                Some(Limited::Forbidden) => {
                    let round = gated.round.as_deref_mut();
                    return Err(Box::pin(gate::forbid(worker, call, &tool, round)).await);
                }
                None => return Err(Box::pin(why_not(worker, call)).await),
            }
        }
        Err(error) => {
            // A claim that took nothing need not be looked for.
            if matches!(
                error,
                StoreError::NotSent { .. } | StoreError::Refused { .. }
            ) {
                remembered.answered();
            }
            tracing::debug!(error = report(&error), "claim was given up");
            return Err(Skip::StoreSilent);
        }
    };
    if claimed.cancel_requested {
        entry.stop.cancel();
    }
    metrics().claimed(millis(claimed.queued_ms));
    if tool.manifest.rate_limit.is_some() && claimed.attempt == 1 {
        metrics().waited_for_start(&tool.manifest.name, millis(claimed.queued_ms));
    }
    let completion_token = completion_token(worker, &tool, call, attempt_id);
    let args = gated.args.take();
    let args = args.filter(|_| claimed.args_hash == gated.args_hash);
    Ok(Running {
        gated,
        attempt: Attempt {
            tool,
            claimed,
            id: attempt_id,
            took_place,
            claim_sent,
            timeout,
            args,
            files: AttemptFiles::default(),
            completion_token,
            entry,
        },
    })
}

/// With what its tool may answer later, if its manifest says that it may.
fn completion_token(
    worker: &WorkerProcess,
    tool: &Tool,
    call: CallId,
    attempt: AttemptId,
) -> Option<SecretString> {
    tool.manifest.completion.as_ref()?;
    let handed = Handed {
        call,
        awaiting: Awaiting::Completion,
        turn: HandedAs::Attempt(attempt),
    };
    Some(worker.completion_tokens.token(&handed).into())
}

/// Why a claim took nothing: the row says it.
async fn why_not(worker: &WorkerProcess, call: CallId) -> Skip {
    match read::find(&worker.pool, call).await {
        Ok(Some(row)) => match row.state {
            CallState::Queued { left, .. } if left.is_zero() => Skip::Overdue,
            CallState::Queued { held: true, .. } => Skip::Held,
            CallState::Queued { .. } => Skip::NotYet,
            CallState::Running { .. }
            | CallState::InDoubt(_)
            | CallState::Awaiting(_)
            | CallState::Ended(_) => Skip::NotQueued(row.state()),
        },
        Ok(None) => Skip::Gone,
        Err(_silent) => Skip::StoreSilent,
    }
}

//! **The whole attempt**, from a delivered message to a caller's answer. Start reading here.
//!
//! ```text
//! deliver ─▶ gate ─▶ claim ─▶ ack ─▶ execute ─▶ complete ─▶ reply
//! ```
//!
//! Each step consumes what the one before returned, so that no order but this one compiles. Everything before the claim may
//! fail and cost nothing; the claim is the start mark; after it only this worker's liveness and the attempt's deadline
//! decide, and NATS has no say any more. The permit of the slot is held until the tool is over, on every path; another runs while
//! what it came to is written, as long as not too many are.
//!
//! What few attempts do is awaited in a box, here and in the steps: a worker holds hundreds of these futures and moves each a few
//! times, and they would have room for all of it.

use std::sync::Arc;

use fleet::{
    bus::pull::{Acker, Delivered},
    checkpoint::{Checkpoint, reached},
    telemetry::{
        metrics, report,
        spans::{self, Step},
        trace::{self, Relation},
    },
    wire::pointer::Pointer,
};
use tokio::sync::OwnedSemaphorePermit;
use tracing::{Instrument, Span};

use crate::{
    claim::claim,
    complete::complete,
    dispose::{Disposal, Skip, dispose},
    execute::execute,
    gate,
    worker::WorkerProcess,
};

/// Runs one attempt. Returns when the ledger knows how it ended, or when this worker has to leave that to the sweep.
pub(crate) async fn run(worker: Arc<WorkerProcess>, delivered: Delivered) {
    let Delivered {
        body,
        acker,
        permit,
    } = delivered;
    let mut slot = Some(permit);
    reached(Checkpoint::Delivered);
    let skipped = match Pointer::read(&body) {
        Ok(pointer) => {
            let span = spans::attempt(pointer.call_id, &pointer.tool, worker.id);
            // Before the first step, for a span that has children keeps its parent.
            let relation = Relation::of(pointer.attempts.saturating_add(1), true);
            trace::relate(&span, &pointer.trace, relation);
            Box::pin(attempt(&worker, pointer, &acker, &mut slot))
                .instrument(span)
                .await
                .err()
        }
        Err(error) => {
            tracing::warn!(error = report(&error), "a message was thrown away");
            Some(Skip::Unreadable)
        }
    };
    if let Some(skip) = skipped {
        metrics().skipped(skip.word());
        tracing::debug!(reason = skip.word(), "message did not become an attempt");
        reached(Checkpoint::Skipped);
        dispose(&acker, skip.disposal()).await;
    }
    drop(slot);
}

async fn attempt(
    worker: &WorkerProcess,
    pointer: Pointer,
    acker: &Acker,
    slot: &mut Option<OwnedSemaphorePermit>,
) -> Result<(), Skip> {
    let gated = gate::pass(worker, pointer)
        .instrument(spans::step(Step::Gate))
        .await?;
    reached(Checkpoint::Gated);
    let running = claim(worker, gated)
        .instrument(spans::step(Step::Claim))
        .await?;
    reached(Checkpoint::Claimed);
    spans::numbered(&Span::current(), running.claimed.attempt);
    dispose(acker, Disposal::Ack)
        .instrument(spans::step(Step::Ack))
        .await;
    reached(Checkpoint::Acked);
    let executed = execute(worker, running).await;
    reached(Checkpoint::Executed);
    // Where as many as there are slots are written without one already, it keeps its own: what waits for the ledger is bounded.
    let is_over = executed.execution.is_over();
    let ending = is_over.then(|| worker.endings.try_acquire().ok()).flatten();
    let _ending = ending.inspect(|_| drop(slot.take()));
    complete(worker, executed).await;
    reached(Checkpoint::Replied);
    Ok(())
}

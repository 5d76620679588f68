//! **The whole attempt**, from a delivered message to the caller's answer. Start reading here.
//!
//! ```text
//! deliver ─▶ gate ─▶ claim ─▶ ack ─▶ execute ─▶ complete ─▶ reply
//! ```
//!
//! Each step consumes what the one before returned, so no other order compiles. Before the claim a failure costs nothing. The
//! claim is the start mark: after it only this worker's lease and the attempt's deadline decide, and NATS has no say any more.
//!
//! The attempt holds its slot until the tool has stopped, on every path. While its outcome is written, the slot serves another
//! attempt, as long as not too many outcomes are being written.
//!
//! Rare branches are boxed, here and in the steps: a worker holds hundreds of these futures and moves each a few times, and
//! without boxes each would be as large as its largest branch.

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
    fallback::after as fallback,
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
            // Before the first step: a span keeps its parent once it has children.
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
    spans::numbered(&Span::current(), running.attempt.claimed.attempt);
    dispose(acker, Disposal::Ack)
        .instrument(spans::step(Step::Ack))
        .await;
    reached(Checkpoint::Acked);
    let mut executed = execute(worker, running).await;
    reached(Checkpoint::Executed);
    fallback::pass(worker, &mut executed).await;
    // With as many outcomes being written as there are slots, the attempt keeps its slot: what waits for the ledger is bounded.
    let has_stopped = executed.has_stopped();
    let ending = has_stopped
        .then(|| worker.endings.try_acquire().ok())
        .flatten();
    let ending = ending.inspect(|_| drop(slot.take()));
    let round = complete(worker, executed).await;
    reached(Checkpoint::Replied);
    // First what others wait for, then the interceptors hear of the end.
    drop((slot.take(), ending));
    drop(round);
    Ok(())
}

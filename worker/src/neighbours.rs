//! Fences dead workers of this machine: if a worker's lock can be taken, it and everything it started has ended.
//!
//! So a worker that its supervisor restarts fences its predecessor within seconds, whatever that one died of. No lease has to
//! run out, and no operator is needed. The sweep then moves the calls that it ran.

use std::{sync::Arc, time::Duration};

use fleet::{
    fencing::{FencingError, Proof, StateDir},
    ids::WorkerId,
    lease::BEAT,
    store::{
        StoreError,
        workers::{self, Evidence, Fence, Fenced},
    },
    telemetry::report,
};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::worker::WorkerProcess;

/// How often it looks.
const EVERY: Duration = BEAT.saturating_mul(2);

/// Looks at once, and then every few beats, until `stop` is cancelled.
pub(crate) async fn run(worker: Arc<WorkerProcess>, state_dir: StateDir, stop: CancellationToken) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Cancel-safe: each fence is one statement, and may be repeated.
    let looking = async {
        loop {
            ticks.tick().await;
            look(&worker, &state_dir).await;
        }
    };
    let _stopped: Option<()> = stop.run_until_cancelled(looking).await;
}

async fn look(worker: &WorkerProcess, state_dir: &StateDir) {
    let (own, folder) = (worker.id, state_dir.clone());
    let proven = tokio::task::spawn_blocking(move || proofs(&folder, own)).await;
    let proofs = match proven {
        Ok(Ok(proofs)) => proofs,
        Ok(Err(error)) => {
            tracing::warn!(
                error = report(&error),
                "the locks of this machine's workers cannot be looked at"
            );
            return;
        }
        // The process ends.
        Err(_cancelled) => return,
    };
    for proof in proofs {
        let gone = proof.worker();
        if let Err(error) = fence(worker, proof).await {
            tracing::debug!(%gone, error = report(&error), "a worker was not fenced; trying again");
        }
    }
}

/// A proof for each dead worker of this folder.
fn proofs(state_dir: &StateDir, own: WorkerId) -> Result<Vec<Proof>, FencingError> {
    let workers = state_dir.workers()?.into_iter();
    let others = workers.filter(|worker| *worker != own);
    let proofs = others.map(|worker| state_dir.prove_gone(worker));
    proofs.filter_map(Result::transpose).collect()
}

async fn fence(worker: &WorkerProcess, proof: Proof) -> Result<(), StoreError> {
    let gone = proof.worker();
    let by = worker.actor();
    let fence = Fence {
        worker: gone,
        by: &by,
        note: "lock released",
        evidence: Evidence::Lock,
    };
    let fenced = workers::fence(&worker.pool, fence).await?;
    match fenced {
        Fenced::Now => {
            tracing::warn!(%gone, "a worker of this machine is gone with everything it started, and is fenced");
        }
        Fenced::Before | Fenced::Left => {}
        // Of another fleet, or it died before it was registered: not ours to write about.
        Fenced::NotFound | Fenced::Alive => return Ok(()),
    }
    if let Err(error) = proof.remove() {
        tracing::warn!(error = report(&error), "a lock stays behind");
    }
    Ok(())
}

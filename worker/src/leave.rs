//! Leaving: what a worker writes to its row before it exits, and no more than it has proven.
//!
//! It has *left* if every attempt has ended, every outcome is written, and none of its processes lives. It proves the last part
//! as any other process would: it releases its lock and tries to take it again.

use std::{sync::Arc, time::Duration};

use fleet::{
    delay::Reconnect,
    fencing::{Proof, StateDir, WorkerLock},
    ids::WorkerId,
    store::{
        StoreError,
        session::Postgres,
        workers::{self, Leave},
    },
    telemetry::report,
};
use tokio::time::{Instant, interval, timeout};

use crate::{error::RunError, heartbeat, worker::WorkerProcess};

/// How long each statement may take.
const WORD_MAX: Duration = Duration::from_secs(5);
/// How long the last processes of a tool may take to be gone.
const LAST_MAX: Duration = Duration::from_secs(5);

/// Writes that the worker takes nothing new.
pub(crate) async fn announce(postgres: &Postgres, id: WorkerId) {
    let announcing = async {
        let mut connection = postgres.connect().await?;
        workers::drain(&mut connection, id).await
    };
    said("draining", timeout(WORD_MAX, announcing).await.ok());
}

/// Gives back the unanswered claims, a last time.
pub(crate) async fn give_back(worker: &WorkerProcess, postgres: &Postgres) {
    let giving_back = async {
        let mut connection = postgres.connect().await?;
        heartbeat::look_after(worker, &mut connection).await
    };
    said(
        "claims given back",
        timeout(WORD_MAX, giving_back).await.ok(),
    );
}

/// Ends the worker's row. `own`: its lock, if every attempt has ended.
pub(crate) async fn leave(
    postgres: &Postgres,
    id: WorkerId,
    own: Option<WorkerLock>,
    state_dir: &StateDir,
) {
    let proof = match own {
        Some(lock) => nothing_lives(lock, id, state_dir).await,
        None => None,
    };
    let left = timeout(WORD_MAX, until_told(postgres, id, proof.is_some())).await;
    match left {
        Ok(Leave::Left | Leave::Fenced) => {
            if let Some(Err(error)) = proof.map(Proof::remove) {
                tracing::warn!(error = report(&error), "a lock stays behind");
            }
            tracing::info!(worker = %id, "worker has left");
        }
        Ok(Leave::Dead) => {
            tracing::error!(worker = %id, "worker ends, and something that it started may live");
        }
        // The lock stays held; the process that takes it later knows that this worker is gone.
        Err(_elapsed) => said("left", None),
    }
}

/// Holds this process's share of the lock until the process ends: what it still runs is not over before.
pub(crate) fn hold_to_the_end(lock: Arc<WorkerLock>) {
    std::mem::forget(lock);
}

/// A part of the process has ended by itself: the process ends as if it were killed.
pub(crate) fn in_disorder(lock: Arc<WorkerLock>) -> RunError {
    hold_to_the_end(lock);
    RunError::PartEnded
}

/// Whether no process has a share of the lock, once this one has released its own.
async fn nothing_lives(lock: WorkerLock, id: WorkerId, state_dir: &StateDir) -> Option<Proof> {
    drop(lock);
    let since = Instant::now();
    let mut ticks = interval(Duration::from_millis(20));
    loop {
        ticks.tick().await;
        match state_dir.prove_gone(id) {
            Ok(Some(proof)) => return Some(proof),
            Ok(None) if since.elapsed() < LAST_MAX => {}
            Ok(None) => return None,
            Err(error) => {
                tracing::warn!(
                    error = report(&error),
                    "the worker's lock cannot be looked at"
                );
                return None;
            }
        }
    }
}

/// Safe to repeat: a worker that has left stays so.
async fn until_told(postgres: &Postgres, id: WorkerId, clean: bool) -> Leave {
    let mut reconnect = Reconnect::up_to(Duration::from_secs(1));
    loop {
        let telling = async {
            let mut connection = postgres.connect().await?;
            workers::leave(&mut connection, id, clean).await
        };
        match telling.await {
            Ok(left) => return left,
            Err(error) => tracing::debug!(error = report(&error), "the worker's row was not ended"),
        }
        reconnect.pause().await;
    }
}

fn said(what: &'static str, told: Option<Result<(), StoreError>>) {
    match told {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            tracing::warn!(error = report(&error), what, "the ledger was not told");
        }
        None => tracing::warn!(what, "the ledger was not told in time"),
    }
}

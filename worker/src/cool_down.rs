//! Cool-down: a remote that asks to be left alone for a while closes the bucket of its tool's start times until then, so that the
//! calls that wait do not spend an attempt each to hear the same.

use std::time::Duration;

use fleet::{store::starts, telemetry::report, wire::code::Code};

use crate::{stage::Executed, worker::WorkerProcess};

/// For how long the remote wants no attempt of a tool with a rate limit; `None`: it has not said so, or nothing limits the tool.
pub(crate) fn asked(worker: &WorkerProcess, executed: &Executed) -> Option<Duration> {
    let failure = executed.execution.failure()?;
    // It was not asked.
    if failure.code == Code::CircuitOpen {
        return None;
    }
    let pause = failure.asked_to_wait()?;
    let manifest = &executed.attempt.tool.manifest;
    let current = || worker.registry.current(&manifest.name);
    let is_limited = manifest.rate_limit.is_some()
        || current().is_some_and(|current| current.manifest.rate_limit.is_some());
    is_limited.then_some(pause)
}

/// Closes the bucket. Where the ledger does not answer it stays open, and the next attempt hears the same.
pub(crate) async fn close(worker: &WorkerProcess, executed: &Executed, pause: Duration) {
    let attempt = &executed.attempt;
    let (tool, claimed) = (&attempt.tool.manifest.name, &attempt.claimed);
    let (tenant, call) = (&claimed.tenant, claimed.call_id);
    if let Err(error) = starts::close(&worker.pool, tool, tenant, call, pause).await {
        tracing::debug!(error = report(&error), "a bucket was not closed");
    }
}

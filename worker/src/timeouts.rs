//! Learned timeouts, in a worker: how long an attempt may take, and how long first attempts took, for the ledger.

use std::{sync::Arc, time::Duration};

use fleet::{
    breaker::TargetHealth,
    ids::Label,
    learn::rounded,
    manifest::{Manifest, Timeout},
    modes::{Brake, InterceptMode},
    store::timeouts::{self, REPORT_MAX},
    telemetry::report,
    wire::code::Code,
};
use tokio_util::sync::CancellationToken;

use crate::{
    brakes,
    run_times::Counted,
    stage::{Attempt, Execution, millis},
    worker::WorkerProcess,
};

/// How often run times are reported.
const EVERY: Duration = Duration::from_secs(10);

/// How long the next attempt of a call of this tool and tenant may take.
pub(crate) fn timeout_of(
    worker: &WorkerProcess,
    tool: &Manifest,
    tenant: Option<&Label>,
) -> Duration {
    let bounds = match &tool.timeout {
        Timeout::Fixed(timeout) => return *timeout,
        Timeout::Learned(bounds) => bounds,
    };
    let mode = brakes::mode_of(worker, Brake::LearnedTimeout, &tool.name, tenant);
    let learned = match mode {
        InterceptMode::Enforce => worker.registry.learned_timeout(&tool.name, tool.version),
        InterceptMode::Observe | InterceptMode::Off => None,
    };
    learned.map_or(bounds.initial, |learned| bounds.within(learned))
}

/// Counts how long an attempt took, where its tool's timeout is learned. Only of first attempts: a tool that fails is called more
/// often, and by calls that had bad luck. Only where the tool answered or was cut off: what was refused or could not be reached
/// says nothing of how long an answer takes.
pub(crate) fn count(
    worker: &WorkerProcess,
    attempt: &Attempt,
    execution: &Execution,
    took: Duration,
) {
    let (manifest, claimed) = (&attempt.tool.manifest, &attempt.claimed);
    if manifest.timeout.learned().is_none() || claimed.attempt != 1 {
        return;
    }
    let tenant = Some(&claimed.tenant);
    let mode = brakes::mode_of(worker, Brake::LearnedTimeout, &manifest.name, tenant);
    if mode == InterceptMode::Off || attempt.entry.stop.asked().is_some() {
        return;
    }
    // The timeout that it was to have: of one that its call's deadline cut shorter only the answer says something.
    let limit = attempt.timeout;
    let is_whole = millis(claimed.timeout_ms) >= limit;
    let health = execution.outcome().and_then(TargetHealth::of);
    let cut_off = match health {
        Some(TargetHealth::Answered) => false,
        Some(TargetHealth::Failed) if is_whole && timed_out(execution) => true,
        Some(TargetHealth::Failed) | None => return,
    };
    let counted = Counted {
        tool: manifest.name.clone(),
        version: manifest.version,
        limit_ms: rounded(limit),
        took_ms: rounded(if cut_off { limit } else { took }),
        cut_off,
    };
    worker.run_times.add(counted);
}

fn timed_out(execution: &Execution) -> bool {
    let failure = execution.failure();
    failure.is_some_and(|failure| failure.code == Code::Timeout)
}

/// Reports until `stop` is cancelled, and then once more. Sends nothing while there is nothing. What is not answered is given up: some
/// samples fewer.
pub(crate) async fn run(worker: Arc<WorkerProcess>, stop: CancellationToken) {
    loop {
        let pause = stop.run_until_cancelled(tokio::time::sleep(EVERY));
        let is_last = pause.await.is_none();
        for counted in worker.run_times.take().chunks(REPORT_MAX) {
            if let Err(error) = timeouts::count(&worker.pool, counted).await {
                let error = report(&error);
                tracing::debug!(error, "run times were not counted; going on without them");
            }
        }
        if is_last {
            return;
        }
    }
}

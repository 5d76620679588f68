//! What stands in for a tool's answer without another tool: an old answer to an equal call, or a constant.

use std::time::Duration;

use fleet::{
    delay::{Reconnect, SOON},
    fallback::{StandIn, StandInKind},
    ids::{CallId, Label, ToolName},
    manifest::FallbackSpec,
    modes::{Brake, InterceptMode},
    store::stand_ins::{self, StandInFacts},
    telemetry::{metrics, report},
};
use tokio::time::Instant;

use crate::{brakes, worker::WorkerProcess};

/// How long the ledger is asked again, where it does not answer: less than an attempt is left alone that is overdue.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whether an answer may stand in for those of this tool. Where operators only observe it, the call is counted.
pub(crate) fn may_answer(worker: &WorkerProcess, tool: &ToolName, tenant: Option<&Label>) -> bool {
    match brakes::mode_of(worker, Brake::Fallback, tool, tenant) {
        InterceptMode::Enforce => true,
        InterceptMode::Observe => {
            metrics().observed(tool, Brake::Fallback);
            false
        }
        InterceptMode::Off => false,
    }
}

/// What the ledger has for a call that something may stand in for; `None`: it does not say, or the call is not open any more.
pub(crate) async fn facts(
    worker: &WorkerProcess,
    spec: &FallbackSpec,
    call: CallId,
    tool: &ToolName,
    tenant: Option<&Label>,
) -> Option<StandInFacts> {
    // While operators let the cache answer nothing, its answers are in doubt.
    let is_kept = || brakes::mode_of(worker, Brake::Cache, tool, tenant) != InterceptMode::Off;
    let max_age = spec.stale.map(|stale| stale.max_age).filter(|_| is_kept());
    let wants_args = spec.tool.is_some();
    let began = Instant::now();
    let mut reconnect = Reconnect::up_to(SOON);
    loop {
        match stand_ins::facts(&worker.pool, call, wants_args, max_age).await {
            Ok(facts) => return facts,
            Err(error) if began.elapsed() >= PATIENCE => {
                let error = report(&error);
                tracing::warn!(
                    error,
                    "nothing stands in: the ledger did not say what there is"
                );
                return None;
            }
            Err(error) => tracing::debug!(error = report(&error), "asking again what stands in"),
        }
        reconnect.pause().await;
    }
}

/// The old answer, or else the constant.
pub(crate) fn standing(spec: &FallbackSpec, stale: Option<StandIn>) -> Option<StandIn> {
    let stub = || {
        let stub = spec.stub.as_ref()?;
        Some(StandIn {
            kind: StandInKind::Stub,
            result: stub.to_string(),
            age_ms: None,
            tool: None,
        })
    };
    stale.or_else(stub)
}

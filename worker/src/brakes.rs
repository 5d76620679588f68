//! Modes of the engine's brakes, and the brake of retry budgets. An operator lets one of them only observe, or switches it off.

use fleet::{
    ending::{Ending, EndingKind},
    ids::{Label, ToolName},
    manifest::Manifest,
    modes::{Brake, InterceptMode},
    registry::Tool,
    telemetry::metrics,
    wire::pointer::Pointer,
};
use tokio::time::Instant;

use crate::{stage::Executed, worker::WorkerProcess};

/// What a brake may do in a call of this tool. Without a tenant, which a message of an older release does not name, only what is
/// said of all tenants counts.
pub(crate) fn mode_of(
    worker: &WorkerProcess,
    brake: Brake,
    tool: &ToolName,
    tenant: Option<&Label>,
) -> InterceptMode {
    let controls = worker.registry.controls();
    controls
        .modes()
        .of_brake(brake, tool, tenant, Instant::now())
}

/// What the rate limit may do, where the claim asks the ledger for more than the call, or did for the version that it was accepted
/// with. The ledger decides by its own count.
pub(crate) fn limited(
    worker: &WorkerProcess,
    pointer: &Pointer,
    tool: &Tool,
    newest: Option<&Manifest>,
) -> Option<InterceptMode> {
    let name = &tool.manifest.name;
    let is_limited =
        tool.manifest.is_judged_by_claim() || newest.is_some_and(Manifest::is_judged_by_claim);
    let mode = || mode_of(worker, Brake::RateLimit, name, pointer.tenant.as_ref());
    is_limited.then(mode)
}

/// Whether the tool's retry budget keeps its call from another attempt, or from an early one. A first attempt adds to it. Asked
/// once for each attempt, for asking takes a token.
pub(crate) fn is_suppressed(worker: &WorkerProcess, executed: &Executed, ending: &Ending) -> bool {
    let attempt = &executed.attempt;
    let manifest = &attempt.tool.manifest;
    let Some(budget) = manifest.retry.budget else {
        return false;
    };
    let (name, tenant) = (&manifest.name, &attempt.claimed.tenant);
    let mode = mode_of(worker, Brake::RetryBudget, name, Some(tenant));
    if mode == InterceptMode::Off {
        return false;
    }
    // Nothing was sent.
    if executed.is_shut() || executed.why_taken_back().is_some() {
        return false;
    }
    if attempt.spent() == 1 {
        worker.retry_budgets.earn(name, budget);
    }
    let is_again = matches!(ending.kind, EndingKind::Again { .. });
    if !is_again || worker.retry_budgets.take(name) {
        return false;
    }
    if mode == InterceptMode::Observe {
        metrics().observed(name, Brake::RetryBudget);
        return false;
    }
    metrics().suppressed(name);
    true
}

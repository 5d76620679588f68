//! Whether a tool's retry budget keeps its call from another attempt. Asked once for each attempt, for asking takes a token.

use fleet::{
    ending::{Ending, EndingKind},
    modes::{Brake, InterceptMode},
    telemetry::metrics,
};

use crate::{brakes, stage::Executed, worker::WorkerProcess};

/// Whether the tool's retry budget keeps its call from another attempt, or from an early one. A first attempt adds to it.
pub(crate) fn is_suppressed(worker: &WorkerProcess, executed: &Executed, ending: &Ending) -> bool {
    let attempt = &executed.attempt;
    let manifest = &attempt.tool.manifest;
    let Some(budget) = manifest.retry.budget else {
        return false;
    };
    let (name, tenant) = (&manifest.name, &attempt.claimed.tenant);
    let mode = brakes::mode_of(worker, Brake::RetryBudget, name, Some(tenant));
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

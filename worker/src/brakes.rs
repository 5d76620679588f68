//! Modes of the engine's brakes: an operator lets one of them only observe, or switches it off.

use fleet::{
    ids::{Label, ToolName},
    manifest::Manifest,
    modes::{Brake, InterceptMode},
    registry::Tool,
    wire::pointer::Pointer,
};
use tokio::time::Instant;

use crate::worker::WorkerProcess;

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

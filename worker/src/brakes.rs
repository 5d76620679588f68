//! Modes of the engine's brakes: an operator lets one of them only observe, or switches it off.

use fleet::{
    ids::{Label, ToolName},
    modes::{Brake, InterceptMode},
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

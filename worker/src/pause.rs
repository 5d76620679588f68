//! Pauses at the gate: a call that one of them covers is put aside, before its claim, and waits in the ledger for its end.

use fleet::{
    controls::{ControlId, Controls, PausedBy},
    hold::Line,
    ids::Label,
    registry::Tool,
    store::{pauses, read},
    telemetry::report,
    wire::pointer::Pointer,
};
use tokio::time::Instant;

use crate::{arguments::Seen, dispose::Skip, worker::WorkerProcess};

/// Lets a call pass that no pause covers. Where none holds, this costs a look at the snapshot.
pub(crate) async fn pass(
    worker: &WorkerProcess,
    pointer: &Pointer,
    tool: &Tool,
    args: Seen<'_>,
) -> Result<(), Skip> {
    let controls = worker.registry.controls();
    if controls.are_none() {
        return Ok(());
    }
    Box::pin(pass_controls(worker, &controls, pointer, tool, args)).await
}

async fn pass_controls(
    worker: &WorkerProcess,
    controls: &Controls,
    pointer: &Pointer,
    tool: &Tool,
    args: Seen<'_>,
) -> Result<(), Skip> {
    let pause = match &pointer.tenant {
        Some(tenant) => pause_of(controls, tool, tenant, args),
        // A message of an older release: its row says whose call it is.
        None => match read::find(&worker.pool, pointer.call_id).await {
            Ok(Some(row)) => pause_of(controls, tool, &row.tenant, args),
            Ok(None) => return Err(Skip::Gone),
            Err(_silent) => return Err(Skip::StoreSilent),
        },
    };
    let Some(pause) = pause else {
        return Ok(());
    };
    match pauses::put_aside(&worker.pool, pointer.call_id, &Line::Pause(pause)).await {
        // Where it was not put aside it has moved, or is held already: its row says what becomes of it.
        Ok(_put_or_moved) => Err(Skip::Paused),
        Err(error) => {
            tracing::debug!(error = report(&error), "the call was not put aside");
            Err(Skip::StoreSilent)
        }
    }
}

fn pause_of(controls: &Controls, tool: &Tool, tenant: &Label, args: Seen<'_>) -> Option<ControlId> {
    let call = PausedBy {
        tool: &tool.manifest.name,
        queue: &tool.manifest.queue,
        tenant,
        arguments: &args.lazy(),
    };
    let pause = controls.pause_of_accepted(&call, Instant::now());
    pause.map(|pause| pause.id)
}

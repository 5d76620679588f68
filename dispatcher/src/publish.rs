//! Publish: rings the bell for a call that is in the ledger.

use std::sync::Arc;

use fleet::{
    store::accept::NewCall,
    telemetry::spans::{self, Step},
    wire::{pointer::Pointer, trace::TraceContext},
};
use futures_util::future::join_all;
use serde_json::value::RawValue;
use tracing::Instrument;

use crate::{door::Door, meter::Permit};

/// A call that is in the ledger, and the permit to publish it.
pub(crate) type Committed = (Arc<NewCall>, Option<Permit>);

/// Publishes calls at the same time: while the connection takes none, all of them take as long as one.
pub(crate) async fn publish_together(door: &Door, calls: Vec<Committed>) {
    let publishing = calls.into_iter();
    let publishing =
        publishing.map(|(call, permit)| async move { publish(door, &call, permit).await });
    join_all(publishing).await;
}

/// Publishes a call's pointer; if it is lost, the sweep finds the call. A held call is published when its turn comes.
pub(crate) async fn publish(door: &Door, call: &NewCall, permit: Option<Permit>) {
    if call.awaits().is_some() {
        return;
    }
    let Some(permit) = permit else {
        door.running.call_is_held(&call.line, &call.tenant);
        return door.meter.call_is_held(&call.line);
    };
    // Sensitive arguments stay in the ledger.
    let tool = door.registry.version(&call.tool, call.tool_version);
    let harmless = tool.is_some_and(|tool| tool.manifest.sensitive.is_none());
    let inline = harmless && call.args.len() <= Pointer::ARGS_INLINE_MAX;
    let pointer = Pointer {
        call_id: call.call_id,
        tool: call.tool.clone(),
        tool_version: call.tool_version,
        args_hash: hex::encode(call.args_hash),
        args: inline
            .then(|| RawValue::from_string(call.args.clone()).ok())
            .flatten(),
        tenant: Some(call.tenant.clone()),
        language: Some(call.language),
        priority: Some(call.priority),
        rev: Some(0),
        is_probe: false,
        trace: TraceContext {
            baggage: None,
            ..call.trace.clone()
        },
        attempts: 0,
    };
    let step = spans::step(Step::Publish);
    let destination = || door.bus.subjects.jobs_of_queue(&call.queue);
    let sending = step.in_scope(|| spans::publish(destination));
    door.publisher
        .publish(&call.queue, 1, &pointer)
        .instrument(sending)
        .instrument(step)
        .await;
    permit.used();
}

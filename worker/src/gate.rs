//! The gate: everything that can refuse or fail without touching the world, before the claim.
//!
//! It finds the tool's version, gets the arguments, renders the request and resolves secrets. Interceptors will stand here.

use std::sync::Arc;

use fleet::{
    arguments::{self, Limits},
    call::{CallOutcome, Effect, EffectKnown, Source, State},
    canonical,
    ids::CallId,
    outcome::ToolFailure,
    registry::Tool,
    store::{
        complete::{Ending, EndingKind, Guard},
        read,
    },
    telemetry::report,
    wire::{code::Code, error::ErrorBody, pointer::Pointer},
};

use crate::{dispose::Skip, executors::Prepared, worker::Worker};

/// A call whose request is ready to go out.
pub(crate) struct Gated {
    pub(crate) call: CallId,
    pub(crate) tool: Arc<Tool>,
    pub(crate) args_hash: [u8; 32],
    pub(crate) prepared: Box<dyn Prepared>,
}

/// Takes a pointer through the gate.
pub(crate) async fn pass(worker: &Worker, pointer: Pointer) -> Result<Gated, Skip> {
    let tool = find_tool(worker, &pointer).await?;
    let args = match pointer.args {
        Some(args) => args.get().to_owned(),
        None => read_args(worker, pointer.call_id).await?,
    };
    match prepare(worker, &tool, &args) {
        Ok(prepared) => {
            let args_hash = canonical::hash_text(&args);
            Ok(Gated {
                call: pointer.call_id,
                tool,
                args_hash,
                prepared,
            })
        }
        // It will fail the same way everywhere: the call ends without having run.
        Err(failure) if matches!(failure.code, Code::ToolError | Code::ToolGone) => {
            refuse(worker, pointer.call_id, tool.manifest.effect, &failure).await
        }
        Err(failure) => {
            tracing::warn!(code = %failure.code, why = failure.message, "this worker cannot run the tool at the moment");
            Err(Skip::CannotRun)
        }
    }
}

/// The arguments as the ledger has them.
pub(crate) async fn read_args(worker: &Worker, call: CallId) -> Result<String, Skip> {
    match read::arguments(&worker.pool, call).await {
        Ok(Some(args)) => Ok(args),
        Ok(None) => Err(Skip::Gone),
        Err(error) => {
            tracing::debug!(error = report(&error), "arguments were not read");
            Err(Skip::StoreSilent)
        }
    }
}

/// Renders the request and resolves its secrets.
pub(crate) fn prepare(
    worker: &Worker,
    tool: &Tool,
    args: &str,
) -> Result<Box<dyn Prepared>, ToolFailure> {
    // The door's own parser: another one would respell numbers.
    let value = arguments::parse(args.as_bytes(), &Limits::DEFAULT).map_err(|error| {
        ToolFailure::new(
            Code::ToolGone,
            format!("the stored arguments cannot be read: {}", error.message),
        )
    })?;
    worker
        .executors
        .of(&tool.manifest.executor)
        .prepare(&tool.manifest, &value, &worker.secrets)
}

async fn find_tool(worker: &Worker, pointer: &Pointer) -> Result<Arc<Tool>, Skip> {
    if let Some(tool) = worker.registry.version(&pointer.tool, pointer.tool_version) {
        return Ok(tool);
    }
    // Applied a moment ago.
    if let Err(error) = worker.registry.refresh(&worker.pool).await {
        tracing::debug!(error = report(&error), "tools were not refreshed");
        return Err(Skip::StoreSilent);
    }
    worker.registry.version(&pointer.tool, pointer.tool_version).ok_or_else(|| {
        tracing::warn!(tool = %pointer.tool, version = pointer.tool_version, "this worker cannot run this tool version");
        Skip::CannotRun
    })
}

async fn refuse(
    worker: &Worker,
    call: CallId,
    effect: Effect,
    failure: &ToolFailure,
) -> Result<Gated, Skip> {
    let row = match read::find(&worker.pool, call).await {
        Ok(Some(row)) if row.state == State::Queued => row,
        Ok(Some(row)) => return Err(Skip::NotQueued(row.state)),
        Ok(None) => return Err(Skip::Gone),
        Err(_silent) => return Err(Skip::StoreSilent),
    };
    let effect = if matches!(effect, Effect::Read) {
        EffectKnown::None
    } else {
        EffectKnown::NotApplied
    };
    let business = failure.code == Code::ToolError;
    let error = serde_json::to_string(&ErrorBody::failed(failure, effect))
        .expect("an error has only string keys");
    let ending = Ending {
        call_id: call,
        guard: Guard::Queued(row.rev),
        kind: EndingKind::End {
            state: State::Failed,
            outcome: if business {
                CallOutcome::BusinessError
            } else {
                CallOutcome::SystemError
            },
            source: if business {
                Source::Live
            } else {
                Source::Error
            },
            effect,
            result: None,
            error: Some(error),
        },
        attempt: None,
        actor: worker.actor(),
        reason: "refused_at_the_gate".to_owned(),
    };
    match worker.end(&ending).await {
        Ok(_ended_or_moved) => Err(Skip::Refused),
        Err(error) => {
            tracing::debug!(error = report(&error), "the call was not ended");
            Err(Skip::StoreSilent)
        }
    }
}

//! The gate: everything that can refuse or fail without touching the world, before the claim.
//!
//! It finds the tool's version, gets the arguments, renders the request and resolves secrets. Interceptors will stand here.

use std::{sync::Arc, time::Duration};

use fleet::{
    arguments::{self, Limits},
    call::{Effect, State},
    canonical,
    ids::CallId,
    obstacle::{Lack, Obstacle},
    outcome::{OutcomeWord, ToolFailure},
    registry::Tool,
    said,
    sensitive::masked,
    store::{
        complete::{Ending, EndingKind, Guard},
        postpone::{self, Postponed},
        read::{self, CallRow},
    },
    telemetry::report,
    wire::{code::Code, error::ErrorBody, message::Message, pointer::Pointer},
};

use crate::{
    complete,
    conclude::{effect_of, failed, json},
    discreet::Discreet,
    dispose::Skip,
    executors::{Executor, Prepared},
    programs::{ProgramSlot, Turn},
    waiting::Tenant,
    worker::Worker,
};

/// A call whose request is ready to go out.
pub(crate) struct Gated {
    pub(crate) call: CallId,
    pub(crate) tool: Arc<Tool>,
    pub(crate) args_hash: [u8; 32],
    pub(crate) prepared: Box<dyn Prepared>,
    /// Of a program: its slot, until it is over.
    pub(crate) program: Option<ProgramSlot>,
}

/// Takes a pointer through the gate.
pub(crate) async fn pass(worker: &Worker, pointer: Pointer) -> Result<Gated, Skip> {
    let call = pointer.call_id;
    let Some(tool) = find_tool(worker, &pointer).await? else {
        let version = pointer.tool_version;
        let what = said!(
            "it does not have version {version} of the tool",
            "它没有这个工具的版本 {version}"
        );
        let obstacle = Obstacle::new(Lack::ToolVersion, &what, &worker.name);
        return Err(Box::pin(cannot_run(worker, call, &obstacle)).await);
    };
    let args = match &pointer.args {
        Some(args) => args.get().to_owned(),
        None => Box::pin(read_args(worker, call)).await?,
    };
    match prepare(worker, &tool, &args) {
        Ok(prepared) => {
            let executor = worker.executors.of(&tool.manifest);
            let program = if executor.is_ok_and(Executor::is_program) {
                Some(Box::pin(program_slot(worker, call, pointer.tenant)).await?)
            } else {
                None
            };
            Ok(Gated {
                call,
                args_hash: canonical::hash_text(&args),
                tool,
                prepared,
                program,
            })
        }
        // It would fail the same way everywhere.
        Err(failure) if is_final(failure.code) => Err(Box::pin(refuse(worker, call, &tool)).await),
        Err(failure) => {
            tracing::warn!(code = %failure.code, why = failure.message.english(), "this worker cannot run the tool at the moment");
            let obstacle = Obstacle::of(&failure, &worker.name);
            Err(Box::pin(cannot_run(worker, call, &obstacle)).await)
        }
    }
}

/// A slot for a program, before the claim: waiting for one costs no attempt.
async fn program_slot(worker: &Worker, call: CallId, tenant: Tenant) -> Result<ProgramSlot, Skip> {
    match worker.programs.turn(tenant).await {
        Turn::Now(slot) => Ok(slot),
        Turn::Later(pause) => Err(if worker.putting_back.put_back(call, pause).await {
            Skip::NoProgramSlot
        } else {
            Skip::StoreSilent
        }),
    }
}

/// Whether no worker could run the call.
const fn is_final(code: Code) -> bool {
    matches!(
        code,
        Code::ToolError | Code::ToolGone | Code::PayloadTooLarge
    )
}

/// How long a call waits that this worker cannot run; another worker may get it then.
const POSTPONED_FOR: Duration = Duration::from_secs(2);

/// Lets a call wait that another worker may be able to run: in the ledger rather than in NATS, where it would hold a place in
/// front of others.
async fn cannot_run(worker: &Worker, call: CallId, obstacle: &Obstacle) -> Skip {
    let row = match queued(worker, call).await {
        Ok(row) => row,
        Err(skip) => return skip,
    };
    let postponed = Postponed {
        call,
        rev: row.rev,
        pause: POSTPONED_FOR,
        obstacle,
        actor: &worker.actor(),
    };
    match postpone::postpone(&worker.pool, postponed).await {
        Ok(_waits_or_has_moved) => Skip::CannotRun,
        Err(error) => {
            tracing::debug!(error = report(&error), "the call was not postponed");
            Skip::StoreSilent
        }
    }
}

/// The row of a call that is still queued.
async fn queued(worker: &Worker, call: CallId) -> Result<CallRow, Skip> {
    match read::find(&worker.pool, call).await {
        Ok(Some(row)) if row.state == State::Queued => Ok(row),
        Ok(Some(row)) => Err(Skip::NotQueued(row.state)),
        Ok(None) => Err(Skip::Gone),
        Err(_silent) => Err(Skip::StoreSilent),
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
        let why = error.message;
        let what = said!(
            "the stored arguments cannot be read: {why}",
            "无法读取已保存的参数：{why}",
            why
        );
        ToolFailure::new(Code::ToolGone, what)
    })?;
    let prepared = worker
        .executors
        .prepare(&tool.manifest, &value, &worker.secrets);
    let Some(sensitive) = &tool.manifest.sensitive else {
        return prepared;
    };
    match prepared {
        Ok(prepared) => Ok(Discreet::around(prepared, sensitive, &value)),
        Err(failure) => {
            let hidden = sensitive.texts(&value);
            Err(failure.reworded(|text| masked(text, &hidden)))
        }
    }
}

async fn find_tool(worker: &Worker, pointer: &Pointer) -> Result<Option<Arc<Tool>>, Skip> {
    let known = || worker.registry.version(&pointer.tool, pointer.tool_version);
    if let Some(tool) = known() {
        return Ok(Some(tool));
    }
    // Applied a moment ago.
    if let Err(error) = Box::pin(worker.registry.refresh(&worker.pool)).await {
        tracing::debug!(error = report(&error), "tools were not refreshed");
        return Err(Skip::StoreSilent);
    }
    let tool = known();
    if tool.is_none() {
        tracing::warn!(tool = %pointer.tool, version = pointer.tool_version, "this worker does not have this tool version");
    }
    Ok(tool)
}

/// Ends a call whose own arguments the tool cannot be run with. What the message said is not enough for that.
async fn refuse(worker: &Worker, call: CallId, tool: &Tool) -> Skip {
    match refusing(worker, call, tool).await {
        Ok(Some(ending)) => match worker.end(&ending).await {
            Ok(ended) => {
                if let Some(ended) = ended {
                    complete::reply(worker, call, &ended, ending).await;
                }
                Skip::Refused
            }
            Err(error) => {
                tracing::debug!(error = report(&error), "the call was not ended");
                Skip::StoreSilent
            }
        },
        Ok(None) => {
            let what = Message::fixed(
                "its message said other things than the call",
                "它收到的消息与这次调用不一致",
            );
            let obstacle = Obstacle::new(Lack::Ability, &what, &worker.name);
            cannot_run(worker, call, &obstacle).await
        }
        Err(skip) => skip,
    }
}

async fn refusing(worker: &Worker, call: CallId, tool: &Tool) -> Result<Option<Ending>, Skip> {
    let (row, args) = (queued(worker, call).await?, read_args(worker, call).await?);
    let manifest = &tool.manifest;
    if row.tool != manifest.name.as_str() || row.tool_version != manifest.version {
        return Ok(None);
    }
    let Err(failure) = prepare(worker, tool, &args) else {
        return Ok(None);
    };
    // An attempt before this one may have had its effect, perhaps one that the ledger has lost.
    let doubtful =
        (row.attempts > 0 || row.effect_unknown) && manifest.effect == Effect::Idempotent;
    let kind = if doubtful {
        EndingKind::Doubt {
            error: json(&ErrorBody::in_doubt(&failure, row.language)),
        }
    } else {
        failed(
            &failure,
            effect_of(manifest.effect, OutcomeWord::NotStarted),
            row.language,
        )
    };
    Ok(Some(Ending {
        call_id: call,
        guard: Guard::Queued(row.rev),
        kind,
        attempt: None,
        actor: worker.actor(),
        reason: "refused_at_the_gate".to_owned(),
    }))
}

//! The gate: every check that can refuse the call without an effect, before the claim.
//!
//! It finds the tool's version, reads the arguments, looks for a pause, asks the policy and the program's interceptors, looks for a
//! kept answer, asks the budget, renders the request, resolves secrets, and asks whether the target may be tried.

use std::sync::Arc;

use fleet::{
    call::State,
    canonical,
    ending::{Ending, Fact, Guard, Known},
    ids::CallId,
    obstacle::{Lack, Obstacle},
    outcome::ToolFailure,
    references,
    registry::Tool,
    said,
    store::{
        StoreError,
        postpone::{self, Postponed, PostponedFor},
        read::{self, CallRow, CallState},
    },
    telemetry::report,
    wire::{message::Message, pointer::Pointer},
};

use crate::{
    arguments::{self, CallArguments, Seen},
    brakes,
    breaker::pass as breaker,
    budget, cache,
    consent::{self, Consent},
    dispose::{NoArguments, Skip, is_final},
    interceptor::EndedView,
    onion::Round,
    pause, policy,
    programs::{ProgramSlot, Turn},
    redact::RedactedFailures,
    stage::{Gated, Rendered},
    timeouts,
    waiting::Tenant,
    worker::WorkerProcess,
};

/// Takes a pointer through the gate.
pub(crate) async fn pass(worker: &WorkerProcess, pointer: Pointer) -> Result<Gated, Skip> {
    let (call, rev) = (pointer.call_id, pointer.rev);
    let Some(tool) = find_tool(worker, &pointer).await? else {
        let version = pointer.tool_version;
        let what = said!(
            "it does not have version {version} of the tool",
            "它没有这个工具的版本 {version}"
        );
        let obstacle = Obstacle::new(Lack::ToolVersion, &what, &worker.name);
        worker.lacks.put_back(&pointer.tool, version, &obstacle);
        return Err(Box::pin(cannot_run(worker, call, rev, &obstacle)).await);
    };
    let args = match &pointer.args {
        Some(args) => args.get().to_owned(),
        None => Box::pin(read_args(worker, call)).await?,
    };
    let manifest = &tool.manifest;
    // Its settings hold, whatever version the call has.
    let newest = worker.registry.current(&manifest.name);
    let newest = newest.as_ref().map(|newest| &newest.manifest);
    let chain = &worker.interceptors;
    if let Err(obstacle) = consent::lacking(manifest, newest, chain, &worker.name) {
        let (name, version) = (&manifest.name, manifest.version);
        worker.lacks.put_back(name, version, &obstacle);
        return Err(Box::pin(cannot_run(worker, call, rev, &obstacle)).await);
    }
    let mut read = None;
    if !worker.interceptors.is_empty() || references::may_be_in_canonical(&args) {
        read = Some(Box::pin(arguments(worker, call, &tool, &args)).await?);
    }
    let seen = Seen::of(&args, read.as_ref());
    pause::pass(worker, &pointer, &tool, seen).await?;
    if policy::is_there(manifest, newest)
        && Box::pin(policy_refuses(worker, call, &tool, None)).await?
    {
        return Err(Skip::Denied);
    }
    let mut round = match (&read, worker.interceptors.is_empty()) {
        (Some(read), false) => Some(Box::pin(consent(worker, &pointer, &tool, &args, read)).await?),
        (_, _) => None,
    };
    cache::pass(worker, &pointer, &tool, newest, &mut round).await?;
    // After the cache, whose answers cost nothing.
    if budget::of(manifest, newest).is_some() {
        let refused = budget::refusal(worker, call, manifest, newest).await?;
        if Box::pin(end_refused(
            worker,
            call,
            &tool,
            refused,
            round.as_deref_mut(),
        ))
        .await?
        {
            return Err(Skip::Denied);
        }
    }
    let read = match read {
        Some(read) => read,
        None => arguments(worker, call, &tool, &args).await?,
    };
    let mut rendered = prepare(worker, &tool, &read);
    let unfollowed = rendered.as_ref().ok().map(|it| it.unfollowed(&tool, None));
    if unfollowed.flatten().is_some() {
        // Only the row knows the session, and few requests depend on it.
        let row = queued(worker, call).await?;
        rendered = rendered.and_then(|it| it.followed(&tool, row.session.as_ref()));
    }
    match rendered {
        Ok(rendered) => {
            let program = if rendered.is_program {
                let slot = Box::pin(program_slot(worker, call, pointer.tenant.clone())).await?;
                // It may have waited for seconds.
                pause::pass(worker, &pointer, &tool, Seen::Whole(&read.value)).await?;
                Some(slot)
            } else {
                None
            };
            // Last, so that nothing but the claim comes between a permit and its attempt.
            let (breaker, shut) = breaker::pass(worker, &pointer, &tool, newest)
                .await?
                .parts();
            Ok(Gated {
                call,
                args_hash: canonical::hash_text(&args),
                args: tool.manifest.asks_another().then_some(args),
                limited: brakes::limited(worker, &pointer, &tool, newest),
                timeout: timeouts::timeout_of(worker, &tool.manifest, pointer.tenant.as_ref()),
                tool,
                rendered,
                round,
                program,
                breaker,
                shut,
            })
        }
        // It would fail the same way on every worker.
        Err(failure) if is_final(failure.code) => Err(Box::pin(refuse(worker, call, &tool)).await),
        Err(failure) => {
            let obstacle = Obstacle::of(&failure, &worker.name);
            let manifest = &tool.manifest;
            worker
                .lacks
                .put_back(&manifest.name, manifest.version, &obstacle);
            Err(Box::pin(cannot_run(worker, call, rev, &obstacle)).await)
        }
    }
}

/// What the tool gets for these arguments of a call. Ends the call where no worker will have that.
async fn arguments(
    worker: &WorkerProcess,
    call: CallId,
    tool: &Arc<Tool>,
    stored: &str,
) -> Result<CallArguments, Skip> {
    match arguments::of(worker, call, tool, stored).await {
        Ok(arguments) => Ok(arguments),
        Err(NoArguments::Skip(skip)) => Err(skip),
        Err(NoArguments::Never(_)) => Err(Box::pin(refuse(worker, call, tool)).await),
    }
}

/// The interceptors of the program, which have let the call go on.
async fn consent(
    worker: &WorkerProcess,
    pointer: &Pointer,
    tool: &Arc<Tool>,
    stored: &str,
    args: &CallArguments,
) -> Result<Box<Round>, Skip> {
    match consent::ask(worker, pointer, tool, stored, args).await? {
        Consent::Given(round) => {
            // They may have thought for seconds.
            pause::pass(worker, pointer, tool, Seen::Whole(&args.value)).await?;
            Ok(round)
        }
        Consent::Refused(round, failure) => Err(deny(worker, round, failure).await),
        Consent::Waits(pause, obstacle) => {
            let (call, rev) = (pointer.call_id, pointer.rev);
            put_off(worker, call, rev, &obstacle, pause).await?;
            Err(Skip::NoConsent)
        }
    }
}

/// A program slot, before the claim: waiting for one costs no attempt.
async fn program_slot(
    worker: &WorkerProcess,
    call: CallId,
    tenant: Tenant,
) -> Result<ProgramSlot, Skip> {
    match worker.programs.turn(tenant).await {
        Turn::Now(slot) => Ok(slot),
        Turn::Later(pause) => Err(if worker.putting_back.put_back(call, pause).await {
            Skip::NoProgramSlot
        } else {
            Skip::StoreSilent
        }),
    }
}

/// Postpones a call that another worker may be able to run.
async fn cannot_run(
    worker: &WorkerProcess,
    call: CallId,
    rev: Option<i32>,
    obstacle: &Obstacle,
) -> Skip {
    let put_off = put_off(worker, call, rev, obstacle, PostponedFor::Growing).await;
    put_off.err().unwrap_or(Skip::CannotRun)
}

/// Postpones a call. It waits in the ledger, for in NATS it would hold a place in front of others. The revision in its pointer
/// saves a read of the row, unless the call has moved since.
async fn put_off(
    worker: &WorkerProcess,
    call: CallId,
    rev: Option<i32>,
    obstacle: &Obstacle,
    pause: PostponedFor,
) -> Result<(), Skip> {
    let postponed = match rev {
        Some(rev) => postpone(worker, call, rev, obstacle, pause).await,
        None => Ok(false),
    };
    let postponed = match postponed {
        Ok(true) => return Ok(()),
        Ok(false) => {
            let row = queued(worker, call).await?;
            postpone(worker, call, row.rev, obstacle, pause).await
        }
        Err(error) => Err(error),
    };
    match postponed {
        Ok(_waits_or_has_moved) => Ok(()),
        Err(error) => {
            tracing::debug!(error = report(&error), "the call was not postponed");
            Err(Skip::StoreSilent)
        }
    }
}

/// Whether the call was postponed; it was not if it has moved since this revision.
async fn postpone(
    worker: &WorkerProcess,
    call: CallId,
    rev: i32,
    obstacle: &Obstacle,
    pause: PostponedFor,
) -> Result<bool, StoreError> {
    let postponed = Postponed {
        call,
        rev,
        pause,
        obstacle,
        actor: &worker.actor(),
    };
    postpone::postpone(&worker.pool, postponed).await
}

/// The row of a call that is still queued.
async fn queued(worker: &WorkerProcess, call: CallId) -> Result<CallRow, Skip> {
    match read::find(&worker.pool, call).await {
        Ok(Some(row)) if row.state() == State::Queued => Ok(row),
        Ok(Some(row)) => Err(Skip::NotQueued(row.state())),
        Ok(None) => Err(Skip::Gone),
        Err(_silent) => Err(Skip::StoreSilent),
    }
}

/// The arguments as the ledger has them.
pub(crate) async fn read_args(worker: &WorkerProcess, call: CallId) -> Result<String, Skip> {
    match fleet::store::arguments::of_open(&worker.pool, call).await {
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
    worker: &WorkerProcess,
    tool: &Tool,
    arguments: &CallArguments,
) -> Result<Rendered, ToolFailure> {
    let value = &arguments.value;
    let manifest = &tool.manifest;
    let redact = RedactedFailures::of(manifest.sensitive.as_ref(), value);
    let executor = worker.executors.of(manifest);
    let prepared = executor.and_then(|executor| {
        let prepared = executor.prepare(manifest, value, &worker.secrets)?;
        Ok((prepared, executor.is_program(manifest)))
    });
    match prepared {
        Ok((prepared, is_program)) => Ok(Rendered {
            prepared,
            is_program,
            redact,
        }),
        Err(failure) => Err(redact.redact_unsent(failure)),
    }
}

async fn find_tool(worker: &WorkerProcess, pointer: &Pointer) -> Result<Option<Arc<Tool>>, Skip> {
    let known = || worker.registry.version(&pointer.tool, pointer.tool_version);
    if let Some(tool) = known() {
        return Ok(Some(tool));
    }
    // The version may have been applied a moment ago.
    if let Err(error) = Box::pin(worker.registry.refresh(&worker.pool)).await {
        tracing::debug!(error = report(&error), "tools were not refreshed");
        return Err(Skip::StoreSilent);
    }
    Ok(known())
}

/// Ends a call whose arguments the tool cannot take. They are read from the row for this: those in the message may differ.
async fn refuse(worker: &WorkerProcess, call: CallId, tool: &Arc<Tool>) -> Skip {
    let ending = async {
        let (row, stored) = stored(worker, call).await?;
        let failure = match arguments::of(worker, call, tool, &stored).await {
            Ok(arguments) => prepare(worker, tool, &arguments)
                .and_then(|it| it.followed(tool, row.session.as_ref()))
                .err(),
            Err(NoArguments::Never(failure)) => Some(failure),
            Err(NoArguments::Skip(skip)) => return Err(skip),
        };
        end_queued(worker, call, tool, &row, failure, Earlier::Any).await
    };
    match ending.await {
        Ok(_state) => Skip::Refused,
        Err(skip) => skip,
    }
}

/// Ends a call that an interceptor has refused, if the message that it was asked about said the same as the row.
async fn deny(worker: &WorkerProcess, mut round: Box<Round>, failure: ToolFailure) -> Skip {
    let subject = round.subject();
    let ending = async {
        let (row, stored) = stored(worker, subject.call).await?;
        let is_as_asked =
            row.tenant == subject.tenant && canonical::hash_text(&stored) == subject.args_hash;
        let failure = is_as_asked.then_some(failure);
        end_queued(
            worker,
            subject.call,
            &subject.tool,
            &row,
            failure,
            Earlier::Any,
        )
        .await
    };
    match ending.await {
        Ok(state) => {
            if let Some(state) = state {
                round.ended(EndedView::Refused(state));
            }
            Skip::Denied
        }
        Err(skip) => skip,
    }
}

/// Ends a call that breaks a rule of its policy, by what has happened until now; the claim asks again, under its locks. Whether it
/// does.
async fn policy_refuses(
    worker: &WorkerProcess,
    call: CallId,
    tool: &Tool,
    round: Option<&mut Round>,
) -> Result<bool, Skip> {
    let refused = policy::refusal(worker, call, &tool.manifest.name).await?;
    end_refused(worker, call, tool, refused, round).await
}

/// Ends a call that is refused by what the ledger knows of others. Whether it is.
async fn end_refused(
    worker: &WorkerProcess,
    call: CallId,
    tool: &Tool,
    refused: Option<ToolFailure>,
    round: Option<&mut Round>,
) -> Result<bool, Skip> {
    let Some(failure) = refused else {
        return Ok(false);
    };
    let row = queued(worker, call).await?;
    // The ledger has judged it, by what it knows of all attempts.
    let state = end_queued(worker, call, tool, &row, Some(failure), Earlier::Known).await?;
    if let (Some(round), Some(state)) = (round, state) {
        round.ended(EndedView::Refused(state));
    }
    Ok(true)
}

/// Ends a call whose claim found that it breaks a rule of its policy. Where what may have happened by then is known not to have by
/// now, the claim is tried again.
pub(crate) async fn forbid(
    worker: &WorkerProcess,
    call: CallId,
    tool: &Tool,
    round: Option<&mut Round>,
) -> Skip {
    match policy_refuses(worker, call, tool, round).await {
        Ok(true) => Skip::Denied,
        Ok(false) => Skip::StartsBusy,
        Err(skip) => skip,
    }
}

/// The row of a queued call, and what it has of its arguments.
async fn stored(worker: &WorkerProcess, call: CallId) -> Result<(CallRow, String), Skip> {
    Ok((queued(worker, call).await?, read_args(worker, call).await?))
}

/// Which attempts before may have had their effect when a call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Earlier {
    /// Any, perhaps one that the ledger has lost.
    Any,
    /// Those of which the ledger does not know that they had none.
    Known,
}

/// Ends a queued call for this reason; `None`: its row gives none. Returns where it stands now; `None`: it has moved meanwhile.
async fn end_queued(
    worker: &WorkerProcess,
    call: CallId,
    tool: &Tool,
    row: &CallRow,
    failure: Option<ToolFailure>,
    earlier: Earlier,
) -> Result<Option<State>, Skip> {
    let ending = failure.and_then(|failure| refusing(worker, call, tool, row, &failure, earlier));
    let Some(ending) = ending else {
        let what = Message::fixed(
            "its message said other things than the call",
            "它收到的消息与这次调用不一致",
        );
        let obstacle = Obstacle::new(Lack::Ability, &what, &worker.name);
        return Err(cannot_run(worker, call, None, &obstacle).await);
    };
    match worker.end(&ending).await {
        Ok(Some(moved)) => {
            let state = moved.state;
            worker.reply(call, moved, ending, None).await;
            Ok(Some(state))
        }
        Ok(None) => Ok(None),
        Err(error) => {
            tracing::debug!(error = report(&error), "the call was not ended");
            Err(Skip::StoreSilent)
        }
    }
}

fn refusing(
    worker: &WorkerProcess,
    call: CallId,
    tool: &Tool,
    row: &CallRow,
    failure: &ToolFailure,
    earlier: Earlier,
) -> Option<Ending> {
    let manifest = &tool.manifest;
    if row.tool != manifest.name.as_str() || row.tool_version != manifest.version {
        return None;
    }
    let leaves_unknown = matches!(
        row.state,
        CallState::Queued {
            effect_unknown: true,
            ..
        }
    );
    let known = Known {
        effect: manifest.effect,
        language: row.language,
        cancelled: false,
        earlier_unknown: leaves_unknown || earlier == Earlier::Any && row.attempts > 0,
        applied_late: false,
    };
    let (fact, guard) = (Fact::Refused(failure), Guard::Queued(row.rev));
    let ending = Ending::by(&fact, &known, call, guard, None, worker.actor());
    Some(ending)
}

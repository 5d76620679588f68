//! Execute: the only step that touches the world.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use fleet::{
    call::Effect,
    canonical,
    checkpoint::{Checkpoint, reached},
    manifest::Visibility,
    outcome::{Outcome, ToolFailure},
    registry::Tool,
    retry,
    store::claim::Claimed,
    taken_back::TakenBack,
    telemetry::{
        report,
        spans::{self, Step},
        trace,
    },
    wire::{code::Code, message::Message, trace::TraceContext},
};
use futures_util::FutureExt;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use crate::{
    arguments,
    breaker::permit::CutShort,
    executors::{
        AttemptContext, LINGER_MAX, Prepared, Progress, Promise, Returned, StopReason, redact,
    },
    files::AttemptFiles,
    gate,
    handover::HandedFiles,
    intercept::{Around, LargeBlocks, Observe, OutputSchema, Own, Repetition},
    news::{News, Teller},
    onion::Round,
    redact::RedactedFailures,
    stage::{Attempt, Executed, Execution, Rendered, Running, millis},
    timeouts,
    worker::WorkerProcess,
};

/// How long an executor may overrun [`LINGER_MAX`] before its attempt is given up.
pub(crate) const BACKSTOP: Duration = Duration::from_secs(2);

/// Runs the tool once, or finds a reason not to.
pub(crate) async fn execute(worker: &WorkerProcess, running: Running) -> Executed {
    let Running { gated, mut attempt } = running;
    let (started, mut round) = (Instant::now(), gated.round);
    if let Some(round) = &mut round {
        round.began(attempt.claimed.attempt);
    }
    let asked = round.as_deref();
    let execution = match (
        files(worker, &mut attempt, gated.args_hash).await,
        gated.shut,
    ) {
        (Err(taken_back), _) => taken_back,
        // Nothing is sent to its target; what stands in for it is asked next.
        (Ok(()), Some(failure)) => Execution::Ran(Outcome::NotStarted(*failure)),
        (Ok(()), None) => {
            match ready(worker, &attempt, gated.args_hash, gated.rendered, asked).await {
                Ok(rendered) => {
                    start(worker, &attempt, rendered, round.as_deref_mut(), started).await
                }
                Err(taken_back) => taken_back,
            }
        }
    };
    timeouts::count(worker, &attempt, &execution, started.elapsed());
    if let Some(permit) = gated.breaker {
        let cut = if attempt.entry.stop.asked().is_some() {
            CutShort::Stopped
        } else if millis(attempt.claimed.timeout_ms) < attempt.timeout {
            CutShort::ByDeadline
        } else {
            CutShort::No
        };
        if let Some(outcome) = execution.outcome() {
            permit.answered(outcome, started.elapsed(), cut);
        }
    }
    // The next program may start while this one's outcome is written.
    drop(gated.program);
    Executed {
        attempt,
        execution,
        round,
        judged: None,
    }
}

/// Runs a request that is ready. `started`: when the worker turned to the attempt, after its claim.
async fn start(
    worker: &WorkerProcess,
    attempt: &Attempt,
    rendered: Rendered,
    round: Option<&mut Round>,
    started: Instant,
) -> Execution {
    let Attempt { tool, claimed, .. } = attempt;
    let outer = spans::step(Step::Execute);
    let span = outer.in_scope(|| spans::execute_tool(claimed.call_id, &tool.manifest.name));
    let until = attempt.own_until();
    let mut context = context_of(attempt, tool, until, &span);
    // Right before the first byte: the claim may have taken long.
    if let Some(execution) = why_not(worker, attempt) {
        return execution;
    }
    if !context.files.is_empty() {
        match Box::pin(hand_over(worker, attempt, tool, &context)).await {
            Ok(handed) => context.handed = handed,
            Err(execution) => return execution,
        }
    }
    reached(Checkpoint::Starting);
    let mut around = Around {
        observe: Observe {
            tool: Arc::clone(tool),
            span: span.clone(),
            started,
        },
        large_blocks: LargeBlocks::of(worker, attempt),
        output_schema: OutputSchema {
            tool: Arc::clone(tool),
        },
        own: Own {
            tool: Arc::clone(tool),
            hidden: match &round {
                Some(_) => rendered.redact.clone(),
                None => RedactedFailures::default(),
            },
            round,
        },
        repetition: Repetition {
            earlier_unknown: claimed.effect_unknown && claimed.effect == Effect::Idempotent,
        },
        news: news(worker, attempt),
        redact: rendered.redact,
    };
    around.before(&mut context);
    let running = around.beside(run(rendered.prepared, context));
    let execution = match running.instrument(span).instrument(outer).await {
        Ok(answered) => around.after(answered).await,
        Err(silent) => silent,
    };
    around.ended(&execution);
    execution
}

/// Hands the files of the call over to its tool, or to one in its place. `Err`: nothing is started.
pub(crate) async fn hand_over(
    worker: &WorkerProcess,
    attempt: &Attempt,
    tool: &Tool,
    context: &AttemptContext,
) -> Result<HandedFiles, Execution> {
    let handing = worker.handover.hand_over(&tool.manifest.executor, context);
    let not_started = |failure| Execution::Ran(Outcome::NotStarted(failure));
    let handed = handing.await.map_err(not_started)?;
    // That may have taken a while.
    match why_not_any_more(worker, attempt) {
        Some(execution) => Err(execution),
        None => Ok(handed),
    }
}

/// Why the attempt may start nothing, if it may not.
fn why_not(worker: &WorkerProcess, attempt: &Attempt) -> Option<Execution> {
    if let Some(execution) = why_not_any_more(worker, attempt) {
        return Some(execution);
    }
    if attempt.is_late() {
        let what = Message::fixed(
            "the claim took more than half of the time that the attempt has",
            "认领所用的时间超过了这次尝试全部时间的一半",
        );
        return Some(taken_back(TakenBack::StartedTooLate, what));
    }
    let Claimed {
        effect,
        effect_unknown,
        ..
    } = attempt.claimed;
    let forgotten = retry::key_is_forgotten(effect, effect_unknown, attempt.key_remaining());
    forgotten.then(|| {
        let what = Message::fixed(
            "an earlier attempt may have done it, and the tool no longer recognises the call's key",
            "更早的一次尝试可能已经生效，而工具已不再认得这次调用的幂等键",
        );
        Execution::KeyForgotten(ToolFailure::new(Code::Timeout, what))
    })
}

/// Why a moment is too late to start anything, if it is.
fn why_not_any_more(worker: &WorkerProcess, attempt: &Attempt) -> Option<Execution> {
    if !worker.may_start() {
        let what = Message::fixed(
            "the worker's lease ran out before the tool was started",
            "工具还没有启动，worker 的租约就到期了",
        );
        return Some(taken_back(TakenBack::LeaseOver, what));
    }
    if attempt.entry.stop.asked() == Some(StopReason::Cancelled) {
        let what = Message::fixed(
            "the call was cancelled before the tool was started",
            "这次调用在工具启动之前被取消",
        );
        let failure = ToolFailure::new(Code::Cancelled, what);
        return Some(Execution::TakenBack(TakenBack::CancelledBefore, failure));
    }
    None
}

/// Runs the executor. `Err`: it panicked, or did not come back in time.
pub(crate) async fn run(
    prepared: Box<dyn Prepared>,
    context: AttemptContext,
) -> Result<Execution, Execution> {
    let until = context.until + LINGER_MAX + BACKSTOP;
    let token = context.completion_token.clone();
    let signatures = context.handed.secrets();
    if !signatures.is_empty() {
        context.progress.hide(&signatures);
    }
    let running = AssertUnwindSafe(prepared.run(context)).catch_unwind();
    match timeout_at(until, running).await {
        Ok(Ok(mut returned)) => {
            if let Some(token) = &token {
                returned.outcome = redact::without_token(returned.outcome, token);
            }
            if !signatures.is_empty() {
                returned.outcome = redact::without(returned.outcome, &signatures);
            }
            Ok(answered(returned))
        }
        Ok(Err(_panic)) => Err(silent(
            Code::ToolCrashed,
            Message::fixed("the tool's executor panicked", "工具的执行器崩溃了"),
        )),
        Err(_elapsed) => Err(silent(
            Code::Timeout,
            Message::fixed("the tool did not end in its time", "工具没有按时结束"),
        )),
    }
}

fn answered(returned: Returned) -> Execution {
    let Returned {
        outcome,
        left_behind,
        committed,
    } = returned;
    match (committed, outcome) {
        // The tool's own word holds, even where it left something behind.
        (_, outcome @ Outcome::Unknown(_)) if left_behind => Execution::Abandoned(outcome),
        (Some(moved), outcome) => Execution::Committed(outcome, moved),
        (None, outcome) => Execution::Ran(outcome),
    }
}

fn silent(code: Code, what: Message) -> Execution {
    Execution::Abandoned(Outcome::Unknown(ToolFailure::new(code, what)))
}

/// Looks which files its call names, where it may name some: the hash of its arguments has them in it, and only a tool that takes files
/// may get some. No other call costs a statement.
async fn files(
    worker: &WorkerProcess,
    attempt: &mut Attempt,
    args_hash: [u8; 32],
) -> Result<(), Execution> {
    let is_named = attempt.tool.manifest.files.is_some() && attempt.claimed.args_hash != args_hash;
    if !is_named {
        return Ok(());
    }
    let (call, id) = (attempt.claimed.call_id, attempt.id);
    match Box::pin(AttemptFiles::of(&worker.pool, call, id)).await {
        Ok(found) => {
            attempt.files = found;
            Ok(())
        }
        Err(error) => {
            tracing::debug!(error = report(&error), "the files of a call were not read");
            Err(taken_back(
                TakenBack::ArgumentsUnread,
                Message::fixed(
                    "it could not be read which files the call names",
                    "无法读取这次调用所用的文件",
                ),
            ))
        }
    }
}

/// The request to send. Where the pointer and the row differ, the row is right.
async fn ready(
    worker: &WorkerProcess,
    attempt: &Attempt,
    args_hash: [u8; 32],
    rendered: Rendered,
    asked: Option<&Round>,
) -> Result<Rendered, Execution> {
    let Attempt {
        tool,
        claimed,
        files,
        ..
    } = attempt;
    let (manifest, args_hash) = (&tool.manifest, files.hash(args_hash));
    if claimed.tool != manifest.name.as_str() || claimed.tool_version != manifest.version {
        return Err(taken_back(
            TakenBack::WrongMessage,
            Message::fixed(
                "the message named another tool than the call",
                "消息里的工具与这次调用的工具不同",
            ),
        ));
    }
    let is_as_asked =
        |asked: &Round| asked.subject().tenant == claimed.tenant && claimed.args_hash == args_hash;
    if !asked.is_none_or(is_as_asked) {
        return Err(taken_back(
            TakenBack::WrongMessage,
            Message::fixed(
                "the message, about which the interceptors were asked, said other things than the call",
                "向拦截器询问时所依据的消息与这次调用不一致",
            ),
        ));
    }
    if claimed.args_hash == args_hash {
        return Ok(rendered);
    }
    tracing::warn!("a message carried other arguments than its call; going on with the call's");
    let rendered = async {
        let args = gate::read_args(worker, claimed.call_id).await.ok()?;
        if files.hash(canonical::hash_text(&args))[..] != claimed.args_hash[..] {
            return None;
        }
        let args = arguments::of(worker, claimed.call_id, tool, &args)
            .await
            .ok()?;
        gate::prepare(worker, tool, &args).ok()
    };
    Box::pin(rendered).await.ok_or_else(|| {
        taken_back(
            TakenBack::ArgumentsUnread,
            Message::fixed(
                "the call's arguments could not be read",
                "无法读取这次调用的参数",
            ),
        )
    })
}

fn taken_back(why: TakenBack, what: Message) -> Execution {
    Execution::TakenBack(why, ToolFailure::new(Code::Unavailable, what))
}

/// The call's id: the same for all its attempts, and another one after the caller's key has lapsed. A tool in the place of the call's
/// own has another key: what both ask may keep the answer to a key.
fn idempotency_key(attempt: &Attempt, tool: &Tool) -> String {
    let (call, name) = (attempt.claimed.call_id, &tool.manifest.name);
    if is_own(attempt, tool) {
        call.to_string()
    } else {
        format!("{call}-{name}")
    }
}

/// Whether it is the call's own tool, and none in its place.
fn is_own(attempt: &Attempt, tool: &Tool) -> bool {
    tool.manifest.name == attempt.tool.manifest.name
}

/// What a tool is told that runs in an attempt: the call's own, or one in its place. `until`: when it must have answered.
pub(crate) fn context_of(
    attempt: &Attempt,
    tool: &Tool,
    until: Instant,
    span: &tracing::Span,
) -> AttemptContext {
    let claimed = &attempt.claimed;
    // `attempt_until` is this moment on Postgres's clock.
    let own = attempt.own_until();
    let (later, sooner) = (
        until.saturating_duration_since(own),
        own.saturating_duration_since(until),
    );
    AttemptContext {
        call_id: claimed.call_id,
        attempt_id: attempt.id,
        attempt: claimed.attempt,
        tool: tool.manifest.name.clone(),
        tool_version: tool.manifest.version,
        idempotency_key: idempotency_key(attempt, tool),
        deadline_at: claimed.attempt_until + later - sooner,
        until,
        tenant: claimed.tenant.clone(),
        session: claimed.session.clone(),
        run: claimed.run.clone(),
        meta: claimed
            .meta
            .clone()
            .and_then(|meta| RawValue::from_string(meta).ok()),
        language: claimed.language,
        trace: TraceContext {
            // The caller's own words, and the tool may be a third party's.
            baggage: claimed
                .trace
                .baggage
                .clone()
                .filter(|_| tool.manifest.baggage),
            ..trace::context_of(span, &claimed.trace)
        },
        stop: attempt.entry.stop.clone(),
        progress: Progress::default(),
        // Both are of the call's own tool alone.
        completion_token: attempt
            .completion_token
            .clone()
            .filter(|_| is_own(attempt, tool)),
        asked: claimed.asked.clone().filter(|_| is_own(attempt, tool)),
        // Another one is asked only where it takes them.
        files: attempt.files.clone(),
        handed: HandedFiles::default(),
        promise: Promise::of(&attempt.tool),
    }
}

fn news(worker: &WorkerProcess, attempt: &Attempt) -> News {
    let claimed = &attempt.claimed;
    let is_hidden = attempt.tool.manifest.visibility == Visibility::Hidden;
    let session = claimed.session.clone().filter(|_session| !is_hidden);
    News::of(session.map(|session| Teller {
        events: worker.events.clone(),
        tenant: claimed.tenant.clone(),
        session,
        tool: claimed.tool.clone(),
        tool_version: claimed.tool_version,
        call: claimed.call_id,
        rev: claimed.rev,
        attempt: claimed.attempt,
        claimed_at: claimed.attempt_until - millis(claimed.timeout_ms),
        claim_sent: attempt.claim_sent,
        tells_parts: attempt.tool.manifest.sensitive.is_none(),
        told: 0,
    }))
}

//! Execute: the only step that touches the world.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use fleet::{
    call::Effect,
    canonical,
    checkpoint::{Checkpoint, reached},
    ids::AttemptId,
    outcome::{Outcome, OutcomeWord, ToolFailure},
    registry::Tool,
    retry,
    store::{claim::Claimed, complete::Ended},
    taken_back::TakenBack,
    telemetry::{
        metrics,
        spans::{self, Step},
        trace,
    },
    wire::{code::Code, message::Message},
};
use futures_util::FutureExt;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

use crate::{
    answer,
    claim::Running,
    executors::{
        AttemptContext, Committed, LINGER_MAX, LeftBehind, Prepared, Progress, Promise, StopReason,
    },
    gate,
    progress::News,
    running::Entry,
    worker::Worker,
};

/// An attempt that is over; the world may have changed.
pub(crate) struct Executed {
    pub(crate) claimed: Claimed,
    pub(crate) attempt_id: AttemptId,
    pub(crate) tool: Arc<Tool>,
    pub(crate) claim_sent: Instant,
    pub(crate) entry: Entry,
    pub(crate) execution: Execution,
}

/// What came of a claimed attempt.
#[derive(Debug)]
pub(crate) enum Execution {
    /// The executor was run, and says this.
    Ran(Outcome),
    /// The executor was run, and what it did committed together with the call's end: there is nothing left to record.
    Committed(Outcome, Box<Ended>),
    /// The executor did not come back, or came back by a panic, or left something behind: what it started may still act.
    Abandoned(Outcome),
    /// The platform took the attempt back before anything was started, for this reason: no tool has spent it.
    TakenBack(TakenBack, ToolFailure),
    /// Nothing was started, for an attempt before may have had its effect and the tool would not recognise its key.
    KeyForgotten(ToolFailure),
}

impl Execution {
    /// The word for how the attempt ended.
    pub(crate) const fn word(&self) -> OutcomeWord {
        match self {
            Self::Ran(outcome) | Self::Committed(outcome, _) | Self::Abandoned(outcome) => {
                outcome.word()
            }
            Self::TakenBack(..) | Self::KeyForgotten(_) => OutcomeWord::NotStarted,
        }
    }

    /// Whether nothing that was started for the attempt can act any more.
    pub(crate) const fn is_over(&self) -> bool {
        match self {
            Self::Ran(_) | Self::Committed(..) | Self::TakenBack(..) | Self::KeyForgotten(_) => {
                true
            }
            Self::Abandoned(_) => false,
        }
    }

    /// Why it did not do what was asked, if it did not.
    pub(crate) const fn failure(&self) -> Option<&ToolFailure> {
        match self {
            Self::Ran(outcome) | Self::Committed(outcome, _) | Self::Abandoned(outcome) => {
                outcome.failure()
            }
            Self::TakenBack(_, failure) | Self::KeyForgotten(failure) => Some(failure),
        }
    }
}

impl Executed {
    /// Why the platform ended the attempt, where it was not the tool: what was found before it was started, what the executor
    /// says, or that it was told to end because the worker leaves and has no answer of the tool.
    pub(crate) fn why_taken_back(&self) -> Option<TakenBack> {
        let said = || self.execution.failure()?.why_taken_back();
        let drained = || {
            let unanswered = match self.execution.word() {
                OutcomeWord::NotStarted | OutcomeWord::Unknown => true,
                OutcomeWord::Applied | OutcomeWord::DefiniteFailure => false,
            };
            unanswered && self.entry.stop.asked() == Some(StopReason::Drained)
        };
        match &self.execution {
            Execution::TakenBack(why, _) => Some(*why),
            Execution::KeyForgotten(_) => None,
            Execution::Ran(_) | Execution::Committed(..) | Execution::Abandoned(_) => {
                said().or_else(|| drained().then_some(TakenBack::WorkerLeft))
            }
        }
    }
}

/// How much longer than it promises an executor may take before its attempt is given up.
const BACKSTOP: Duration = Duration::from_secs(2);

/// Runs the tool once, or finds a reason not to.
pub(crate) async fn execute(worker: &Worker, running: Running) -> Executed {
    let Running {
        claimed,
        attempt_id,
        tool,
        args_hash,
        prepared,
        program,
        claim_sent,
        entry,
    } = running;
    let until = claim_sent + Duration::from_millis(u64::try_from(claimed.timeout_ms).unwrap_or(0));
    let started = Instant::now();
    let execution = match ready(worker, &claimed, &tool, args_hash, prepared).await {
        Ok(prepared) => {
            let outer = spans::step(Step::Execute);
            let span = outer.in_scope(|| spans::execute_tool(claimed.call_id, &tool.manifest.name));
            let context = context(&entry, &claimed, attempt_id, &tool, until, &span);
            // Checked right before the first byte: the claim may have taken long.
            if !worker.may_start() {
                taken_back(
                    TakenBack::LeaseOver,
                    Message::fixed(
                        "the worker's lease ran out before the tool was started",
                        "工具还没有启动，worker 的租约就到期了",
                    ),
                )
            } else if entry.stop.asked() == Some(StopReason::Cancelled) {
                let what = Message::fixed(
                    "the call was cancelled before the tool was started",
                    "这次调用在工具启动之前被取消",
                );
                Execution::TakenBack(
                    TakenBack::CancelledBefore,
                    ToolFailure::new(Code::Cancelled, what),
                )
            } else if Instant::now() >= until {
                taken_back(
                    TakenBack::StartedTooLate,
                    Message::fixed(
                        "the claim took longer than the attempt may",
                        "认领所用的时间超过了这次尝试允许的时间",
                    ),
                )
            } else if forgotten(&claimed, &tool, claim_sent.elapsed()) {
                let what = Message::fixed(
                    "an earlier attempt may have done it, and the tool no longer recognises the call's key",
                    "更早的一次尝试可能已经生效，而工具已不再认得这次调用的幂等键",
                );
                Execution::KeyForgotten(ToolFailure::new(Code::Timeout, what))
            } else {
                reached(Checkpoint::Starting);
                let news = news(worker, &claimed, claim_sent);
                news.started();
                let running = news.tell_of(async |progress| {
                    run(
                        prepared,
                        AttemptContext {
                            progress,
                            ..context
                        },
                    )
                    .await
                });
                let execution = running.instrument(span.clone()).instrument(outer).await;
                let execution = match execution {
                    Execution::Ran(outcome)
                        if claimed.effect_unknown && claimed.effect == Effect::Idempotent =>
                    {
                        Execution::Ran(outcome.after_unknown())
                    }
                    other => other,
                };
                let execution = match execution {
                    Execution::Ran(outcome) => {
                        Execution::Ran(answer::checked(outcome, &tool).await)
                    }
                    other => other,
                };
                if let Some(failure) = execution.failure() {
                    spans::failed(&span, failure.code);
                }
                metrics().executed(&tool.manifest.name, execution.word(), started.elapsed());
                execution
            }
        }
        Err(taken_back) => taken_back,
    };
    // The next program may start while what this one came to is written.
    drop(program);
    Executed {
        claimed,
        attempt_id,
        tool,
        claim_sent,
        entry,
        execution,
    }
}

async fn run(prepared: Box<dyn Prepared>, context: AttemptContext) -> Execution {
    let until = context.until + LINGER_MAX + BACKSTOP;
    let (left_behind, committed) = (context.left_behind.clone(), context.committed.clone());
    let running = AssertUnwindSafe(prepared.run(context)).catch_unwind();
    match timeout_at(until, running).await {
        // What the tool itself said holds, whatever it left behind.
        Ok(Ok(outcome @ Outcome::Unknown(_))) if left_behind.is_admitted() => {
            Execution::Abandoned(outcome)
        }
        Ok(Ok(outcome)) => match committed.take() {
            Some(ended) => Execution::Committed(outcome, ended),
            None => Execution::Ran(outcome),
        },
        Ok(Err(_panic)) => Execution::Abandoned(Outcome::Unknown(ToolFailure::new(
            Code::ToolCrashed,
            Message::fixed("the tool's executor panicked", "工具的执行器崩溃了"),
        ))),
        Err(_elapsed) => Execution::Abandoned(Outcome::Unknown(ToolFailure::new(
            Code::Timeout,
            Message::fixed("the tool did not end in its time", "工具没有按时结束"),
        ))),
    }
}

/// The request to send. A pointer may carry other things than its row: the row is the truth.
async fn ready(
    worker: &Worker,
    claimed: &Claimed,
    tool: &Tool,
    args_hash: [u8; 32],
    prepared: Box<dyn Prepared>,
) -> Result<Box<dyn Prepared>, Execution> {
    let manifest = &tool.manifest;
    if claimed.tool != manifest.name.as_str() || claimed.tool_version != manifest.version {
        return Err(taken_back(
            TakenBack::WrongMessage,
            Message::fixed(
                "the message named another tool than the call",
                "消息里的工具与这次调用的工具不同",
            ),
        ));
    }
    if claimed.args_hash == args_hash {
        return Ok(prepared);
    }
    tracing::warn!("a message carried other arguments than its call; going on with the call's");
    let args = Box::pin(gate::read_args(worker, claimed.call_id));
    let args = args.await.ok();
    let prepared = args
        .filter(|args| canonical::hash_text(args)[..] == claimed.args_hash[..])
        .and_then(|args| gate::prepare(worker, tool, &args).ok());
    prepared.ok_or_else(|| {
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

fn forgotten(claimed: &Claimed, tool: &Tool, elapsed: Duration) -> bool {
    let since_first_start =
        Duration::from_millis(u64::try_from(claimed.since_first_start_ms).unwrap_or(0));
    let honoured = tool.manifest.idempotency.as_ref().map(|key| key.valid_for);
    let left = honoured.map(|valid_for| valid_for.saturating_sub(since_first_start + elapsed));
    retry::key_is_forgotten(claimed.effect, claimed.effect_unknown, left)
}

fn context(
    entry: &Entry,
    claimed: &Claimed,
    attempt_id: AttemptId,
    tool: &Arc<Tool>,
    until: Instant,
    span: &tracing::Span,
) -> AttemptContext {
    AttemptContext {
        call_id: claimed.call_id,
        attempt_id,
        attempt: claimed.attempt,
        tool: tool.manifest.name.clone(),
        tool_version: claimed.tool_version,
        // The call's id: constant over its attempts, and another one once the caller's key has lapsed.
        idempotency_key: claimed.call_id.to_string(),
        deadline_at: claimed.attempt_until,
        until,
        tenant: claimed.tenant.clone(),
        session: claimed.session.clone(),
        run: claimed.run.clone(),
        meta: claimed
            .meta
            .clone()
            .and_then(|meta| RawValue::from_string(meta).ok()),
        language: claimed.language,
        trace: trace::context_of(span, &claimed.trace),
        stop: entry.stop.clone(),
        left_behind: LeftBehind::default(),
        progress: Progress::default(),
        promise: Promise::of(tool),
        committed: Committed::default(),
    }
}

fn news(worker: &Worker, claimed: &Claimed, claim_sent: Instant) -> News {
    let timeout = Duration::from_millis(u64::try_from(claimed.timeout_ms).unwrap_or(0));
    News {
        events: worker.events.clone(),
        tenant: claimed.tenant.clone(),
        session: claimed.session.clone(),
        call: claimed.call_id,
        rev: claimed.rev,
        attempt: claimed.attempt,
        claimed_at: claimed.attempt_until - timeout,
        claim_sent,
    }
}

//! The layers around an attempt's executor: one list, in one order, each with the same four hooks.
//!
//! | layer | before the executor | beside it | after it answered | when it has ended |
//! |---|---|---|---|---|
//! | `observe` | | | | span, metrics |
//! | `large_blocks` | | | large blocks of an answer become files, and the answer has links |
//! | `output_schema` | | | holds the answer against the tool's `output_schema` | |
//! | `own` | | | the `after` hooks of the program's own interceptors | |
//! | `repetition` | | | what "no" means after an attempt of unknown effect | |
//! | `news` | tells that the attempt has started | tells what the tool tells, and that it runs | tells what was not told | the same |
//! | `redact` | | | masks sensitive values in what is told of a failure | |
//!
//! The first is the outermost: `before` goes down the list, `after` comes up. Each hook runs at most once per attempt, and none
//! runs for an attempt that was not started. No layer can turn an attempt that had its effect, or may have had it, into one that
//! had none. A layer may change the outcome as the executor reported it; `repetition` only makes it less certain. Where the
//! program's own interceptors are asked, the outcome's word is settled, and what they changed is checked and masked after them.
//!
//! A new layer is a type and a line in [`Around::in_order`].

use std::{convert::Infallible, sync::Arc};

use fleet::{
    ids::{AttemptId, CallId},
    manifest::AnswerForm,
    outcome::{Outcome, ToolFailure},
    registry::Tool,
    store::{PgPool, answer_files, files::FileQuota},
    telemetry::{metrics, spans},
};
use futures_util::future::{BoxFuture, join_all};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tracing::Span;

use crate::{
    answer::Promise,
    executors::AttemptContext,
    interceptor::Answer,
    news::News,
    onion::Round,
    redact::RedactedFailures,
    stage::{Attempt, Execution},
    worker::WorkerProcess,
};

/// All of them, around one attempt.
pub(crate) struct Around<'r> {
    pub(crate) observe: Observe,
    pub(crate) large_blocks: LargeBlocks,
    pub(crate) output_schema: OutputSchema,
    pub(crate) own: Own<'r>,
    pub(crate) repetition: Repetition,
    pub(crate) news: News,
    pub(crate) redact: RedactedFailures,
}

impl Around<'_> {
    /// The order, from the outermost to the one next to the executor.
    fn in_order(&mut self) -> [&mut dyn Layer; 7] {
        [
            &mut self.observe,
            &mut self.large_blocks,
            &mut self.output_schema,
            &mut self.own,
            &mut self.repetition,
            &mut self.news,
            &mut self.redact,
        ]
    }

    /// Before the executor runs.
    pub(crate) fn before(&mut self, context: &mut AttemptContext) {
        before(&mut self.in_order(), context);
    }

    /// Awaits `work`, and runs `meanwhile` of each layer beside it.
    pub(crate) async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        beside(&mut self.in_order(), work).await
    }

    /// The outcome after every layer has seen the executor's answer.
    pub(crate) async fn after(&mut self, answered: Execution) -> Execution {
        after(&mut self.in_order(), answered).await
    }

    /// The attempt has ended.
    pub(crate) fn ended(&mut self, execution: &Execution) {
        ended(&mut self.in_order(), execution);
    }
}

fn before(list: &mut [&mut dyn Layer], context: &mut AttemptContext) {
    for layer in list {
        layer.before(context);
    }
}

async fn beside<T>(list: &mut [&mut dyn Layer], work: impl Future<Output = T>) -> T {
    let all: Vec<_> = list
        .iter_mut()
        .filter_map(|layer| layer.meanwhile())
        .collect();
    if all.is_empty() {
        return work.await;
    }
    tokio::select! {
        done = work => done,
        never = join_all(all) => match never.into_iter().next() {
            Some(never) => match never {},
            None => unreachable!("the list is not empty"),
        },
    }
}

async fn after(list: &mut [&mut dyn Layer], answered: Execution) -> Execution {
    let mut execution = answered;
    for layer in list.iter_mut().rev() {
        let (name, was) = (layer.name(), execution.word());
        execution = match layer.after(execution) {
            After::Now(execution) => execution,
            After::Later(execution) => execution.await,
        };
        if execution.word() != was {
            tracing::debug!(layer = name, %was, is = %execution.word(), "the outcome was changed");
        }
    }
    execution
}

fn ended(list: &mut [&mut dyn Layer], execution: &Execution) {
    for layer in list.iter_mut().rev() {
        layer.ended(execution);
    }
}

/// A part that wraps the executor, for one attempt.
pub(crate) trait Layer: Send {
    /// Its name, for tests.
    fn name(&self) -> &'static str;

    /// Called before the executor runs.
    fn before(&mut self, _context: &mut AttemptContext) {}

    /// Runs beside the executor. Dropped when the executor returns.
    fn meanwhile(&mut self) -> Option<BoxFuture<'_, Infallible>> {
        None
    }

    /// Called when the executor has answered, not when it panicked or did not return in time.
    fn after(&mut self, execution: Execution) -> After<'_> {
        After::Now(execution)
    }

    /// Called when the attempt has ended, whatever it came to. Changes nothing.
    fn ended(&mut self, _execution: &Execution) {}
}

/// What a layer makes of an answer. Most need not wait, and then cost no allocation.
pub(crate) enum After<'a> {
    Now(Execution),
    Later(BoxFuture<'a, Execution>),
}

/// Counts one attempt and times it.
pub(crate) struct Observe {
    pub(crate) tool: Arc<Tool>,
    /// The span of the tool's execution.
    pub(crate) span: Span,
    /// When the worker turned to the attempt, after its claim.
    pub(crate) started: Instant,
}

impl Layer for Observe {
    fn name(&self) -> &'static str {
        "observe"
    }

    fn ended(&mut self, execution: &Execution) {
        if let Some(failure) = execution.failure() {
            if failure.wanted().is_some() {
                // It has neither answered nor failed.
                return;
            }
            spans::failed(&self.span, failure.code);
        }
        let tool = &self.tool.manifest.name;
        metrics().executed(tool, execution.word(), self.started.elapsed());
    }
}

/// Keeps the large blocks of an answer as files, where the tool answers with blocks.
pub(crate) struct LargeBlocks(pub(crate) Option<BlockKeeper>);

/// With what they are kept, for one attempt.
pub(crate) struct BlockKeeper {
    pub(crate) pool: PgPool,
    pub(crate) call: CallId,
    pub(crate) attempt: AttemptId,
    /// The call's own tool, whose answer it is.
    pub(crate) tool: Arc<Tool>,
    pub(crate) quota: FileQuota,
}

impl LargeBlocks {
    /// Those of this attempt.
    pub(crate) fn of(worker: &WorkerProcess, attempt: &Attempt) -> Self {
        let is_content = attempt.tool.manifest.output == AnswerForm::Content;
        Self(is_content.then(|| BlockKeeper {
            pool: worker.pool.clone(),
            call: attempt.claimed.call_id,
            attempt: attempt.id,
            tool: Arc::clone(&attempt.tool),
            quota: worker.file_quota,
        }))
    }
}

impl Layer for LargeBlocks {
    fn name(&self) -> &'static str {
        "large_blocks"
    }

    fn after(&mut self, execution: Execution) -> After<'_> {
        match (&self.0, execution) {
            (Some(keeper), Execution::Ran(Outcome::Applied { result, flaw }))
                if flaw.as_ref().is_none_or(ToolFailure::is_mended)
                    && answer_files::may_link(&keeper.tool.manifest, result.get()) =>
            {
                After::Later(Box::pin(async move {
                    let result = keeper.keep(result).await;
                    Execution::Ran(Outcome::Applied { result, flaw })
                }))
            }
            (_, execution) => After::Now(execution),
        }
    }
}

impl BlockKeeper {
    async fn keep(&self, answer: Box<RawValue>) -> Box<RawValue> {
        let (of, manifest) = ((self.call, self.attempt), &self.tool.manifest);
        answer_files::with_links(&self.pool, of, manifest, self.quota, answer).await
    }
}

/// Checks the answer against the tool's `output_schema`.
pub(crate) struct OutputSchema {
    pub(crate) tool: Arc<Tool>,
}

impl Layer for OutputSchema {
    fn name(&self) -> &'static str {
        "output_schema"
    }

    /// An answer that was committed was checked before.
    fn after(&mut self, execution: Execution) -> After<'_> {
        let Execution::Ran(Outcome::Applied { result, flaw }) = execution else {
            return After::Now(execution);
        };
        let tool = &*self.tool;
        if !tool.is_choosy() || flaw.as_ref().is_some_and(|flaw| !flaw.is_mended()) {
            return After::Now(judged(result, flaw, tool));
        }
        let promise = Promise::of(&self.tool);
        match promise.kept_now(result) {
            Ok((result, broken)) => After::Now(judged(result, broken.or(flaw), tool)),
            Err(result) => After::Later(Box::pin(async move {
                let (result, broken) = promise.kept(result).await;
                judged(result, broken.or(flaw), tool)
            })),
        }
    }
}

/// The outcome of a tool that succeeded, with the flaw of its answer. The success stands.
///
/// A write's answer is kept beside its flaw, for it may be the only trace of what was done. It is not kept where it may hold
/// sensitive values: in an answer of another shape their places are not known.
fn judged(result: Box<RawValue>, flaw: Option<ToolFailure>, tool: &Tool) -> Execution {
    let useless = flaw.as_ref().is_some_and(|flaw| !flaw.is_mended());
    let result = if useless && tool.manifest.sensitive.is_some() {
        RawValue::NULL.to_owned()
    } else {
        result
    };
    Execution::Ran(Outcome::Applied { result, flaw })
}

/// Lets the interceptors of the program see the answer, where it has some.
pub(crate) struct Own<'r> {
    /// The call, and those that it began with.
    pub(crate) round: Option<&'r mut Round>,
    pub(crate) tool: Arc<Tool>,
    /// What must not be told of a failure: they see the arguments, and may repeat them.
    pub(crate) hidden: RedactedFailures,
}

impl Layer for Own<'_> {
    fn name(&self) -> &'static str {
        "own"
    }

    fn after(&mut self, execution: Execution) -> After<'_> {
        match &mut self.round {
            None => After::Now(execution),
            Some(round) => {
                let (limit, hidden) = (self.tool.manifest.output_limit, &self.hidden);
                After::Later(Box::pin(asked(round, execution, limit, hidden)))
            }
        }
    }
}

async fn asked(
    round: &mut Round,
    execution: Execution,
    limit: usize,
    hidden: &RedactedFailures,
) -> Execution {
    let is_probe = round.subject().is_probe;
    let mut ask = async |outcome: Outcome, is_fixed: bool| {
        let mut answer = Answer::new(outcome, is_fixed, limit);
        if round.after(&mut answer).await {
            // Masked before it is cut: half a secret would not be found.
            hidden.redact(answer.into_outcome()).bounded()
        } else {
            answer.into_outcome()
        }
    };
    if let Some(failure) = execution.failure()
        && failure.wanted().is_some()
    {
        // There is no answer yet that they could see.
        return execution;
    }
    match execution {
        Execution::Ran(outcome) => Execution::Ran(ask(outcome, is_probe).await),
        // What is committed is what was answered.
        Execution::Committed(outcome, moved) => {
            Execution::Committed(ask(outcome, true).await, moved)
        }
        Execution::Abandoned(outcome) => Execution::Abandoned(ask(outcome, is_probe).await),
        Execution::TakenBack(..) | Execution::KeyForgotten(_) => execution,
    }
}

/// Makes an answer uncertain that the earlier attempt would explain.
pub(crate) struct Repetition {
    /// Whether an earlier attempt, with the same key, may have had its effect.
    pub(crate) earlier_unknown: bool,
}

impl Layer for Repetition {
    fn name(&self) -> &'static str {
        "repetition"
    }

    fn after(&mut self, execution: Execution) -> After<'_> {
        After::Now(match execution {
            Execution::Ran(outcome) if self.earlier_unknown => {
                Execution::Ran(outcome.after_unknown())
            }
            Execution::Ran(_)
            | Execution::Committed(..)
            | Execution::Abandoned(_)
            | Execution::TakenBack(..)
            | Execution::KeyForgotten(_) => execution,
        })
    }
}

impl Layer for News {
    fn name(&self) -> &'static str {
        "news"
    }

    fn before(&mut self, context: &mut AttemptContext) {
        self.begin(context);
    }

    fn meanwhile(&mut self) -> Option<BoxFuture<'_, Infallible>> {
        self.tell_all()
    }

    fn after(&mut self, execution: Execution) -> After<'_> {
        self.tell_last();
        After::Now(execution)
    }

    fn ended(&mut self, _execution: &Execution) {
        self.end();
    }
}

/// Next to the executor, so that no other layer sees a sensitive value in a failure.
impl Layer for RedactedFailures {
    fn name(&self) -> &'static str {
        "redact"
    }

    fn after(&mut self, execution: Execution) -> After<'_> {
        After::Now(match execution {
            Execution::Ran(outcome) => Execution::Ran(self.redact(outcome)),
            Execution::Committed(outcome, moved) => {
                Execution::Committed(self.redact(outcome), moved)
            }
            Execution::Abandoned(outcome) => Execution::Abandoned(self.redact(outcome)),
            Execution::TakenBack(..) | Execution::KeyForgotten(_) => execution,
        })
    }
}

#[cfg(test)]
mod tests;

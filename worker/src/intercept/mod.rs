//! The interceptors around an attempt's executor: one list, in one order, each with the same four hooks.
//!
//! | interceptor | before the executor | beside it | after it answered | when it is over |
//! |---|---|---|---|---|
//! | `observe` | | | | span, metrics |
//! | `output_schema` | | | holds the answer against the tool's `output_schema` | |
//! | `repetition` | | | what "no" means after an attempt of unknown effect | |
//! | `news` | tells that the attempt has started | tells what the tool reports | tells the last report | |
//! | `redact` | | | masks sensitive values in what is told of a failure | |
//!
//! The first is the outermost: `before` goes down the list, `after` comes up. Each hook runs at most once per attempt, and none
//! runs for an attempt that was not started. No interceptor can turn an attempt that had its effect, or may have had it, into
//! one that had none. An interceptor may change the outcome as the executor reported it; `repetition` only makes it less
//! certain.
//!
//! A new interceptor is a file here and a line in [`Around::in_order`].

mod interceptor;

mod news;
mod observe;
mod output_schema;
mod redact;
mod repetition;

use futures_util::future::join_all;

use self::interceptor::{After, Interceptor};

pub(crate) use self::{
    news::{News, Teller},
    observe::Observe,
    output_schema::OutputSchema,
    repetition::Repetition,
};
use crate::{executors::AttemptContext, redact::RedactedFailures, stage::Execution};

/// All of them, around one attempt.
pub(crate) struct Around {
    pub(crate) observe: Observe,
    pub(crate) output_schema: OutputSchema,
    pub(crate) repetition: Repetition,
    pub(crate) news: News,
    pub(crate) redact: RedactedFailures,
}

impl Around {
    /// The order, from the outermost to the one next to the executor.
    fn in_order(&mut self) -> [&mut dyn Interceptor; 5] {
        [
            &mut self.observe,
            &mut self.output_schema,
            &mut self.repetition,
            &mut self.news,
            &mut self.redact,
        ]
    }

    /// Before the executor runs.
    pub(crate) fn before(&mut self, context: &mut AttemptContext) {
        before(&mut self.in_order(), context);
    }

    /// Awaits `work`, and runs `meanwhile` of each interceptor beside it.
    pub(crate) async fn beside<T>(&mut self, work: impl Future<Output = T>) -> T {
        beside(&mut self.in_order(), work).await
    }

    /// The outcome after every interceptor has seen the executor's answer.
    pub(crate) async fn after(&mut self, answered: Execution) -> Execution {
        after(&mut self.in_order(), answered).await
    }

    /// The attempt is over.
    pub(crate) fn over(&mut self, execution: &Execution) {
        over(&mut self.in_order(), execution);
    }
}

fn before(list: &mut [&mut dyn Interceptor], context: &mut AttemptContext) {
    for interceptor in list {
        interceptor.before(context);
    }
}

async fn beside<T>(list: &mut [&mut dyn Interceptor], work: impl Future<Output = T>) -> T {
    let all: Vec<_> = list
        .iter_mut()
        .filter_map(|interceptor| interceptor.meanwhile())
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

async fn after(list: &mut [&mut dyn Interceptor], answered: Execution) -> Execution {
    let mut execution = answered;
    for interceptor in list.iter_mut().rev() {
        let (name, was) = (interceptor.name(), execution.word());
        execution = match interceptor.after(execution) {
            After::Now(execution) => execution,
            After::Later(execution) => execution.await,
        };
        if execution.word() != was {
            tracing::debug!(interceptor = name, %was, is = %execution.word(), "the outcome was changed");
        }
    }
    execution
}

fn over(list: &mut [&mut dyn Interceptor], execution: &Execution) {
    for interceptor in list.iter_mut().rev() {
        interceptor.over(execution);
    }
}

#[cfg(test)]
mod tests;

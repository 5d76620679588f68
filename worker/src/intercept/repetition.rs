//! Repetition: what a tool's "no" says when an earlier attempt may have had the effect.

use super::interceptor::{After, Interceptor};
use crate::stage::Execution;

/// Takes the certainty out of answers to a repeated request that the earlier one explains.
pub(crate) struct Repetition {
    /// Whether an attempt before, under the same key, may have had its effect.
    pub(crate) earlier_unknown: bool,
}

impl Interceptor for Repetition {
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

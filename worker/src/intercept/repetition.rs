//! Repetition: what a tool's "no" means when an earlier attempt may have had the effect.

use super::interceptor::{After, Interceptor};
use crate::stage::Execution;

/// Makes an answer uncertain that the earlier attempt would explain.
pub(crate) struct Repetition {
    /// Whether an earlier attempt, with the same key, may have had its effect.
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

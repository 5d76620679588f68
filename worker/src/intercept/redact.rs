//! Redact: the interceptor next to the executor, so that no other one sees a sensitive value in a failure.

use super::interceptor::{After, Interceptor};
use crate::{redact::RedactedFailures, stage::Execution};

impl Interceptor for RedactedFailures {
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

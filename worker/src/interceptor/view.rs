//! What an interceptor sees of a call, and what it hears of its end.

use std::fmt;

use fleet::{
    call::{Effect, State},
    ids::{CallId, Label, QueueName, ToolName},
    outcome::OutcomeWord,
};
use serde::de::DeserializeOwned;

/// A call, as its message and its tool's manifest describe it. What runs is compared with the ledger's row after the claim:
/// where a message said something else, nothing is started.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct CallView<'a> {
    /// The call.
    pub call_id: CallId,
    /// Its tool.
    pub tool: &'a ToolName,
    /// The version that it was accepted with.
    pub tool_version: i32,
    /// What running it again would mean.
    pub effect: Effect,
    /// Its queue.
    pub queue: &'a QueueName,
    /// Who asked.
    pub tenant: &'a Label,
    /// Its arguments, JSON text in canonical form. They may be sensitive.
    pub arguments: &'a str,
    /// The number of the attempt, from 1: before the claim as its message says, from then on as the ledger has it.
    pub attempt: u32,
    /// Whether it asks, for the fleet, what became of a call in doubt. Its answer decides about that call and cannot be changed.
    /// It may be refused or wait as any other: then the doubt stays.
    pub is_probe: bool,
}

// Without the arguments, which must not be logged.
impl fmt::Debug for CallView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallView")
            .field("call_id", &self.call_id)
            .field("tool", &self.tool)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

impl<'a> CallView<'a> {
    /// A call for the tests of an interceptor: the first attempt of a read with these arguments, JSON text. Its fields may be
    /// changed.
    pub fn sample(
        tool: &'a ToolName,
        queue: &'a QueueName,
        tenant: &'a Label,
        arguments: &'a str,
    ) -> Self {
        Self {
            call_id: CallId::generate(),
            tool,
            tool_version: 1,
            effect: Effect::Read,
            queue,
            tenant,
            arguments,
            attempt: 1,
            is_probe: false,
        }
    }

    /// The arguments as a type.
    ///
    /// # Errors
    ///
    /// They do not fit it. The error may quote a value: do not log it.
    pub fn arguments_as<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.arguments)
    }
}

/// What became of a call whose `before` was called: as it was recorded, not as this worker hoped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndedView {
    /// This message began no attempt here: the call waits, was put back, or another worker has it.
    NotStarted,
    /// An interceptor refused the call, and it stands here now.
    Refused(State),
    /// An equal call had the answer, and the call has succeeded with it.
    Answered,
    /// The ledger has recorded how the attempt ended.
    Recorded {
        /// How it ended.
        outcome: OutcomeWord,
        /// Where the call stands now: `queued`, where another attempt follows.
        state: State,
    },
    /// The tool was asked in the place of another one, whose call this is, and this came of it.
    StoodIn(OutcomeWord),
    /// The outcome came too late to decide: another process had decided about the attempt.
    Late,
    /// The ledger did not take the outcome. What becomes of the call is decided without it.
    NotRecorded,
}

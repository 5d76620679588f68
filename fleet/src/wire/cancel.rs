//! The answer to a caller that cancels a call.

use serde::{Deserialize, Serialize};

use crate::{
    call::{State, words},
    ids::CallId,
};

words! {
    /// The result of the request.
    CancelResult {
        /// The call had not run and never will.
        Cancelled = "cancelled",
        /// It runs. Its worker is told; how it ends is up to its attempt.
        CancelRequested = "cancel_requested",
        /// It was over before.
        AlreadyTerminal = "already_terminal",
        /// It will not run again, and whether it had its effect is unknown.
        InDoubt = "in_doubt",
    }
}

/// The answer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct CancelAnswer {
    /// The call.
    pub call_id: CallId,
    /// The state of the call.
    pub state: State,
    /// The result of the request.
    pub result: CancelResult,
}

//! The answer to somebody who takes a call back.

use serde::{Deserialize, Serialize};

use crate::{
    call::{State, words},
    ids::CallId,
};

words! {
    /// What became of the wish.
    CancelResult {
        /// The call had not run and never will.
        Cancelled = "cancelled",
        /// It runs. Its worker is told; how it ends is up to its attempt.
        CancelRequested = "cancel_requested",
        /// It was over before.
        AlreadyTerminal = "already_terminal",
        /// It will not run again, and nobody knows whether it had its effect.
        InDoubt = "in_doubt",
    }
}

/// The answer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct CancelAnswer {
    /// The call.
    pub call_id: CallId,
    /// Where it stands now.
    pub state: State,
    /// What became of the wish.
    pub result: CancelResult,
}

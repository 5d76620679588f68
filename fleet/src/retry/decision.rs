//! What may follow an attempt.

use std::time::Duration;

/// What follows an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// The call succeeded.
    Succeed,
    /// Another attempt, not before this pause is over.
    Again(Duration),
    /// The call failed with this attempt's own error.
    Fail,
    /// The call failed because every attempt did.
    Exhausted,
    /// The call failed because its time ran out.
    OutOfTime,
    /// The effect may have happened.
    Doubt,
    /// The call was cancelled and had no effect.
    Cancelled,
    /// The call was cancelled; it failed because its attempt provably did not start.
    FailCancelled,
}

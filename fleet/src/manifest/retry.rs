//! When a failed attempt is followed by another, and how soon.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::duration;
use crate::{call::words, wire::code::Code};

words! {
    /// How the pauses between attempts grow.
    RetryStrategy {
        /// One attempt.
        None = "none",
        /// Always `base`.
        Fixed = "fixed",
        /// `base × factor^(n-1)`, at most `cap`.
        Exponential = "exponential",
        /// A random part of the exponential pause ("full jitter"), the same for every process that computes it.
        Jittered = "jittered",
    }
}

/// When a failed attempt is followed by another, and how soon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryPolicy {
    /// How the pauses grow.
    pub strategy: RetryStrategy,
    /// How many attempts in all, 1 to 20.
    pub max_attempts: u32,
    /// The first pause.
    #[serde(with = "duration")]
    pub base: Duration,
    /// What each pause is multiplied by, 1 to 10.
    pub factor: f64,
    /// The longest pause; applied last.
    #[serde(with = "duration")]
    pub cap: Duration,
    /// Which failures are tried again. `None`: `timeout`, `unavailable`, `tool_crashed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<Vec<Code>>,
    /// How many further attempts there may be for each first attempt, 0 to 1, in each worker. `None`: as many as the rest says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            strategy: RetryStrategy::Jittered,
            max_attempts: 3,
            base: Duration::from_millis(500),
            factor: 2.0,
            cap: Duration::from_secs(30),
            on: None,
            budget: None,
        }
    }
}

impl RetryPolicy {
    /// How many attempts in all.
    pub const fn attempts_max(&self) -> u32 {
        match self.strategy {
            RetryStrategy::None => 1,
            RetryStrategy::Fixed | RetryStrategy::Exponential | RetryStrategy::Jittered => {
                self.max_attempts
            }
        }
    }

    /// Whether a failure with this code may be tried again.
    pub fn covers(&self, code: Code) -> bool {
        match &self.on {
            Some(codes) => codes.contains(&code),
            None => matches!(code, Code::Timeout | Code::Unavailable | Code::ToolCrashed),
        }
    }
}

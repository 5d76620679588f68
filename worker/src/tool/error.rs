//! Why a tool failed.

use std::time::Duration;

use fleet::{
    input::InputWanted,
    outcome::{Outcome, ToolFailure},
    wire::{code::Code, message::Message},
};
use serde_json::{Value, json};

use crate::executors::later;

/// Why a tool failed, and what that says about its effect.
///
/// The texts are stored and shown to models and people: no secrets, no arguments.
///
/// Every other error becomes [`ToolError::Unknown`] with `?`, because nothing is known of what came before it:
///
/// ```
/// # use worker::ToolError;
/// fn read() -> Result<String, ToolError> {
///     let text = std::fs::read_to_string("/nowhere")?;
///     Ok(text)
/// }
/// assert!(matches!(read(), Err(ToolError::Unknown { .. })));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ToolError {
    /// The tool says no, for a reason that the caller can act on, and has done nothing. Never tried again.
    #[non_exhaustive]
    Business {
        /// Why, in a sentence for a model.
        message: String,
        /// The tool's own code, for programs.
        code: Option<String>,
    },
    /// It is proven that nothing has reached the outside world. Tried again, whatever the tool's effect.
    #[non_exhaustive]
    NotStarted {
        /// Why.
        message: String,
        /// How long to wait before another attempt.
        retry_after: Option<Duration>,
    },
    /// The effect may have happened.
    #[non_exhaustive]
    Unknown {
        /// What went wrong.
        message: String,
        /// How long to wait before another attempt.
        retry_after: Option<Duration>,
    },
    /// The tool has the call and answers later, with [`ToolContext::completion_token`](crate::ToolContext::completion_token). Its
    /// manifest must have `completion`; without it, the effect may have happened.
    #[non_exhaustive]
    Deferred,
    /// The tool has begun nothing and wants to know something of its caller first. Then it is run again, with what the caller said as
    /// [`ToolContext::input`](crate::ToolContext::input) and its own state as [`ToolContext::state`](crate::ToolContext::state).
    #[non_exhaustive]
    Needs {
        /// What is shown to the caller, a JSON object of at most 16 KiB.
        requests: Value,
        /// What the tool gets back, at most 16 KiB of JSON. It is shown to nobody.
        state: Option<Value>,
    },
}

impl ToolError {
    /// The most bytes of a tool's own code.
    const CODE_MAX: usize = 128;

    /// The tool says no, and has done nothing.
    pub fn business(message: impl Into<String>) -> Self {
        Self::Business {
            message: message.into(),
            code: None,
        }
    }

    /// It is proven that nothing has reached the outside world.
    pub fn not_started(message: impl Into<String>) -> Self {
        Self::NotStarted {
            message: message.into(),
            retry_after: None,
        }
    }

    /// The effect may have happened.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::Unknown {
            message: message.into(),
            retry_after: None,
        }
    }

    /// The tool has the call and answers later, within `completion.wait` of its manifest.
    pub const fn deferred() -> Self {
        Self::Deferred
    }

    /// The tool wants to know something first. It may ask eight times in a call, and waits to the call's deadline; asking spends no
    /// attempt.
    pub const fn needs(requests: Value, state: Option<Value>) -> Self {
        Self::Needs { requests, state }
    }

    /// With the tool's own code, which only a business error has.
    #[must_use]
    pub fn with_code(mut self, own: impl Into<String>) -> Self {
        if let Self::Business { code, .. } = &mut self {
            *code = Some(own.into());
        }
        self
    }

    /// With the pause before another attempt, which a business error never gets.
    #[must_use]
    pub fn with_retry_after(mut self, pause: Duration) -> Self {
        if let Self::NotStarted { retry_after, .. } | Self::Unknown { retry_after, .. } = &mut self
        {
            *retry_after = Some(pause);
        }
        self
    }

    /// What it says of the attempt.
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Self::Business { message, code } => {
                let failure = ToolFailure::new(Code::ToolError, Message::verbatim(message));
                Outcome::DefiniteFailure(match code {
                    Some(mut code) => {
                        code.truncate(code.floor_char_boundary(Self::CODE_MAX));
                        failure.with_details(json!({ "code": code }))
                    }
                    None => failure,
                })
            }
            Self::NotStarted {
                message,
                retry_after,
            } => Outcome::NotStarted(unavailable(message, retry_after)),
            Self::Unknown {
                message,
                retry_after,
            } => Outcome::Unknown(unavailable(message, retry_after)),
            Self::Deferred => later::answers_later(),
            Self::Needs { requests, state } => later::asks(InputWanted {
                requests: requests.to_string(),
                state: state.map(|state| state.to_string()),
            }),
        }
    }
}

fn unavailable(message: String, retry_after: Option<Duration>) -> ToolFailure {
    ToolFailure::new(Code::Unavailable, Message::verbatim(message)).with_retry_after(retry_after)
}

// This is why it is not itself an error: the two would overlap.
impl<E: std::error::Error> From<E> for ToolError {
    fn from(error: E) -> Self {
        Self::unknown(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use fleet::outcome::OutcomeWord;

    use super::*;

    #[test]
    fn each_error_has_its_word() {
        use OutcomeWord::{DefiniteFailure, NotStarted, Unknown};
        let pause = Duration::from_secs(3);
        for (error, word, code) in [
            (ToolError::business("no"), DefiniteFailure, Code::ToolError),
            (
                ToolError::not_started("busy"),
                NotStarted,
                Code::Unavailable,
            ),
            (ToolError::unknown("lost"), Unknown, Code::Unavailable),
            (std::fmt::Error.into(), Unknown, Code::Unavailable),
        ] {
            let outcome = error.with_code("x").with_retry_after(pause).outcome();
            let failure = outcome.failure().unwrap();
            assert_eq!((outcome.word(), failure.code), (word, code));
            let business = word == DefiniteFailure;
            assert_eq!(failure.details.is_some(), business);
            assert_eq!(failure.retry_after_ms.is_some(), !business);
        }
    }
}

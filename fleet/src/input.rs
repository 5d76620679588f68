//! What a tool waits for instead of answering: that its own answer comes later, or that its caller tells it something.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// What a tool wants, instead of answering now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolWish {
    /// To answer later, with the token of its attempt.
    Completion,
    /// To be told something by the caller, and then to be run again. It has done nothing yet.
    Input(Box<InputWanted>),
}

/// What a tool asks of its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputWanted {
    /// What is shown to the caller, a JSON object as text.
    pub requests: String,
    /// What the tool itself gets back with the answer, JSON text. It is shown to nobody.
    pub state: Option<String>,
}

/// Why a question of a tool cannot be put to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnfitInput {
    /// `requests` is no JSON object.
    NoObject,
    /// `requests` is larger than [`InputWanted::REQUESTS_MAX`].
    RequestsTooLarge,
    /// `state` is larger than [`InputWanted::STATE_MAX`].
    StateTooLarge,
    /// It has asked [`InputWanted::ROUNDS_MAX`] times.
    TooManyRounds,
}

impl InputWanted {
    /// The most bytes of what is shown to a caller.
    pub const REQUESTS_MAX: usize = 16 * 1024;
    /// The most bytes of what a tool gets back.
    pub const STATE_MAX: usize = 16 * 1024;
    /// The most bytes of what a caller gives.
    pub const INPUT_MAX: usize = 64 * 1024;
    /// How often a tool may ask in one call.
    pub const ROUNDS_MAX: u32 = 8;

    /// Whether it can be put to the caller, after this many questions before it.
    ///
    /// # Errors
    ///
    /// Why it cannot.
    pub fn check(&self, rounds: u32) -> Result<(), UnfitInput> {
        let state = self.state.as_ref().map_or(0, String::len);
        let is_object = self.requests.trim_start().starts_with('{');
        match () {
            () if !is_object => Err(UnfitInput::NoObject),
            () if self.requests.len() > Self::REQUESTS_MAX => Err(UnfitInput::RequestsTooLarge),
            () if state > Self::STATE_MAX => Err(UnfitInput::StateTooLarge),
            () if rounds >= Self::ROUNDS_MAX => Err(UnfitInput::TooManyRounds),
            () => Ok(()),
        }
    }
}

/// What a tool has asked and was told, as the row of its call has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Asked {
    /// How often the tool has asked, this time included.
    pub round: u32,
    /// What was shown to the caller.
    pub requests: Box<RawValue>,
    /// What the tool gets back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Box<RawValue>>,
    /// What the caller gave, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Box<RawValue>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_bounds() {
        let of = |requests: &str, state: Option<usize>| InputWanted {
            requests: requests.to_owned(),
            state: state.map(|bytes| "x".repeat(bytes)),
        };
        let large = format!("{{\"a\":\"{}\"}}", "x".repeat(InputWanted::REQUESTS_MAX));
        let last = InputWanted::ROUNDS_MAX;
        assert_eq!(of(r#"{"ask":1}"#, None).check(last - 1), Ok(()));
        assert_eq!(
            of(r#"{"ask":1}"#, None).check(last),
            Err(UnfitInput::TooManyRounds)
        );
        assert_eq!(of("[]", None).check(0), Err(UnfitInput::NoObject));
        assert_eq!(of(&large, None).check(0), Err(UnfitInput::RequestsTooLarge));
        let state = InputWanted::STATE_MAX;
        assert_eq!(of("{}", Some(state)).check(0), Ok(()));
        assert_eq!(
            of("{}", Some(state + 1)).check(0),
            Err(UnfitInput::StateTooLarge)
        );
    }
}

//! What a tool answered, for interceptors to read and to change.

use std::fmt;

use fleet::{
    manifest::Manifest,
    outcome::{Outcome, ToolFailure},
    wire::message::Message,
};
use serde_json::value::RawValue;

use crate::executors::output;

/// The text of a tool's result, or its failure.
///
/// Whether the tool did what was asked is not part of it: a result can become another result, and a failure another sentence, and
/// neither can become the other. A changed result is held against the tool's `output_schema` as one of the tool is.
pub struct Answer {
    outcome: Outcome,
    /// What the hook that runs makes of it. It counts when the hook has returned.
    changed: Option<Words>,
    is_fixed: bool,
    limit: usize,
}

enum Words {
    Result(Box<RawValue>),
    /// The message is not cut yet, so that sensitive values can be found in it.
    Failure(ToolFailure),
}

/// Why an answer was left as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unchanged {
    /// It is committed already, is the answer to a probe, or cannot be used.
    #[error("this answer cannot be changed")]
    Fixed,
    /// There is no result: the tool failed.
    #[error("the tool failed, so there is no result to change")]
    NoResult,
    /// There is no failure: the tool did it.
    #[error("the tool did it, so there is no failure to change")]
    NoFailure,
    /// The new result cannot be kept. The sentence quotes nothing of it.
    #[error("the new result cannot be kept: {0}")]
    Unfit(String),
}

// What was answered may be sensitive and must not be logged.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("is_fixed", &self.is_fixed)
            .finish_non_exhaustive()
    }
}

impl Answer {
    /// The result, JSON text; `None`: the tool failed.
    pub fn result(&self) -> Option<&str> {
        match (&self.changed, &self.outcome) {
            (Some(Words::Result(result)), _) | (_, Outcome::Applied { result, .. }) => {
                Some(result.get())
            }
            _failed => None,
        }
    }

    /// Why it failed, with sensitive values masked; `None`: it did not.
    pub fn failure(&self) -> Option<&ToolFailure> {
        match (&self.changed, &self.outcome) {
            (Some(Words::Failure(failure)), _) => Some(failure),
            (_, Outcome::Applied { .. }) => None,
            (_, failed) => failed.failure(),
        }
    }

    /// Whether it cannot be changed: it was committed with the effect of a `transaction`, answers a probe, or cannot be used.
    pub const fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// Replaces the result by another JSON text, within the tool's `output_limit`.
    ///
    /// # Errors
    ///
    /// It is left as it is.
    pub fn set_result(&mut self, json: impl AsRef<str>) -> Result<(), Unchanged> {
        let json = json.as_ref();
        if self.is_fixed {
            return Err(Unchanged::Fixed);
        } else if self.result().is_none() {
            return Err(Unchanged::NoResult);
        } else if json.len() > self.limit {
            let why = format!("it has more than {} bytes", self.limit);
            return Err(Unchanged::Unfit(why));
        }
        let read = output::json(json.as_bytes());
        let (result, _mended) = read.map_err(|why| Unchanged::Unfit(why.english().to_owned()))?;
        self.changed = Some(Words::Result(result));
        Ok(())
    }

    /// Replaces the sentence of the failure. Its code and its details stay.
    ///
    /// # Errors
    ///
    /// It is left as it is.
    pub fn set_message(&mut self, message: Message) -> Result<(), Unchanged> {
        if self.is_fixed {
            return Err(Unchanged::Fixed);
        }
        let mut failure = self.failure().ok_or(Unchanged::NoFailure)?.clone();
        failure.message = message;
        self.changed = Some(Words::Failure(failure));
        Ok(())
    }

    /// The answer of an outcome, for the tests of an interceptor.
    pub fn sample(outcome: Outcome) -> Self {
        Self::new(outcome, false, Manifest::OUTPUT_LIMIT_MAX)
    }

    /// `limit`: the most bytes of a result.
    pub(crate) fn new(outcome: Outcome, is_fixed: bool, limit: usize) -> Self {
        let is_useless = outcome.useless().is_some();
        Self {
            outcome,
            changed: None,
            is_fixed: is_fixed || is_useless,
            limit,
        }
    }

    /// Whether the hook that runs has changed it.
    pub(crate) const fn is_changed(&self) -> bool {
        self.changed.is_some()
    }

    /// The hook has returned: what it made of the answer counts, if `counts`. Whether it changed something.
    pub(crate) fn returned(&mut self, counts: bool) -> bool {
        let changed = self.changed.take().filter(|_| counts);
        match (changed, &mut self.outcome) {
            (Some(Words::Result(new)), Outcome::Applied { result, .. }) => *result = new,
            (
                Some(Words::Failure(new)),
                Outcome::NotStarted(failure)
                | Outcome::DefiniteFailure(failure)
                | Outcome::Unknown(failure),
            ) => failure.message = new.message,
            _unchanged => return false,
        }
        true
    }

    /// The outcome, with the word that it had.
    pub(crate) fn into_outcome(self) -> Outcome {
        self.outcome
    }
}

#[cfg(test)]
mod tests {
    use fleet::{outcome::OutcomeWord, wire::code::Code};

    use super::*;

    fn failure() -> ToolFailure {
        ToolFailure::new(Code::ToolError, Message::verbatim("no"))
    }

    fn applied(result: &str, flaw: Option<ToolFailure>) -> Outcome {
        let result = RawValue::from_string(result.to_owned()).unwrap();
        Outcome::Applied { result, flaw }
    }

    #[test]
    fn no_change_turns_one_outcome_into_another() {
        let outcomes = || {
            [
                applied("1", None),
                Outcome::NotStarted(failure()),
                Outcome::DefiniteFailure(failure()),
                Outcome::Unknown(failure()),
            ]
        };
        for outcome in outcomes() {
            let word = outcome.word();
            let mut answer = Answer::new(outcome, false, 10);
            let result = answer.set_result("[2]");
            let message = answer.set_message(Message::verbatim("never"));
            let is_applied = word == OutcomeWord::Applied;
            let expected = if is_applied {
                (Ok(()), Err(Unchanged::NoFailure))
            } else {
                (Err(Unchanged::NoResult), Ok(()))
            };
            assert_eq!((result, message), expected);
            assert!(answer.returned(true));
            let outcome = answer.into_outcome();
            assert_eq!(outcome.word(), word);
            let code = outcome.failure().map(|failure| failure.code);
            assert_eq!(code, (!is_applied).then_some(Code::ToolError));
        }
    }

    #[test]
    fn what_a_failing_hook_has_changed_does_not_count() {
        let mut answer = Answer::new(applied("1", None), false, 10);
        answer.set_result("2").unwrap();
        assert_eq!(answer.result(), Some("2"));
        assert!(!answer.returned(false));
        assert_eq!(answer.result(), Some("1"));
    }

    #[test]
    fn what_cannot_be_changed_or_kept_stays_as_it_is() {
        let useless = applied("null", Some(failure()));
        for (outcome, is_fixed) in [(applied("1", None), true), (useless, false)] {
            let mut answer = Answer::new(outcome, is_fixed, 10);
            assert!(answer.is_fixed());
            assert_eq!(answer.set_result("2"), Err(Unchanged::Fixed));
        }
        let mut answer = Answer::new(applied("1", None), false, 10);
        for unfit in ["", "{", "1 2", "\"0123456789\""] {
            let refused = answer.set_result(unfit);
            assert!(matches!(refused, Err(Unchanged::Unfit(_))), "{unfit}");
        }
        assert!(!answer.returned(true));
        assert_eq!(answer.result(), Some("1"));
    }
}

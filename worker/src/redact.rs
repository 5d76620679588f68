//! Masks the sensitive values of a call in messages about its failure.

use fleet::{
    manifest::Sensitive,
    outcome::{Outcome, ToolFailure},
    sensitive::masked,
};
use serde_json::Value;

/// The sensitive values of a call, for the failures of its attempt.
#[derive(Debug, Clone, Default)]
pub(crate) struct RedactedFailures {
    /// `None`: its tool names nothing as sensitive.
    hidden: Option<Vec<String>>,
}

impl RedactedFailures {
    /// Of a call with these arguments.
    pub(crate) fn of(sensitive: Option<&Sensitive>, arguments: &Value) -> Self {
        Self {
            hidden: sensitive.map(|sensitive| sensitive.texts(arguments)),
        }
    }

    /// The failure of a request that was not sent, with the values masked.
    pub(crate) fn redact_unsent(&self, failure: ToolFailure) -> ToolFailure {
        match &self.hidden {
            Some(hidden) => failure.reworded(|text| masked(text, hidden)),
            None => failure,
        }
    }

    /// The executor's outcome, with the values masked in its failure, and without what the tool printed.
    pub(crate) fn redact(&self, outcome: Outcome) -> Outcome {
        match &self.hidden {
            Some(hidden) => without_output(outcome.reworded(|text| masked(text, hidden))),
            None => outcome,
        }
    }
}

/// A program may print the answer that it was about to give, and where sensitive values stand in that is not known.
fn without_output(outcome: Outcome) -> Outcome {
    let without = |mut failure: ToolFailure| {
        if let Some(Value::Object(details)) = failure.details.as_mut() {
            details.remove("stderr");
        }
        failure
    };
    match outcome {
        Outcome::Applied { result, flaw } => Outcome::Applied {
            result,
            flaw: flaw.map(without),
        },
        Outcome::NotStarted(failure) => Outcome::NotStarted(without(failure)),
        Outcome::DefiniteFailure(failure) => Outcome::DefiniteFailure(without(failure)),
        Outcome::Unknown(failure) => Outcome::Unknown(without(failure)),
    }
}

#[cfg(test)]
mod tests {
    use fleet::{
        call::Language,
        manifest::SensitiveMode,
        wire::{code::Code, message::Message},
    };
    use serde_json::json;

    use super::*;

    fn told(failure: ToolFailure) -> ToolFailure {
        let sensitive = Sensitive {
            pointers: vec!["/card".to_owned()],
            mode: SensitiveMode::Mask,
        };
        let arguments = json!({"card": "4111-1111"});
        let redact = RedactedFailures::of(Some(&sensitive), &arguments);
        let told = redact.redact(Outcome::Unknown(failure));
        told.failure().expect("it failed").clone()
    }

    #[test]
    fn what_a_program_printed_is_not_told() {
        let failure = ToolFailure::new(Code::ToolCrashed, Message::verbatim("m"));
        let failure = failure.with_details(json!({"exit_code": 3, "stderr": "4111-1111"}));
        assert_eq!(told(failure).details, Some(json!({"exit_code": 3})));
    }

    #[test]
    fn the_tools_own_words_are_told_without_sensitive_values() {
        let said = Message::verbatim("the card 4111-1111 is blocked");
        let failure =
            ToolFailure::new(Code::ToolError, said).with_details(json!({"number": "4111-1111"}));
        let told = told(failure);
        for language in Language::ALL {
            let message = told.message.told(*language);
            assert_eq!(message, "the card [masked] is blocked");
        }
        assert_eq!(told.details, Some(json!({"number": "[masked]"})));
    }
}

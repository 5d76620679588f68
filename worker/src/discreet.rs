//! What is told of a failure must not spread the sensitive values of its call.

use fleet::{
    manifest::Sensitive,
    outcome::{Outcome, ToolFailure},
    sensitive::masked,
};
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::Value;

use crate::executors::{AttemptContext, Prepared, Returned};

/// A request whose failures are told with sensitive values masked.
pub(crate) struct Discreet {
    inner: Box<dyn Prepared>,
    hidden: Vec<String>,
}

impl Discreet {
    /// Around a request with these arguments.
    pub(crate) fn around(
        inner: Box<dyn Prepared>,
        sensitive: &Sensitive,
        arguments: &Value,
    ) -> Box<dyn Prepared> {
        Box::new(Self {
            inner,
            hidden: sensitive.texts(arguments),
        })
    }
}

impl Prepared for Discreet {
    fn run(self: Box<Self>, context: AttemptContext) -> BoxFuture<'static, Returned> {
        async move {
            let returned = self.inner.run(context).await;
            let told = |text: &str| masked(text, &self.hidden);
            let outcome = match returned.outcome.reworded(told) {
                Outcome::Applied { result, flaw } => Outcome::Applied {
                    result,
                    flaw: flaw.map(without_output),
                },
                Outcome::NotStarted(failure) => Outcome::NotStarted(without_output(failure)),
                Outcome::DefiniteFailure(failure) => {
                    Outcome::DefiniteFailure(without_output(failure))
                }
                Outcome::Unknown(failure) => Outcome::Unknown(without_output(failure)),
            };
            Returned {
                outcome,
                ..returned
            }
        }
        .boxed()
    }
}

/// A program may print for people what it was about to answer; nobody knows where in it sensitive values stand.
fn without_output(mut failure: ToolFailure) -> ToolFailure {
    if let Some(Value::Object(details)) = failure.details.as_mut() {
        details.remove("stderr");
    }
    failure
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

    #[test]
    fn a_failure_keeps_its_facts_and_loses_what_was_printed() {
        let failure = ToolFailure::new(Code::ToolCrashed, Message::verbatim("m"));
        let failure = failure.with_details(json!({"exit_code": 3, "stderr": "4111-1111"}));
        assert_eq!(
            without_output(failure).details,
            Some(json!({"exit_code": 3}))
        );
    }

    #[test]
    fn the_tools_own_words_are_told_without_sensitive_values() {
        let sensitive = Sensitive {
            pointers: vec!["/card".to_owned()],
            mode: SensitiveMode::Mask,
        };
        let hidden = sensitive.texts(&json!({"card": "4111-1111"}));
        let said = Message::verbatim("the card 4111-1111 is blocked");
        let failure =
            ToolFailure::new(Code::ToolError, said).with_details(json!({"number": "4111-1111"}));
        let told = failure.reworded(|text| masked(text, &hidden));
        for language in Language::ALL {
            let message = told.message.told(*language);
            assert_eq!(message, "the card [masked] is blocked");
        }
        assert_eq!(told.details, Some(json!({"number": "[masked]"})));
    }
}

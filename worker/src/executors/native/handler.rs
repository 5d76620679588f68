//! A tool without its types: JSON in, an outcome out.

use std::{
    io::{self, Write},
    sync::Arc,
};

use fleet::{
    outcome::{Outcome, ToolFailure},
    said,
    wire::{code::Code, message::Message},
};
use futures_util::{FutureExt, future::BoxFuture};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use super::numbers;
use crate::{
    executors::output,
    tool::{Tool, ToolContext},
};

/// A tool without its types.
pub(super) trait Handler: Send + Sync {
    /// Reads the arguments, runs the tool, writes its result.
    fn call(
        self: Arc<Self>,
        arguments: Value,
        output_limit: usize,
        context: ToolContext,
    ) -> BoxFuture<'static, Outcome>;
}

/// A tool with its types.
pub(super) struct Typed<T>(pub(super) T);

impl<T: Tool> Handler for Typed<T> {
    fn call(
        self: Arc<Self>,
        mut arguments: Value,
        output_limit: usize,
        context: ToolContext,
    ) -> BoxFuture<'static, Outcome> {
        async move {
            numbers::whole(&mut arguments);
            let args = match serde_json::from_value(arguments) {
                Ok(args) => args,
                Err(error) => return Outcome::DefiniteFailure(misread(&error.to_string())),
            };
            match self.0.call(args, context).await {
                Ok(output) => answered(&output, output_limit),
                Err(error) => error.outcome(),
            }
        }
        .boxed()
    }
}

/// The failure for arguments that fit the tool's schema and not its type. Nothing was started, and nothing would be the next
/// time.
fn misread(error: &str) -> ToolFailure {
    let message = Message::fixed(
        "the tool's type does not take arguments that its schema allows",
        "工具的类型不接受它的模式所允许的参数",
    );
    let message = match without_values(error) {
        Some(why) => said!("{message}: {why}", "{message}：{why}", message),
        None => message,
    };
    ToolFailure::new(Code::ToolGone, message)
}

/// The error of serde without the values that it quotes; `None` where they cannot be told apart.
fn without_values(error: &str) -> Option<&str> {
    if error.starts_with("invalid type: ") || error.starts_with("invalid value: ") {
        return error.rfind("expected ").map(|at| &error[at..]);
    }
    error.starts_with("missing field ").then_some(error)
}

/// The tool did it; whether its result can be used is another question.
fn answered(result: &impl Serialize, limit: usize) -> Outcome {
    let (result, flaw) = written(result, limit);
    Outcome::Applied { result, flaw }
}

fn written(result: &impl Serialize, limit: usize) -> (Box<RawValue>, Option<ToolFailure>) {
    let mut bounded = Bounded {
        bytes: Vec::new(),
        limit,
        full: false,
    };
    let written = serde_json::to_writer(&mut bounded, result);
    if bounded.full {
        let message = Message::fixed(
            "the tool's result is larger than its output_limit allows",
            "工具的结果超过了它的 output_limit",
        );
        let flaw = ToolFailure::new(Code::OutputTooLarge, message);
        return (output::beginning(&bounded.bytes, limit), Some(flaw));
    }
    // The error's own message could quote the result.
    let written = written.map_err(|_quotes| Message::fixed("it is not JSON", "它不是 JSON"));
    match written.and_then(|()| output::json(&bounded.bytes)) {
        Ok(answer) => answer,
        Err(why) => {
            let message = said!(
                "the tool's result cannot be used: {why}",
                "工具的结果无法使用：{why}",
                why
            );
            let flaw = ToolFailure::new(Code::OutputInvalid, message);
            (RawValue::NULL.to_owned(), Some(flaw))
        }
    }
}

/// A writer that takes at most the bytes that a result may have.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
    full: bool,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.limit - self.bytes.len();
        if bytes.len() > room {
            self.bytes.extend_from_slice(&bytes[..room]);
            self.full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_misfit_of_type_and_schema_is_told_without_the_value() {
        let error = serde_json::from_value::<u8>(json!("secret, expected x")).unwrap_err();
        let told = misread(&error.to_string()).message.to_string();
        assert!(told.ends_with("expected u8"), "{told}");
        assert!(!told.contains("secret"), "{told}");
        let quoted = misread("a secret is not allowed here").message.to_string();
        assert!(!quoted.contains("secret"), "{quoted}");
        let missing = misread("missing field `city`").message.to_string();
        assert!(missing.ends_with("missing field `city`"), "{missing}");
    }

    #[test]
    fn a_result_is_bounded_and_can_be_stored() {
        let flaw = |result: &Value, limit| match answered(result, limit) {
            Outcome::Applied { result, flaw } => (result.get().to_owned(), flaw.map(|f| f.code)),
            other => panic!("{other:?}"),
        };
        assert_eq!(flaw(&json!("ab"), 4), ("\"ab\"".to_owned(), None));
        let large = ("\"\\\"abc… [cut]\"".to_owned(), Some(Code::OutputTooLarge));
        assert_eq!(flaw(&json!("abc"), 4), large);
        assert_eq!(flaw(&json!("a\0"), 99).0, r#""a\ufffd""#);
        let keys = BTreeMap::from([(vec![1], 1)]);
        let Outcome::Applied { flaw, .. } = answered(&keys, 99) else {
            panic!("it was done");
        };
        assert_eq!(flaw.unwrap().code, Code::OutputInvalid);
    }
}

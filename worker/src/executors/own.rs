//! Reads the `spec` of a tool whose kind is the program's own.

use fleet::{
    manifest::{ExecutorSpec, Manifest},
    outcome::ToolFailure,
    said,
    wire::{code::Code, message::Message},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The `spec` of a tool of the program's own kind, read as a type.
///
/// For [`check`](super::Executor::check) and [`prepare`](super::Executor::prepare). With `#[serde(deny_unknown_fields)]` on the
/// type, an unknown field is refused.
///
/// # Errors
///
/// The manifest is not of such a kind, or its `spec` does not fit the type: `unavailable`, for a worker with another version of
/// the executor may accept it. The message quotes no value.
pub fn own_spec<T: DeserializeOwned>(manifest: &Manifest) -> Result<T, ToolFailure> {
    let ExecutorSpec::Own(own) = &manifest.executor else {
        let what = Message::fixed(
            "this version of the tool is not of a kind of one's own",
            "工具的这个版本不使用自定义的执行器类型",
        );
        return Err(ToolFailure::new(Code::ToolGone, what));
    };
    serde_json::from_value(Value::Object(own.spec.clone())).map_err(|error| {
        let kind = &own.kind;
        let why = without_values(&error.to_string());
        let what = said!(
            "the executor {kind} of this worker does not take the spec of the tool: {why}",
            "这个 worker 的执行器 {kind} 不接受工具的 spec：{why}"
        );
        ToolFailure::new(Code::Unavailable, what)
    })
}

/// The error of serde without the values that it quotes.
fn without_values(error: &str) -> String {
    let names_fields = ["missing field ", "unknown field "];
    if names_fields.iter().any(|begin| error.starts_with(begin)) {
        return error.to_owned();
    }
    match error.rfind("expected ") {
        Some(at) => error[at..].to_owned(),
        None => "a field has another form".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Spec {
        file: String,
    }

    fn read(executor: &Value) -> Result<Spec, ToolFailure> {
        let manifest = json!({
            "name": "t", "version": 1, "description": "d", "effect": "read",
            "input_schema": {"type": "object"}, "executor": executor,
        });
        own_spec(&serde_json::from_value(manifest).unwrap())
    }

    #[test]
    fn a_spec_is_read_as_a_type_and_a_misfit_is_told_without_its_values() {
        let of = |spec: Value| read(&json!({"own": {"kind": "journal", "spec": spec}}));
        assert_eq!(of(json!({"file": "a"})).unwrap().file, "a");
        for (spec, told) in [
            (json!({}), "missing field `file`"),
            (json!({"file": "a", "mode": 1}), "unknown field `mode`"),
            (json!({"file": 4111}), "expected a string"),
        ] {
            let failure = of(spec).unwrap_err();
            assert_eq!(failure.code, Code::Unavailable);
            let message = failure.message.english();
            assert!(message.contains(told), "{message}");
            assert!(!message.contains("4111"), "{message}");
        }
        let other = read(&json!({"native": {"handler": "h"}})).unwrap_err();
        assert_eq!(other.code, Code::ToolGone);
    }
}

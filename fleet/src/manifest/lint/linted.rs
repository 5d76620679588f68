//! The parts of a manifest that the lint reads.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    call::Effect,
    manifest::{Sandbox, executor::ExecutorSpec, policy::KeyPolicy, version::Manifest},
};

/// The parts that the lint reads; `None` where one cannot be read.
pub(super) struct Linted<'a> {
    pub(super) name: &'a str,
    pub(super) description: Option<&'a str>,
    pub(super) effect: Option<Effect>,
    pub(super) key: Option<KeyPolicy>,
    /// Whether it has a probe without a condition for "not applied".
    pub(super) is_half_probed: bool,
    /// The argument that the fleet fills with the key.
    pub(super) key_argument: Option<&'a str>,
    /// Whether it is a statement without an expected number of rows.
    pub(super) takes_any_rows: bool,
    /// Whether its secrets are left in what it answers.
    pub(super) shows_secrets: bool,
    /// The argument whose values have start times of their own, a JSON pointer.
    pub(super) rate_pointer: Option<&'a str>,
    /// Whether every call of it waits for somebody's yes.
    pub(super) always_waits: bool,
    /// The arguments by which it is judged which calls do, JSON pointers.
    pub(super) condition_pointers: Vec<&'a str>,
    /// Whether its arguments are a request to a model, whose names are the vendor's.
    pub(super) asks_a_model: bool,
    /// Of a program: what keeps it in.
    pub(super) program: Option<LintedProgram>,
    pub(super) input_schema: &'a Value,
    /// Clients that show it to a model get it with the definition.
    pub(super) output_schema: Option<&'a Value>,
}

/// The parts of a program's manifest that the lint reads.
pub(super) struct LintedProgram {
    /// `None` also where it cannot be read.
    pub(super) sandbox: Option<Sandbox>,
    pub(super) timeout: Option<Duration>,
}

impl<'a> Linted<'a> {
    pub(super) fn of(manifest: &'a Manifest) -> Self {
        let probe = manifest.probe.as_ref();
        let idempotency = manifest.idempotency.as_ref();
        let takes_any_rows =
            matches!(&manifest.executor, ExecutorSpec::Sql(spec) if spec.rows.is_none());
        Self {
            name: manifest.name.as_str(),
            description: Some(&manifest.description),
            effect: Some(manifest.effect),
            key: Some(manifest.key_policy()),
            is_half_probed: probe.is_some_and(|probe| probe.not_applied_when.is_none()),
            key_argument: idempotency.and_then(|how| how.argument.as_deref()),
            takes_any_rows,
            shows_secrets: !manifest.redact_results,
            rate_pointer: manifest.rate_pointer(),
            always_waits: manifest
                .approval
                .as_ref()
                .is_some_and(|approval| approval.when.is_empty()),
            condition_pointers: manifest
                .approval
                .iter()
                .flat_map(|approval| &approval.when)
                .map(|when| when.pointer.as_str())
                .collect(),
            asks_a_model: matches!(manifest.executor, ExecutorSpec::Chat(_)),
            program: matches!(manifest.executor, ExecutorSpec::Process(_)).then(|| LintedProgram {
                sandbox: manifest.sandbox.clone(),
                timeout: Some(manifest.timeout.longest()),
            }),
            input_schema: &manifest.input_schema,
            output_schema: manifest.output_schema.as_ref(),
        }
    }

    /// Of a manifest with problems, as far as it can be read.
    pub(super) fn of_value(value: &'a Value) -> Self {
        let word = |name: &str| value.get(name).and_then(Value::as_str);
        let probe = value.get("probe").and_then(Value::as_object);
        Self {
            name: word("name").unwrap_or_default(),
            description: word("description"),
            effect: field(value, "effect"),
            key: field(value, "key"),
            is_half_probed: probe.is_some_and(|probe| !probe.contains_key("not_applied_when")),
            key_argument: value
                .pointer("/idempotency/argument")
                .and_then(Value::as_str),
            takes_any_rows: value
                .pointer("/executor/sql")
                .is_some_and(|sql| sql.get("rows").is_none()),
            shows_secrets: value.get("redact_results") == Some(&Value::Bool(false)),
            rate_pointer: value
                .pointer("/rate_limit/by")
                .and_then(Value::as_str)
                .filter(|by| by.starts_with('/')),
            always_waits: value
                .get("approval")
                .is_some_and(|approval| approval.get("when").is_none()),
            condition_pointers: value
                .pointer("/approval/when")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(|when| {
                    when.get("pointer")
                        .and_then(Value::as_str)
                        .unwrap_or_default()
                })
                .collect(),
            asks_a_model: value.pointer("/executor/chat").is_some(),
            // One with a problem in its sandbox is told of that.
            program: (value.pointer("/executor/process").is_some()
                && value.get("sandbox").is_none())
            .then_some(LintedProgram {
                sandbox: None,
                timeout: None,
            }),
            input_schema: value.get("input_schema").unwrap_or(&Value::Null),
            output_schema: value.get("output_schema"),
        }
    }

    pub(super) fn writes(&self) -> bool {
        self.effect.is_some_and(|effect| effect != Effect::Read)
    }
}

fn field<T: DeserializeOwned>(value: &Value, name: &str) -> Option<T> {
    let field = value.get(name)?.clone();
    // An unreadable field is reported as one of the problems.
    serde_json::from_value(field).ok()
}

//! The manifest of a tool, derived from its type.

use fleet::manifest::{self, Manifest, ManifestProblem};
use serde_json::{Value, json};

use super::{Tool, schema};

/// The manifest of a tool, checked like one that an operator wrote.
///
/// # Errors
///
/// Everything that is wrong with it.
pub(crate) fn manifest<T: Tool>(tool: &T) -> Result<Manifest, Vec<ManifestProblem>> {
    let settings = tool.settings();
    let mut fields = settings.fields;
    // A default of the worker may be overridden by the settings, but not a field that the type defines.
    fields.entry("queue").or_insert_with(|| T::NAME.into());
    fields.insert("name".to_owned(), T::NAME.into());
    fields.insert("version".to_owned(), T::VERSION.into());
    fields.insert("effect".to_owned(), T::EFFECT.as_str().into());
    fields.insert("description".to_owned(), T::DESCRIPTION.into());
    fields.insert("input_schema".to_owned(), schema::of_args::<T::Args>());
    if !settings.without_output_schema {
        fields.insert("output_schema".to_owned(), schema::of_output::<T::Output>());
    }
    let handler = json!({ "native": { "handler": handler::<T>() } });
    fields.insert("executor".to_owned(), handler);
    manifest::parse(&Value::Object(fields).to_string())
}

/// The name under which calls find the tool. It has the version, for a call stays with the version it was accepted with.
pub(crate) fn handler<T: Tool>() -> String {
    format!("{}.v{}", T::NAME, T::VERSION)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use fleet::{call::Effect, manifest::lint};
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::tool::{Settings, ToolContext, ToolError};

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Args {
        /// How many there are.
        count: u32,
        /// How much of it, if anything.
        #[schemars(range(min = 0.0, max = 1.0))]
        share: Option<f64>,
        /// What it is about.
        subject: Subject,
        /// Whatever else is known.
        tags: BTreeMap<String, String>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "type", rename_all = "snake_case")]
    #[expect(dead_code, reason = "only its schema is looked at")]
    enum Subject {
        City {
            /// What it is called, such as Rome.
            #[schemars(length(min = 1))]
            name: String,
        },
        Country {
            /// Two letters, such as IT.
            #[schemars(length(min = 2))]
            code: String,
        },
    }

    #[derive(Serialize, JsonSchema)]
    struct Output {
        total: u64,
    }

    struct Example;

    impl Tool for Example {
        type Args = Args;
        type Output = Output;
        const NAME: &'static str = "example";
        const VERSION: i32 = 3;
        const EFFECT: Effect = Effect::Idempotent;
        const DESCRIPTION: &'static str = "Shows what becomes of a type in a manifest.";

        fn settings(&self) -> Settings {
            Settings::default().timeout(Duration::from_millis(1_500))
        }

        async fn call(&self, _: Args, _: ToolContext) -> Result<Output, ToolError> {
            Ok(Output { total: 0 })
        }
    }

    #[test]
    fn a_type_becomes_a_manifest_that_nothing_can_be_said_against() {
        let manifest = manifest(&Example).unwrap();
        assert_eq!(lint(&manifest), []);
        assert_eq!(manifest.queue.as_str(), "example");
        assert_eq!(manifest.timeout.longest(), Duration::from_millis(1_500));
        let schema = fleet::arguments::Schema::compile_input(&manifest.input_schema).unwrap();
        let good =
            json!({"count": 1, "subject": {"type": "city", "name": "Rome"}, "tags": {"a": "b"}});
        assert!(schema.validate(&good).is_empty());
        for wrong in [
            json!({"count": 4294967296_u64, "subject": {"type": "city", "name": "x"}, "tags": {}}),
            json!({"count": -1, "subject": {"type": "city", "name": "x"}, "tags": {}}),
            json!({"count": 1, "subject": {"type": "city", "name": "x"}, "tags": {}, "other": 1}),
            json!({"count": 1, "subject": {"type": "city", "name": "x", "other": 1}, "tags": {}}),
            json!({"count": 1, "subject": {"type": "planet"}, "tags": {}}),
        ] {
            assert!(!schema.is_valid(&wrong), "{wrong}");
        }
    }

    struct NotAnObject;

    impl Tool for NotAnObject {
        type Args = Vec<String>;
        type Output = ();
        const NAME: &'static str = "Not a name";
        const VERSION: i32 = 1;
        const EFFECT: Effect = Effect::Read;
        const DESCRIPTION: &'static str = "Shows what is refused.";

        async fn call(&self, _: Vec<String>, _: ToolContext) -> Result<(), ToolError> {
            Ok(())
        }
    }

    #[test]
    fn what_cannot_be_a_tool_is_told_apart_at_the_start() {
        let problems = manifest(&NotAnObject).unwrap_err();
        assert!(
            problems.iter().any(|problem| problem.path == "/name"),
            "{problems:?}"
        );
    }
}

//! What the fixtures are made of: answers, forms, and what the client has answered.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use worker::{ToolContext, ToolError};

/// A tool without arguments.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Nothing {}

pub(crate) fn text(text: impl AsRef<str>) -> Value {
    json!({ "type": "text", "text": text.as_ref() })
}

pub(crate) fn said(said: impl AsRef<str>) -> Result<Value, ToolError> {
    Ok(blocks(json!([text(said)])))
}

pub(crate) fn blocks(blocks: Value) -> Value {
    json!({ "content": blocks })
}

/// A form of fields.
pub(crate) fn form(message: &str, fields: Value) -> Value {
    let required: Vec<&String> = fields
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name)
        .collect();
    json!({
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": message,
            "requestedSchema": { "type": "object", "properties": fields, "required": required },
        },
    })
}

pub(crate) fn name_form() -> Value {
    form(
        "What is your name?",
        json!({ "name": { "type": "string" } }),
    )
}

pub(crate) fn sampling(prompt: &str) -> Value {
    let messages = json!([{ "role": "user", "content": text(prompt) }]);
    json!({ "method": "sampling/createMessage", "params": { "messages": messages, "maxTokens": 100 } })
}

pub(crate) fn roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}

/// What the client has answered to a question, once it has.
pub(crate) fn answered(told: &ToolContext, name: &str) -> Result<Option<Value>, ToolError> {
    let input = told.input::<Value>()?.unwrap_or_default();
    let answer = &input["inputResponses"][name];
    Ok(answer.is_object().then(|| answer.clone()))
}

/// Asks the client.
pub(crate) fn needs(requests: Value, state: Option<Value>) -> ToolError {
    ToolError::needs(json!({ "inputRequests": requests }), state)
}

/// A tool whose answer is one of blocks.
macro_rules! fixture {
    ($type:ident, $name:literal, $args:ty, $what:literal, |$args_name:pat_param, $told:ident| $body:block) => {
        fixture!(
            $type,
            $name,
            $args,
            $what,
            Settings::default(),
            |$args_name, $told| $body
        );
    };
    ($type:ident, $name:literal, $args:ty, $what:literal, $settings:expr, |$args_name:pat_param, $told:ident| $body:block) => {
        pub(crate) struct $type;

        impl Tool for $type {
            type Args = $args;
            type Output = Value;
            const NAME: &'static str = $name;
            const VERSION: i32 = 1;
            const EFFECT: Effect = Effect::Read;
            const DESCRIPTION: &'static str = $what;

            fn settings(&self) -> Settings {
                $settings.content().queue("mcp")
            }

            async fn call(
                &self,
                $args_name: $args,
                $told: ToolContext,
            ) -> Result<Value, ToolError> $body
        }
    };
}

pub(crate) use fixture;

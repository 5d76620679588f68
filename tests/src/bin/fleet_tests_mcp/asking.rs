//! Tools that ask the client.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use worker::{Effect, Tool, ToolContext, ToolError, tool::Settings};

use crate::fixture::{Nothing, answered, fixture, form, name_form, needs, roots, said, sampling};

/// Of `test_sampling`.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Sampled {
    /// What a model is asked.
    prompt: String,
}

/// Of `test_elicitation`.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Elicited {
    /// What a person is asked.
    message: String,
}

fixture!(
    StreamingElicitation,
    "test_streaming_elicitation",
    Nothing,
    "Reports its progress, then asks for a name.",
    |_, told| {
        told.progress(0.5, "about to ask");
        match answered(&told, "user_name")? {
            None => Err(needs(json!({ "user_name": name_form() }), None)),
            Some(_) => said("Streaming elicitation complete"),
        }
    }
);
fixture!(
    MissingCapability,
    "test_missing_capability",
    Nothing,
    "Asks a model of the client.",
    |_, told| {
        match answered(&told, "greeting")? {
            None => Err(needs(
                json!({ "greeting": sampling("Generate a greeting") }),
                None,
            )),
            Some(_) => said("Sampling complete"),
        }
    }
);
fixture!(
    Sampling,
    "test_sampling",
    Sampled,
    "Asks a model of the client.",
    |Sampled { prompt }, told| {
        match answered(&told, "sampling")? {
            None => Err(needs(json!({ "sampling": sampling(&prompt) }), None)),
            Some(answer) => {
                let answer = answer["content"]["text"].as_str().unwrap_or_default();
                said(format!("LLM response: {answer}"))
            }
        }
    }
);
fixture!(
    Elicitation,
    "test_elicitation",
    Elicited,
    "Asks a person.",
    |Elicited { message }, told| {
        let fields = json!({
            "username": { "type": "string", "description": "User's response" },
            "email": { "type": "string", "description": "User's email address" },
        });
        match answered(&told, "user")? {
            None => Err(needs(json!({ "user": form(&message, fields) }), None)),
            Some(answer) => said(format!("User response: {answer}")),
        }
    }
);
fixture!(
    ElicitationDefaults,
    "test_elicitation_sep1034_defaults",
    Nothing,
    "Asks with defaults.",
    |_, told| {
        let fields = json!({
            "name": { "type": "string", "default": "John Doe" },
            "age": { "type": "integer", "default": 30 },
            "score": { "type": "number", "default": 95.5 },
            "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
            "verified": { "type": "boolean", "default": true },
        });
        elicited(
            &told,
            form(
                "Please review and update the form fields with defaults",
                fields,
            ),
        )
    }
);
fixture!(
    ElicitationEnums,
    "test_elicitation_sep1330_enums",
    Nothing,
    "Asks with choices.",
    |_, told| {
        let titled = |first: &str, titles: [&str; 3]| {
            let choice =
                |n: usize| json!({ "const": format!("value{}", n + 1), "title": titles[n] });
            (first.to_owned(), [choice(0), choice(1), choice(2)])
        };
        let (one, choices) = titled("oneOf", ["First Option", "Second Option", "Third Option"]);
        let (any, several) = titled("anyOf", ["First Choice", "Second Choice", "Third Choice"]);
        let fields = json!({
            "untitledSingle": { "type": "string", "enum": ["option1", "option2", "option3"] },
            "titledSingle": { "type": "string", one: choices },
            "legacyEnum": { "type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"] },
            "untitledMulti": { "type": "array", "items": { "type": "string", "enum": ["option1", "option2", "option3"] } },
            "titledMulti": { "type": "array", "items": { any: several } },
        });
        elicited(&told, form("Please choose", fields))
    }
);

fn elicited(told: &ToolContext, form: Value) -> Result<Value, ToolError> {
    match answered(told, "form")? {
        None => Err(needs(json!({ "form": form }), None)),
        Some(answer) => said(format!(
            "Elicitation completed: action={}, content={}",
            answer["action"].as_str().unwrap_or_default(),
            answer["content"]
        )),
    }
}

fixture!(
    AsksElicitation,
    "test_input_required_result_elicitation",
    Nothing,
    "Asks for a name.",
    |_, told| {
        match answered(&told, "user_name")? {
            None => Err(needs(json!({ "user_name": name_form() }), None)),
            Some(answer) => {
                let name = answer["content"]["name"].as_str().unwrap_or("friend");
                said(format!("Hello, {name}!"))
            }
        }
    }
);
fixture!(
    AsksSampling,
    "test_input_required_result_sampling",
    Nothing,
    "Asks a model of the client.",
    |_, told| {
        match answered(&told, "capital_question")? {
            None => Err(needs(
                json!({ "capital_question": sampling("What is the capital of France?") }),
                None,
            )),
            Some(answer) => {
                let answer = answer["content"]["text"].as_str().unwrap_or_default();
                said(format!("Sampling response: {answer}"))
            }
        }
    }
);
fixture!(
    AsksRoots,
    "test_input_required_result_list_roots",
    Nothing,
    "Asks for the client's folders.",
    |_, told| {
        match answered(&told, "client_roots")? {
            None => Err(needs(json!({ "client_roots": roots() }), None)),
            Some(answer) => said(format!("Client roots: {}", answer["roots"])),
        }
    }
);
fixture!(
    AsksWithState,
    "test_input_required_result_request_state",
    Nothing,
    "Asks, and keeps a state.",
    |_, told| { with_state(&told) }
);
fixture!(
    AsksTampered,
    "test_input_required_result_tampered_state",
    Nothing,
    "Asks, and keeps a state.",
    |_, told| { with_state(&told) }
);

fn with_state(told: &ToolContext) -> Result<Value, ToolError> {
    let kept = told.state::<String>()?;
    match (answered(told, "confirm")?, kept.as_deref()) {
        (Some(_), Some("confirm")) => said("Confirmed: state-ok"),
        _ => {
            let form = form("Please confirm", json!({ "ok": { "type": "boolean" } }));
            Err(needs(json!({ "confirm": form }), Some(json!("confirm"))))
        }
    }
}

fixture!(
    AsksMuch,
    "test_input_required_result_multiple_inputs",
    Nothing,
    "Asks several things at once.",
    |_, told| {
        let names = ["user_name", "greeting", "client_roots"];
        for name in names {
            if answered(&told, name)?.is_none() {
                let requests = json!({
                    "user_name": name_form(),
                    "greeting": sampling("Generate a greeting"),
                    "client_roots": roots(),
                });
                return Err(needs(requests, None));
            }
        }
        said("All inputs received")
    }
);
fixture!(
    AsksRounds,
    "test_input_required_result_multi_round",
    Nothing,
    "Asks one thing after the other.",
    |_, told| {
        let round = told.state::<u32>()?.unwrap_or(0);
        match round {
            0 => {
                let form = form(
                    "Step 1: What is your name?",
                    json!({ "name": { "type": "string" } }),
                );
                Err(needs(json!({ "step1": form }), Some(json!(1))))
            }
            1 => {
                let form = form(
                    "Step 2: What is your favorite color?",
                    json!({ "color": { "type": "string" } }),
                );
                Err(needs(json!({ "step2": form }), Some(json!(2))))
            }
            _ => said("Multi-round flow complete"),
        }
    }
);
fixture!(
    AsksByCapabilities,
    "test_input_required_result_capabilities",
    Nothing,
    "Asks what the client can answer.",
    |_, told| {
        if told.input::<Value>()?.is_some() {
            return said("Capability-aware flow complete");
        }
        let requests = json!({
            "user_name": name_form(),
            "greeting": sampling("Generate a greeting"),
            "client_roots": roots(),
        });
        Err(needs(requests, None))
    }
);

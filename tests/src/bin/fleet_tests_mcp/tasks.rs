//! Tools that are tasks for the clients that know of tasks.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::sleep;
use worker::{Effect, Tool, ToolContext, ToolError, tool::Settings};

use crate::fixture::{Nothing, answered, fixture, form, name_form, needs, said};

/// Of `greet`.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Whom {
    /// Whom to greet, such as Ada.
    name: String,
}

/// Of `slow_compute`.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Work {
    /// For how long.
    seconds: Option<f64>,
    /// What it is called.
    label: Option<String>,
}

/// Of `confirm_delete`.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Deleted {
    /// Which file.
    filename: Option<String>,
}

fixture!(Greet, "greet", Whom, "Greets.", |Whom { name }, _told| {
    said(format!("Hello, {name}!"))
});
fixture!(
    SlowCompute,
    "slow_compute",
    Work,
    "Takes its time.",
    as_task("preferred"),
    |Work { seconds, label }, told| {
        let seconds = seconds.unwrap_or(1.0);
        tokio::select! {
            () = sleep(Duration::from_secs_f64(seconds)) => {}
            () = told.cancelled() => return Err(ToolError::unknown("it was taken back")),
        }
        said(format!(
            "slow_compute({}) done after {seconds}s",
            label.as_deref().unwrap_or("compute")
        ))
    }
);
fixture!(
    FailingJob,
    "failing_job",
    Nothing,
    "Fails after a while.",
    as_task("required"),
    |_, _told| {
        sleep(Duration::from_secs(1)).await;
        Err(ToolError::business(
            "failing_job: intentional tool execution error",
        ))
    }
);
fixture!(
    ConfirmDelete,
    "confirm_delete",
    Deleted,
    "Asks before it deletes.",
    as_task("preferred"),
    |Deleted { filename }, told| {
        let filename = filename.as_deref().unwrap_or("file.txt");
        match answered(&told, "confirm")? {
            None => {
                let form = form(
                    &format!("Delete {filename}?"),
                    json!({ "confirm": { "type": "boolean" } }),
                );
                Err(needs(json!({ "confirm": form }), None))
            }
            Some(answer) => said(format!(
                "confirm_delete({filename}): confirmed = {}",
                answer["content"]["confirm"]
            )),
        }
    }
);
fixture!(
    MultiInput,
    "multi_input",
    Nothing,
    "Asks two things at once.",
    as_task("preferred"),
    |_, told| {
        // What was answered before, where a client answers one by one.
        let mut known = told.state::<BTreeMap<String, Value>>()?.unwrap_or_default();
        let mut requests = serde_json::Map::new();
        for name in ["input-a", "input-b"] {
            if let Some(answer) = answered(&told, name)? {
                known.insert(name.to_owned(), answer["content"]["value"].clone());
            }
            if !known.contains_key(name) {
                let value = json!({ "value": { "type": "string" } });
                requests.insert(name.to_owned(), form(&format!("Provide {name}"), value));
            }
        }
        if requests.is_empty() {
            said(format!("multi_input: {}", json!(known)))
        } else {
            Err(needs(Value::Object(requests), Some(json!(known))))
        }
    }
);
fixture!(
    AsksThenTask,
    "test_tool_with_task",
    Nothing,
    "Asks, then works for longer than a client waits.",
    Settings::default(),
    |_, told| {
        match answered(&told, "user_name")? {
            None => Err(needs(json!({ "user_name": name_form() }), None)),
            Some(answer) => {
                sleep(Duration::from_secs(3)).await;
                said(format!(
                    "Hello, {}! (async)",
                    answer["content"]["name"].as_str().unwrap_or("friend")
                ))
            }
        }
    }
);

/// A tool that is a task for the clients that know of tasks.
fn as_task(how: &str) -> Settings {
    Settings::default().field("mcp", json!({ "task": how }))
}

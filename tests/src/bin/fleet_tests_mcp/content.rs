//! Tools that answer at once.

use std::{
    process::Command,
    sync::atomic::{AtomicI32, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::sleep;
use worker::{Effect, Part, Tool, ToolContext, ToolError, tool::Settings};

use crate::fixture::{Nothing, blocks, fixture, said, text};

/// A PNG of one red pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// A WAV file without a sample.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";
/// How long the suite lets a tool pause between two notifications.
const PAUSE: Duration = Duration::from_millis(50);

fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

fn resource(uri: &str, mime: &str, text: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime, "text": text } })
}

fixture!(
    SimpleText,
    "test_simple_text",
    Nothing,
    "Says a simple text.",
    |_, _told| { said("This is a simple text response for testing.") }
);
fixture!(
    ImageContent,
    "test_image_content",
    Nothing,
    "Shows an image.",
    |_, _told| { Ok(blocks(json!([image()]))) }
);
fixture!(
    AudioContent,
    "test_audio_content",
    Nothing,
    "Plays a sound.",
    |_, _told| {
        Ok(blocks(
            json!([{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }]),
        ))
    }
);
fixture!(
    EmbeddedResource,
    "test_embedded_resource",
    Nothing,
    "Embeds a resource.",
    |_, _told| {
        let text = "This is an embedded resource content.";
        Ok(blocks(json!([resource(
            "test://embedded-resource",
            "text/plain",
            text
        )])))
    }
);
fixture!(
    MixedContent,
    "test_multiple_content_types",
    Nothing,
    "Answers with blocks of several kinds.",
    |_, _told| {
        let data = json!({ "test": "data", "value": 123 }).to_string();
        let mixed = resource("test://mixed-content-resource", "application/json", &data);
        Ok(blocks(json!([
            text("Multiple content types test:"),
            image(),
            mixed
        ])))
    }
);
fixture!(
    ErrorHandling,
    "test_error_handling",
    Nothing,
    "Always fails.",
    |_, _told| {
        Err(ToolError::business(
            "This tool intentionally returns an error for testing",
        ))
    }
);
fixture!(
    WithLogging,
    "test_tool_with_logging",
    Nothing,
    "Says what it does.",
    |_, told| {
        told.output(Part::Step("Tool execution started".to_owned()));
        sleep(PAUSE).await;
        told.output(Part::Step("Tool processing data".to_owned()));
        sleep(PAUSE).await;
        told.output(Part::Step("Tool execution completed".to_owned()));
        said("Tool with logging executed successfully")
    }
);
fixture!(
    Logging,
    "test_logging_tool",
    Nothing,
    "Says what it does.",
    |_, told| {
        told.output(Part::Step("test_logging_tool invoked".to_owned()));
        said("Logging tool executed")
    }
);
fixture!(
    WithProgress,
    "test_tool_with_progress",
    Nothing,
    "Reports its progress.",
    |_, told| {
        for fraction in [0.0, 0.5, 1.0] {
            told.progress(fraction, "working");
            // No more than ten reports a second are sent on.
            sleep(Duration::from_millis(150)).await;
        }
        said("Tool with progress executed successfully")
    }
);
fixture!(
    TriggerToolChange,
    "test_trigger_tool_change",
    Nothing,
    "Applies another tool.",
    |_, told| {
        told.blocking(apply_another).await??;
        said("Tool list changed")
    }
);
/// Applies another version of a tool, as an operator does.
fn apply_another() -> Result<(), std::io::Error> {
    static APPLIED: AtomicI32 = AtomicI32::new(0);
    let version = APPLIED.fetch_add(1, Ordering::Relaxed) + 1;
    let manifest = json!({
        "name": "test_changing", "version": version, "effect": "read",
        "description": format!("Is applied again and again: {version}."),
        "input_schema": { "type": "object", "properties": {}, "additionalProperties": false },
        "executor": { "process": { "command": ["/bin/true"] } },
    });
    let path = std::env::temp_dir().join(format!("test_changing-{}.yaml", std::process::id()));
    std::fs::write(&path, manifest.to_string())?;
    let program = std::env::var_os("TOOLFLEET_PROGRAM").ok_or(std::io::ErrorKind::NotFound)?;
    let applied = Command::new(program)
        .args(["tools", "apply"])
        .arg(&path)
        .output();
    std::fs::remove_file(&path)?;
    if applied?.status.success() {
        Ok(())
    } else {
        Err(std::io::Error::other("the tool was not applied"))
    }
}

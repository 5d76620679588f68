//! The forms of a `.yaml` of the folder.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// What a `.yaml` of the folder says.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ContentDocument {
    #[serde(default)]
    pub(super) resources: Vec<WrittenResource>,
    #[serde(default)]
    pub(super) prompts: Vec<WrittenPrompt>,
}

/// A resource, or a template of resources.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenResource {
    pub(super) uri: Option<String>,
    pub(super) uri_template: Option<String>,
    pub(super) name: String,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) mime_type: Option<String>,
    pub(super) text: Option<String>,
    pub(super) file: Option<String>,
    #[serde(default)]
    pub(super) values: BTreeMap<String, Vec<String>>,
}

/// A prompt.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenPrompt {
    pub(super) name: String,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) arguments: Vec<WrittenArgument>,
    pub(super) messages: Vec<WrittenMessage>,
    #[serde(default)]
    pub(super) ask: BTreeMap<String, WrittenForm>,
}

/// An argument of a prompt.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenArgument {
    pub(super) name: String,
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) required: bool,
    #[serde(default)]
    pub(super) values: Vec<String>,
}

/// A message of a prompt.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenMessage {
    pub(super) role: Role,
    pub(super) text: Option<String>,
    pub(super) file: Option<String>,
    pub(super) mime_type: Option<String>,
    pub(super) resource: Option<WrittenEmbedded>,
}

/// Who says a message.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Role {
    User,
    Assistant,
}

/// A resource within a message.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenEmbedded {
    pub(super) uri: String,
    pub(super) mime_type: Option<String>,
    pub(super) text: Option<String>,
    pub(super) file: Option<String>,
}

/// A form that a prompt shows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenForm {
    pub(super) message: String,
    pub(super) fields: Map<String, Value>,
    pub(super) required: Option<Vec<String>>,
}

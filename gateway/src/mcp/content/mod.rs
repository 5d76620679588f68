//! Resources and prompts of a folder, for clients of MCP: `--mcp-content`. They are read once, when the program starts, and change
//! nothing of what tools do.
//!
//! `read` reads the folder in the forms of `written`, and says what is wrong with it, `template` fills texts and matches addresses.

mod read;
mod template;
mod written;

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::{Map, Value, json};

use self::template::TextRoom;

pub(super) use self::template::{FILLED_MAX, TooLong, UriPattern};

/// What a folder has.
#[derive(Debug, Default)]
pub struct McpContent {
    pub(super) resources: Vec<StaticResource>,
    pub(super) templates: Vec<ResourceTemplate>,
    pub(super) prompts: Vec<StaticPrompt>,
}

/// What is said of a resource, a template or a prompt in its list.
#[derive(Debug, Clone, Default)]
pub(super) struct ContentNames {
    pub(super) name: String,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
}

/// What a resource or a message holds.
#[derive(Debug, Clone)]
pub(super) enum HeldContent {
    Text(String),
    Bytes(Bytes),
}

/// A resource with an address of its own.
#[derive(Debug)]
pub(super) struct StaticResource {
    pub(super) uri: String,
    pub(super) described: ContentNames,
    pub(super) mime: String,
    pub(super) held: HeldContent,
}

/// Resources with addresses of one form.
#[derive(Debug)]
pub(super) struct ResourceTemplate {
    pub(super) pattern: UriPattern,
    pub(super) described: ContentNames,
    pub(super) mime: String,
    pub(super) text: String,
    /// What may be completed, by variable.
    pub(super) values: BTreeMap<String, Vec<String>>,
}

/// A prompt.
#[derive(Debug)]
pub(super) struct StaticPrompt {
    pub(super) described: ContentNames,
    pub(super) arguments: Vec<PromptArgument>,
    pub(super) messages: Vec<PromptMessage>,
    /// What its user is asked, by name.
    pub(super) asks: BTreeMap<String, PromptForm>,
}

/// An argument of a prompt.
#[derive(Debug)]
pub(super) struct PromptArgument {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) is_required: bool,
    /// What may be completed.
    pub(super) values: Vec<String>,
}

/// A form that a prompt shows. What it is answered fills the messages as arguments do.
#[derive(Debug)]
pub(super) struct PromptForm {
    pub(super) message: String,
    pub(super) fields: Map<String, Value>,
    pub(super) required: Vec<String>,
}

/// A message of a prompt.
#[derive(Debug)]
pub(super) struct PromptMessage {
    pub(super) role: &'static str,
    pub(super) block: MessageBlock,
}

/// What a message is made of.
#[derive(Debug)]
pub(super) enum MessageBlock {
    Text(String),
    /// An image or a sound.
    Media {
        mime: String,
        bytes: Bytes,
    },
    Resource {
        uri: String,
        mime: String,
        held: HeldContent,
    },
}

impl ContentNames {
    /// As it stands in a list, with its address under this name.
    fn listed(&self, address: Option<(&str, &str)>, mime: Option<&str>) -> Value {
        let mut listed = json!({ "name": self.name });
        let optional = [
            address,
            self.title.as_deref().map(|title| ("title", title)),
            self.description
                .as_deref()
                .map(|said| ("description", said)),
            mime.map(|mime| ("mimeType", mime)),
        ];
        for (name, value) in optional.into_iter().flatten() {
            listed[name] = value.into();
        }
        listed
    }
}

impl HeldContent {
    /// The contents of a resource at this address.
    pub(super) fn contents(&self, uri: &str, mime: &str) -> Value {
        match self {
            Self::Text(text) => json!({ "uri": uri, "mimeType": mime, "text": text }),
            Self::Bytes(bytes) => {
                json!({ "uri": uri, "mimeType": mime, "blob": STANDARD.encode(bytes) })
            }
        }
    }
}

impl StaticResource {
    /// As it stands in the list of resources.
    pub(super) fn listed(&self) -> Value {
        let address = ("uri", self.uri.as_str());
        self.described.listed(Some(address), Some(&self.mime))
    }
}

impl ResourceTemplate {
    /// As it stands in the list of templates.
    pub(super) fn listed(&self) -> Value {
        let address = ("uriTemplate", self.pattern.as_str());
        self.described.listed(Some(address), Some(&self.mime))
    }

    /// The contents at an address of its form, if they are not too long; `None`: it is none.
    pub(super) fn contents(&self, uri: &str) -> Option<Result<Value, TooLong>> {
        let values = self.pattern.matches(uri)?;
        let (is_json, mut room) = (template::is_json(&self.mime), TextRoom::of_answer());
        let text = template::filled(&self.text, &values, is_json, &mut room);
        Some(text.map(|text| HeldContent::Text(text).contents(uri, &self.mime)))
    }
}

impl StaticPrompt {
    /// As it stands in the list of prompts. What it asks may be given as well.
    pub(super) fn listed(&self) -> Value {
        let mut listed = self.described.listed(None, None);
        let own = self.arguments.iter().map(|argument| {
            let mut said = json!({ "name": argument.name, "required": argument.is_required });
            if let Some(description) = &argument.description {
                said["description"] = description.as_str().into();
            }
            said
        });
        let asked = self.asks.values().flat_map(|form| form.fields.keys());
        let asked = asked.map(|name| json!({ "name": name, "required": false }));
        let arguments: Vec<Value> = own.chain(asked).collect();
        if !arguments.is_empty() {
            listed["arguments"] = arguments.into();
        }
        listed
    }

    /// Its messages, with these values in their places.
    ///
    /// # Errors
    ///
    /// They are too long.
    pub(super) fn messages(&self, values: &BTreeMap<String, String>) -> Result<Value, TooLong> {
        let mut room = TextRoom::of_answer();
        let mut filled = |text: &str, is_json| template::filled(text, values, is_json, &mut room);
        let messages = self.messages.iter().map(|message| {
            let content = match &message.block {
                MessageBlock::Text(text) => {
                    json!({ "type": "text", "text": filled(text, false)? })
                }
                MessageBlock::Media { mime, bytes } => {
                    let kind = mime.split_once('/').map_or("image", |(kind, _)| kind);
                    json!({ "type": kind, "data": STANDARD.encode(bytes), "mimeType": mime })
                }
                MessageBlock::Resource { uri, mime, held } => {
                    let uri = filled(uri, false)?;
                    let held = match held {
                        HeldContent::Text(text) => {
                            let is_json = template::is_json(mime);
                            HeldContent::Text(filled(text, is_json)?)
                        }
                        HeldContent::Bytes(bytes) => HeldContent::Bytes(bytes.clone()),
                    };
                    json!({ "type": "resource", "resource": held.contents(&uri, mime) })
                }
            };
            Ok(json!({ "role": message.role, "content": content }))
        });
        messages.collect()
    }
}

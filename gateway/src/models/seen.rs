//! What of a vendor's chunk, and of a whole completion, is looked at: each member by itself, for an odd one must not hide the others. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::value::RawValue;

/// The members of an object, as they stand.
#[derive(Debug, Default)]
struct SeenMembers<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> SeenMembers<'a> {
    /// Of what is no object: none.
    fn read(json: &'a str) -> Self {
        Self(serde_json::from_str(json).unwrap_or_default())
    }

    /// A member, where it is what it should be.
    fn get<T: Deserialize<'a>>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.0.get(name)?.get()).ok()
    }

    /// A member that is an object.
    fn object(&self, name: &str) -> Self {
        let member = self.0.get(name);
        member.map_or_else(Self::default, |member| Self::read(member.get()))
    }

    fn list(&self, name: &str) -> Option<Vec<&'a RawValue>> {
        self.get(name)
    }

    /// Whether there is a member, which is not `null`.
    fn has(&self, name: &str) -> bool {
        self.0
            .get(name)
            .is_some_and(|member| member.get() != "null")
    }
}

/// What of a chunk is looked at.
#[derive(Debug)]
pub(super) struct SeenChunk {
    pub(super) kind: Option<String>,
    pub(super) sequence_number: Option<u64>,
    /// Those of a chat completion, where it has a list of them.
    pub(super) choices: Option<Vec<SeenChoice>>,
    pub(super) has_usage: bool,
    pub(super) has_error: bool,
}

/// What of a choice is looked at, in a chunk or in a whole completion.
#[derive(Debug)]
pub(super) struct SeenChoice {
    pub(super) index: u64,
    pub(super) has_stopped: bool,
    /// How many bytes of text it says.
    pub(super) said: usize,
}

/// What a whole completion says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WholeSaid {
    pub(super) said: usize,
    /// The choices that say why they stopped.
    pub(super) stopped: BTreeSet<u64>,
}

impl SeenChunk {
    pub(super) fn read(chunk: &str) -> Self {
        let members = SeenMembers::read(chunk);
        let choices = members.list("choices");
        Self {
            kind: members.get("type"),
            sequence_number: members.get("sequence_number"),
            choices: choices.map(|choices| choices.into_iter().map(SeenChoice::read).collect()),
            has_usage: members.has("usage"),
            has_error: members.has("error"),
        }
    }
}

impl SeenChoice {
    fn read(choice: &RawValue) -> Self {
        let members = SeenMembers::read(choice.get());
        let messages = ["delta", "message"].map(|name| said(&members.object(name)));
        Self {
            // Servers with one choice leave it out.
            index: members.get("index").unwrap_or(0),
            has_stopped: members.has("finish_reason"),
            said: messages.into_iter().sum(),
        }
    }
}

impl WholeSaid {
    /// Of the bytes of a reply.
    pub(super) fn read(reply: &[u8]) -> Self {
        let reply = std::str::from_utf8(reply).unwrap_or_default();
        let choices = SeenChunk::read(reply).choices.unwrap_or_default();
        let stopped = choices.iter().filter(|choice| choice.has_stopped);
        Self {
            said: choices.iter().map(|choice| choice.said).sum(),
            stopped: stopped.map(|choice| choice.index).collect(),
        }
    }
}

/// How many bytes of text a message, or a piece of it, says.
fn said(message: &SeenMembers<'_>) -> usize {
    let length = |members: &SeenMembers<'_>, name: &str| {
        let text: Option<String> = members.get(name);
        text.map_or(0, |text| text.len())
    };
    let calls = message.list("tool_calls").unwrap_or_default().into_iter();
    let calls = calls.map(|call| {
        let function = SeenMembers::read(call.get()).object("function");
        length(&function, "name") + length(&function, "arguments")
    });
    length(message, "content") + length(message, "refusal") + calls.sum::<usize>()
}

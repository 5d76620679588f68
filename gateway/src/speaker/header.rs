//! The header of a turn: which calls it has, in which order, and what to do when the final one is there.
//!
//! The gateway that has submitted the calls publishes it into the session's stream, so that every gateway can tell the whole story.

use std::collections::HashSet;

use fleet::{
    call::Language,
    ids::{CallId, Label},
    wire::{code::Code, error::Suggestion},
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// The most calls of a turn.
pub const CALLS_MAX: usize = 64;
/// The most characters of a turn's, a response's or an item's id.
const ID_MAX: usize = 64;
/// The most bytes of a tool's name.
const TOOL_MAX: usize = 64;
/// The most bytes of a call's arguments.
const ARGUMENTS_MAX: usize = 1024 * 1024;
/// The most bytes of what is said of a refusal.
const REFUSAL_MAX: usize = 16 * 1024;

/// A turn. One that was read is fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnHeader {
    /// The turn.
    pub turn_id: String,
    /// The response that is told of it; a turn whose client hands something in has another one then.
    pub response_id: String,
    /// The session in whose stream its calls tell what happens.
    pub session: Label,
    /// Who speaks next.
    pub order: SpeakingOrder,
    /// What becomes of the other calls when the final one has its answer.
    pub on_final: OnFinal,
    /// The response before this one, of the same turn or of another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_response_id: Option<String>,
    /// When the turn was taken.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// Its calls, in the order of their indexes.
    pub calls: Vec<TurnCall>,
}

/// One call of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnCall {
    /// Its place in the turn, from 0.
    pub index: u32,
    /// The call, or why there is none.
    #[serde(flatten)]
    pub slot: TurnSlot,
    /// Its tool.
    pub tool: String,
    /// Its arguments, as JSON text.
    pub arguments: String,
    /// As what kind of item it is shown; a tool that says nothing about it is shown as `mcp_call`, one that the client runs as
    /// `function_call`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presents: Option<Shape>,
    /// Whether it is shown at all.
    #[serde(default)]
    pub visibility: Visibility,
    /// Whether its answer is the assistant's. Of several the one with the lowest index is.
    #[serde(default, rename = "final")]
    pub is_final: bool,
    /// Whether the client runs it.
    #[serde(default, rename = "client")]
    pub is_clients: bool,
    /// The language of its tool, for what the speaker says by itself.
    #[serde(default = "english")]
    pub language: Language,
    /// The `sequence` of the call's last event that belongs to the response before: what it told until then is not told again, and
    /// what it waited for then was handed in. [`super::Speech::left_for_client`] knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub told_until: Option<u64>,
    /// How many items it has had in responses before, so that none of its items has the id of another.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub items_before: u32,
    /// The request for approval that the response before has shown for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_request_id: Option<String>,
}

/// What stands at a place of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnSlot {
    /// A call that was accepted.
    CallId(CallId),
    /// A call that was refused.
    Refused {
        /// Why.
        code: Code,
        /// The same in words.
        message: String,
        /// What else its caller was told; `None` in headers of releases that did not keep it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        more: Option<Box<RefusalMore>>,
    },
}

/// What else the caller of a refused call was told, so that it can be told the same again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalMore {
    /// Whether the same may work another time.
    pub retryable: bool,
    /// When, if that is known, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What to do next, in a word.
    pub suggestion: Suggestion,
    /// JSON pointer to the argument, where one is to blame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// More, for programs and people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<serde_json::Value>,
}

/// What a tool says of how its calls are shown, in the words of OpenAI's items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// A call of a tool that runs elsewhere.
    McpCall,
    /// An image is made.
    ImageGenerationCall,
    /// Files are searched.
    FileSearchCall,
    /// The web is searched.
    WebSearchCall,
    /// Code is run.
    CodeInterpreterCall,
    /// A command for a shell.
    ShellCall,
    /// A function that the client runs.
    FunctionCall,
    /// A custom tool that the client runs.
    CustomToolCall,
}

/// Who speaks next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpeakingOrder {
    /// The call with the lowest index that is not over.
    CallIndex,
    /// The call that has waited longest with something to say.
    FirstReady,
}

/// What becomes of the other calls when the final one has its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFinal {
    /// They are cancelled.
    Cancel,
    /// They go on, and are told to their end.
    Await,
}

/// Whether a call is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Visibility {
    /// It is.
    #[default]
    Shown,
    /// It is not, and the response does not wait for it: its calls tell a session nothing.
    Hidden,
}

/// Why something is no header of a turn.
#[derive(Debug, thiserror::Error)]
pub enum UnfitHeader {
    /// It is not written like one.
    #[error("it is not written like the header of a turn")]
    Form(#[source] serde_json::Error),
    /// It has no calls, or too many.
    #[error("a turn has 1 to {CALLS_MAX} calls")]
    Count,
    /// Its indexes are not 0, 1, 2 …
    #[error("the indexes of a turn's calls are 0, 1, 2 and so on")]
    Indexes,
    /// A call stands in it twice.
    #[error("a call stands in the turn twice")]
    Doubled,
    /// An id has other characters, or too many.
    #[error("an id has 1 to {ID_MAX} letters, digits, - and _")]
    Id,
    /// A text is too long.
    #[error("a tool, its arguments or a message is too long")]
    TooLong,
}

impl TurnHeader {
    /// Reads a header.
    ///
    /// # Errors
    ///
    /// It is none, or breaks a bound.
    pub fn read(json: &[u8]) -> Result<Self, UnfitHeader> {
        let header: Self = serde_json::from_slice(json).map_err(UnfitHeader::Form)?;
        header.check()?;
        Ok(header)
    }

    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a header has only string keys")
    }

    /// # Errors
    ///
    /// It breaks a bound.
    pub fn check(&self) -> Result<(), UnfitHeader> {
        if !(1..=CALLS_MAX).contains(&self.calls.len()) {
            return Err(UnfitHeader::Count);
        }
        let ids = [Some(&self.turn_id), Some(&self.response_id)];
        let ids = ids.into_iter().chain([self.previous_response_id.as_ref()]);
        let requests = self
            .calls
            .iter()
            .map(|call| call.approval_request_id.as_ref());
        if !ids.chain(requests).flatten().all(|id| is_id(id)) {
            return Err(UnfitHeader::Id);
        }
        let mut known = HashSet::new();
        for (place, call) in (0..).zip(&self.calls) {
            if call.index != place {
                return Err(UnfitHeader::Indexes);
            }
            let refusal = match &call.slot {
                TurnSlot::CallId(id) if !known.insert(*id) => return Err(UnfitHeader::Doubled),
                TurnSlot::CallId(_) => 0,
                TurnSlot::Refused { message, .. } => message.len(),
            };
            if call.tool.len() > TOOL_MAX
                || call.arguments.len() > ARGUMENTS_MAX
                || refusal > REFUSAL_MAX
            {
                return Err(UnfitHeader::TooLong);
            }
        }
        Ok(())
    }

    /// The final call and the others, where these are taken back when that one has its answer.
    pub(crate) fn taken_back_for_an_answer(&self) -> Option<(CallId, Vec<CallId>)> {
        match self.on_final {
            OnFinal::Await => None,
            OnFinal::Cancel => {
                let answering = self.calls[self.winner()?].id()?;
                let calls = self.calls.iter().filter_map(TurnCall::id);
                Some((answering, calls.filter(|call| *call != answering).collect()))
            }
        }
    }

    /// The call whose answer is the assistant's, by its index.
    pub(super) fn winner(&self) -> Option<usize> {
        self.calls.iter().position(|call| {
            call.is_final && !call.is_clients && call.is_shown() && call.id().is_some()
        })
    }
}

impl TurnCall {
    /// Its id, if it was accepted.
    pub fn id(&self) -> Option<CallId> {
        match self.slot {
            TurnSlot::CallId(id) => Some(id),
            TurnSlot::Refused { .. } => None,
        }
    }

    pub(super) fn is_shown(&self) -> bool {
        match self.visibility {
            Visibility::Shown => true,
            Visibility::Hidden => false,
        }
    }
}

fn is_id(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=ID_MAX).contains(&text.len()) && text.bytes().all(fits)
}

const fn english() -> Language {
    Language::En
}

const fn is_zero(count: &u32) -> bool {
    *count == 0
}

//! The pointer in a message: which call to look at, and what spares the worker a read.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::trace::TraceContext;
use crate::ids::{CallId, Label, ToolName};

/// What a worker finds in a message. It decides nothing: the claim reads the row, and any pointer may claim.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pointer {
    /// The call.
    pub call_id: CallId,
    /// Its tool, for the gate.
    pub tool: ToolName,
    /// The version it was accepted with.
    pub tool_version: i32,
    /// Hash of the arguments: a claim that returns another one is given back.
    pub args_hash: String,
    /// The arguments in canonical form, when they are small. Otherwise the gate reads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Box<RawValue>>,
    /// Whose call it is, for whoever shares something among tenants before the claim. `None`: a release before this one wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Label>,
    /// The trace the call belongs to, for the spans before its claim. Without the caller's baggage.
    #[serde(default)]
    pub trace: TraceContext,
    /// How many attempts were made before: only the first one is part of the caller's trace.
    #[serde(default)]
    pub attempts: u32,
}

impl Pointer {
    /// Arguments up to this many bytes travel with the pointer.
    pub const ARGS_INLINE_MAX: usize = 8 * 1024;
    /// A message larger than this is not one of ours.
    pub const BYTES_MAX: usize = 16 * 1024;

    /// The message's body.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Everything but the arguments and a caller's tracestate has a bounded length.
        let args = self.args.as_ref().map_or(0, |args| args.get().len());
        let mut body = Vec::with_capacity(args + 512);
        serde_json::to_writer(&mut body, self).expect("a pointer has only string keys");
        body
    }

    /// Reads a message's body.
    ///
    /// # Errors
    ///
    /// It is not a pointer: too large, or not of this form.
    pub fn read(body: &[u8]) -> Result<Self, UnreadablePointer> {
        if body.len() > Self::BYTES_MAX {
            return Err(UnreadablePointer(format!("{} bytes", body.len())));
        }
        serde_json::from_slice(body)
            .map_err(|error| UnreadablePointer(format!("{:?}", error.classify())))
    }
}

/// A message that is not a pointer. It is counted and thrown away: Postgres still has every call.
#[derive(Debug, thiserror::Error)]
#[error("message is not a pointer to a call ({0})")]
pub struct UnreadablePointer(String);

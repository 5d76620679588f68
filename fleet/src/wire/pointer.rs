//! The pointer in a message: which call to run, and what saves the worker a read.

use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::trace::TraceContext;
use crate::{
    call::{Language, Priority},
    ids::{CallId, Label, ToolName},
};

/// The content of a message for a worker. It decides nothing: the claim reads the row, and any pointer may claim.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pointer {
    /// The call.
    pub call_id: CallId,
    /// Its tool, for the gate.
    pub tool: ToolName,
    /// The version it was accepted with.
    pub tool_version: i32,
    /// Hash of the arguments, for people and for later releases. A worker does not read it: it hashes the arguments that it
    /// prepared, and compares that with the row's hash once it has claimed the call.
    pub args_hash: String,
    /// The arguments in canonical form, when they are small. Otherwise the gate reads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Box<RawValue>>,
    /// The call's tenant: with it and `rev` the gate decides without a read. `None`: an older release wrote the message, or a newer
    /// one with a word that is unknown here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Label>,
    /// The language of its messages.
    #[serde(
        default,
        deserialize_with = "word_if_known",
        skip_serializing_if = "Option::is_none"
    )]
    pub language: Option<Language>,
    /// Its order among its tenant's calls.
    #[serde(
        default,
        deserialize_with = "word_if_known",
        skip_serializing_if = "Option::is_none"
    )]
    pub priority: Option<Priority>,
    /// The revision of the call when this was published. A decision from the pointer names it, so that it decides nothing about
    /// a call that has moved since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rev: Option<i32>,
    /// Whether it is the probe of a call in doubt. Its answer decides what becomes of that call, so nothing but its tool may give
    /// or change it. A release before this field leaves it out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_probe: bool,
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
        // Everything except the arguments and the caller's tracestate has a bounded length.
        let args = self.args.as_ref().map_or(0, |args| args.get().len());
        let mut body = Vec::with_capacity(args + 512);
        serde_json::to_writer(&mut body, self).expect("a pointer has only string keys");
        body
    }

    /// Reads a message's body.
    ///
    /// # Errors
    ///
    /// It is not a pointer: too large, or of another form.
    pub fn read(body: &[u8]) -> Result<Self, UnreadablePointer> {
        if body.len() > Self::BYTES_MAX {
            return Err(UnreadablePointer(format!("{} bytes", body.len())));
        }
        serde_json::from_slice(body)
            .map_err(|error| UnreadablePointer(format!("{:?}", error.classify())))
    }
}

/// The word, if this release knows it: an unknown one must not cost the message.
fn word_if_known<'de, D: Deserializer<'de>, W: FromStr>(from: D) -> Result<Option<W>, D::Error> {
    let word = Option::<&str>::deserialize(from)?;
    Ok(word.and_then(|word| word.parse().ok()))
}

/// A message that is not a pointer. It is counted and thrown away: Postgres still has every call.
#[derive(Debug, thiserror::Error)]
#[error("message is not a pointer to a call ({0})")]
pub struct UnreadablePointer(String);

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = r#"{"call_id":"01890a5d-ac96-774b-bcce-b302099a8057","tool":"charge","tool_version":1,"args_hash":"00"}"#;

    #[test]
    fn a_pointer_of_an_earlier_release_is_read() {
        let old = Pointer::read(OLD.as_bytes()).unwrap();
        let Pointer {
            tenant,
            language,
            priority,
            rev,
            ..
        } = old;
        assert_eq!((tenant, language, priority, rev), (None, None, None, None));
    }

    #[test]
    fn a_word_of_a_later_release_is_not_known_and_costs_nothing() {
        let later = OLD.replace('}', r#","language":"zh","priority":"urgent","rev":3}"#);
        let later = Pointer::read(later.as_bytes()).unwrap();
        assert_eq!(
            (later.language, later.priority, later.rev),
            (Some(Language::Zh), None, Some(3))
        );
        let again = Pointer::read(&later.to_bytes()).unwrap();
        assert_eq!((again.language, again.rev), (Some(Language::Zh), Some(3)));
    }
}

//! The envelopes a caller gets: accepted, result, refused. The order of the fields is part of the bytes.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use time::OffsetDateTime;

use crate::{
    call::{Awaiting, CallOutcome, EffectKnown, Language, SettledBy, Source, State},
    ending::Decision,
    ids::CallId,
    manifest::ApprovedBy,
    outcome::ToolFailure,
    said,
    wire::{code::Code, error::ErrorBody},
};

/// The answer while a call is not decided.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Accepted {
    /// The call.
    pub call_id: CallId,
    /// Its tool.
    pub tool: String,
    /// The state of the call.
    pub state: State,
    /// Whether an earlier submission made it.
    pub replayed: bool,
    /// When it was accepted.
    #[serde(with = "time::serde::rfc3339")]
    pub accepted_at: OffsetDateTime,
    /// What it waits for; absent from calls that wait for nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaiting: Option<Awaits>,
}

/// What a call waits for, for whoever can give it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Awaits {
    /// For whom it waits.
    #[serde(rename = "for")]
    pub whom: Awaiting,
    /// Until when.
    #[serde(with = "time::serde::rfc3339")]
    pub until: OffsetDateTime,
    /// What proves, with an answer, that the call was handed to its sender. Absent where nobody answers with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The arguments as the tool gets them, which may differ from those that were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Box<RawValue>>,
    /// Who may decide, where it waits for a yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<ApprovedBy>,
    /// What a decision names: [`crate::approval::ApprovalWanted::shown_hash`] of its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args_hash: Option<String>,
    /// What the tool's manifest says to who decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the tool wants to know, a JSON object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Box<RawValue>>,
    /// Who made the call, where its meta says so: a gateway asks nobody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// The answer when a call is decided, or was refused.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Envelope {
    /// The call; `null` for a refusal.
    pub call_id: Option<CallId>,
    /// Its tool, as the caller named it.
    pub tool: String,
    /// The version it was accepted with.
    pub tool_version: Option<i32>,
    /// The state in which it ended, or `refused`.
    pub state: EnvelopeState,
    /// What it came to.
    pub outcome: CallOutcome,
    /// Whether a model should treat it as an error.
    pub is_error: bool,
    /// Where the answer came from.
    pub source: Source,
    /// What is known about the effect.
    pub effect: EffectKnown,
    /// The tool's answer.
    pub result: Option<Box<RawValue>>,
    /// What went wrong.
    pub error: Option<ErrorBody>,
    /// Why the answer is not the live one.
    pub degraded: Option<Box<RawValue>>,
    /// What was changed in the arguments.
    pub coercions: Box<RawValue>,
    /// How many attempts were made.
    pub attempts: i32,
    /// Whether an earlier submission made the call.
    pub replayed: bool,
    /// How long it took; `null` for a refusal.
    pub timing: Option<Timing>,
    /// Who settled it, where it was in doubt; absent from others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled_by: Option<SettledBy>,
}

/// A decided call as the ledger has it; what was changed in its arguments is JSON text.
#[derive(Debug, Clone)]
pub struct DecidedCall {
    /// The call.
    pub call_id: CallId,
    /// Its tool.
    pub tool: String,
    /// The version it was accepted with.
    pub tool_version: i32,
    /// How it was decided.
    pub decision: Decision,
    /// What was changed in the arguments.
    pub coercions: Option<String>,
    /// How many attempts were made.
    pub attempts: i32,
    /// How long it took.
    pub timing: Timing,
}

impl DecidedCall {
    /// Its envelope.
    ///
    /// # Errors
    ///
    /// One of its texts is not valid.
    pub fn envelope(self) -> Result<Envelope, serde_json::Error> {
        let Decision {
            state,
            outcome,
            source,
            effect,
            result,
            preview,
            error,
            degraded,
        } = self.decision;
        let raw = |text: Option<String>| text.map(RawValue::from_string).transpose();
        let error = error.as_deref().map(serde_json::from_str).transpose();
        Ok(Envelope {
            call_id: Some(self.call_id),
            tool: self.tool,
            tool_version: Some(self.tool_version),
            state: EnvelopeState::Of(state),
            outcome,
            is_error: is_error(outcome),
            source,
            effect,
            result: raw(preview.or(result))?,
            error: error?,
            degraded: raw(degraded)?,
            coercions: raw(self.coercions)?.unwrap_or_else(no_coercions),
            attempts: self.attempts,
            replayed: false,
            timing: Some(self.timing),
            settled_by: None,
        })
    }
}

/// The bytes of a call's result envelope, as one process sends them to another. A process that only passes them on does not
/// decode them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedEnvelope {
    call: CallId,
    bytes: Bytes,
}

impl EncodedEnvelope {
    /// Bytes that were received as the envelope of a call; `None` where they do not begin like one.
    pub fn read(bytes: Bytes) -> Option<Self> {
        let rest = bytes.strip_prefix(BEGINNING)?;
        let (id, rest) = rest.split_at_checked(uuid::fmt::Hyphenated::LENGTH)?;
        let call = str::from_utf8(id).ok()?.parse().ok()?;
        rest.starts_with(b"\",").then_some(Self { call, bytes })
    }

    /// An envelope's bytes; `None` for one without a call.
    pub fn of(envelope: &Envelope) -> Option<Self> {
        Some(Self {
            call: envelope.call_id?,
            bytes: envelope.to_bytes().into(),
        })
    }

    /// The call.
    pub const fn call(&self) -> CallId {
        self.call
    }

    /// How many bytes there are.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The envelope.
    ///
    /// # Errors
    ///
    /// The bytes began like an envelope and are none.
    pub fn decode(&self) -> Result<Envelope, serde_json::Error> {
        self.members()
    }

    /// The members of the envelope that this type names.
    ///
    /// # Errors
    ///
    /// The bytes began like an envelope and are none.
    pub fn members<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.bytes)
    }
}

/// The beginning of every envelope of a call.
const BEGINNING: &[u8] = b"{\"call_id\":\"";

/// `refused`, or the state of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EnvelopeState {
    /// A call's state.
    Of(State),
    /// There is no call.
    Refused(Refused),
}

/// The word for "there is no call".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refused {
    /// `refused`
    #[serde(rename = "refused")]
    Refused,
}

/// How long a call took, whole milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// From acceptance to the start of its first attempt.
    pub queued_ms: i64,
    /// From there to its end.
    pub run_ms: i64,
}

impl Envelope {
    /// The answer to a submission that was refused: nothing is stored, the key is not consumed.
    pub fn refused(tool: &str, error: ErrorBody) -> Self {
        let mut tool = tool.to_owned();
        tool.truncate(tool.floor_char_boundary(64));
        Self {
            call_id: None,
            tool,
            tool_version: None,
            state: EnvelopeState::Refused(Refused::Refused),
            outcome: if error.is_callers_to_mend() {
                CallOutcome::BusinessError
            } else {
                CallOutcome::SystemError
            },
            is_error: true,
            source: Source::Error,
            effect: EffectKnown::None,
            result: None,
            error: Some(error),
            degraded: None,
            coercions: no_coercions(),
            attempts: 0,
            replayed: false,
            timing: None,
            settled_by: None,
        }
    }

    /// The same answer without its result, which is too large to send. The outcome stays as it is.
    #[must_use]
    pub fn without_result(mut self, bytes: usize, bytes_max: usize, language: Language) -> Self {
        let what = said!(
            "the answer has {bytes} bytes and {bytes_max} can be carried; it is kept in the ledger",
            "结果有 {bytes} 字节，而最多能传送 {bytes_max} 字节；完整结果保存在账本里"
        );
        let failure = ToolFailure::new(Code::OutputTooLarge, what);
        self.error = Some(ErrorBody::failed(&failure, self.effect, language));
        self.result = None;
        self
    }

    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let result = self.result.as_ref().map_or(0, |result| result.get().len());
        let error = self
            .error
            .as_ref()
            .map_or(0, |error| error.message.len() + 512);
        let mut bytes = Vec::with_capacity(result + error + self.coercions.get().len() + 512);
        serde_json::to_writer(&mut bytes, self).expect("an envelope has only string keys");
        bytes
    }
}

/// The empty list of coercions.
pub fn no_coercions() -> Box<RawValue> {
    RawValue::from_string("[]".to_owned()).expect("an empty array is JSON")
}

/// Whether a model should treat this outcome as an error.
pub const fn is_error(outcome: CallOutcome) -> bool {
    match outcome {
        CallOutcome::Success | CallOutcome::Fallback => false,
        CallOutcome::BusinessError | CallOutcome::SystemError | CallOutcome::Unknown => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::message::Message;

    #[test]
    fn bytes_are_taken_for_the_envelope_of_the_call_they_name_and_of_no_other() {
        let what = Message::fixed("no", "不");
        let error = ErrorBody::refused(Code::UnknownTool, &what, Language::En);
        let call = CallId::generate();
        let refused = Envelope::refused("tool", error);
        assert!(EncodedEnvelope::of(&refused).is_none());
        let envelope = Envelope {
            call_id: Some(call),
            ..refused
        };
        let encoded = EncodedEnvelope::of(&envelope).unwrap();
        let bytes = encoded.clone().into_bytes();
        assert_eq!(EncodedEnvelope::read(bytes.clone()), Some(encoded));
        for broken in [Bytes::new(), bytes.slice(1..), bytes.slice(..40)] {
            assert_eq!(EncodedEnvelope::read(broken), None);
        }
    }

    #[test]
    fn a_refusal_reads_as_the_contract_says() {
        let what = Message::fixed("there is no tool of this name", "没有这个名字的工具");
        let refusal = Envelope::refused(
            "get_weather",
            ErrorBody::refused(Code::UnknownTool, &what, Language::En),
        );
        insta::assert_snapshot!(String::from_utf8(refusal.to_bytes()).unwrap());
    }
}

//! What became of each call of a turn: the items of the batch's answer. Pure.

use fleet::{
    call::{Awaiting, Language},
    ids::CallId,
    wire::{code::Code, envelope::Envelope, error::ErrorBody, message::Message},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;

use crate::speaker::TurnSlot;

/// What became of a call.
#[derive(Debug, Clone)]
pub(crate) struct TurnItem {
    /// As the door has said it.
    pub(crate) said: Box<RawValue>,
    /// The call, or why there is none.
    pub(crate) slot: TurnSlot,
    /// When it was accepted.
    pub(crate) accepted_at: Option<OffsetDateTime>,
    /// Whether its caller's program has to run it.
    pub(crate) is_clients: bool,
}

#[derive(Deserialize)]
struct SaidOfCall {
    call_id: Option<CallId>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    accepted_at: Option<OffsetDateTime>,
    awaiting: Option<SaidAwaiting>,
    error: Option<SaidError>,
}

#[derive(Deserialize)]
struct SaidAwaiting {
    #[serde(rename = "for")]
    whom: String,
}

#[derive(Deserialize)]
struct SaidError {
    code: String,
    #[serde(default)]
    message: String,
}

impl TurnItem {
    /// Of the answer to a batch; `None` where all of it was refused, or it is none.
    pub(crate) fn all_of(answer: &[u8]) -> Option<Vec<Self>> {
        #[derive(Deserialize)]
        struct Items {
            items: Vec<Box<RawValue>>,
        }

        let Items { items } = serde_json::from_slice(answer).ok()?;
        items.into_iter().map(Self::read).collect()
    }

    /// Of a call that was refused when its turn was made.
    pub(crate) fn refused(tool: &str, code: Code, message: &str) -> Self {
        let what = Message::verbatim(message.to_owned());
        let envelope = Envelope::refused(tool, ErrorBody::refused(code, &what, Language::En));
        let said = String::from_utf8(envelope.to_bytes()).ok();
        let said = said.and_then(|said| RawValue::from_string(said).ok());
        Self {
            said: said.expect("an envelope is JSON"),
            slot: TurnSlot::Refused {
                code,
                message: message.to_owned(),
            },
            accepted_at: None,
            is_clients: false,
        }
    }

    fn read(said: Box<RawValue>) -> Option<Self> {
        let read: SaidOfCall = serde_json::from_str(said.get()).ok()?;
        let slot = match (read.call_id, read.error) {
            (Some(call), _) => TurnSlot::CallId(call),
            (None, error) => {
                let error = error?;
                TurnSlot::Refused {
                    // A word of a later release: that it was refused is all that is known.
                    code: error.code.parse().unwrap_or(Code::InvalidArguments),
                    message: error.message,
                }
            }
        };
        let whom = read.awaiting.map(|awaiting| awaiting.whom);
        Some(Self {
            slot,
            accepted_at: read.accepted_at,
            is_clients: whom.is_some_and(|whom| matches!(whom.parse(), Ok(Awaiting::Client))),
            said,
        })
    }

    /// Whether its key names a call with other arguments.
    pub(crate) fn is_another(&self) -> bool {
        matches!(
            self.slot,
            TurnSlot::Refused {
                code: Code::IdempotencyKeyReused,
                ..
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_a_call_or_why_there_is_none() {
        let id = CallId::generate();
        let answer = format!(
            r#"{{"items":[{{"call_id":"{id}","tool":"a","state":"queued","replayed":false,"accepted_at":"2026-11-28T10:00:00Z"}},
                {{"call_id":"{}","tool":"b","state":"awaiting_client","replayed":false,"accepted_at":"2026-11-28T10:00:00Z","awaiting":{{"for":"client","until":"x"}}}},
                {{"call_id":null,"tool":"c","state":"refused","error":{{"code":"unknown_tool","message":"no"}}}}]}}"#,
            CallId::generate()
        );
        let items = TurnItem::all_of(answer.as_bytes()).unwrap();
        assert_eq!(items[0].slot, TurnSlot::CallId(id));
        assert!(items[0].accepted_at.is_some() && !items[0].is_clients);
        assert!(items[1].is_clients);
        let refused = TurnSlot::Refused {
            code: Code::UnknownTool,
            message: "no".to_owned(),
        };
        assert_eq!(items[2].slot, refused);
        let again = TurnItem::refused("c", Code::UnknownTool, "no");
        assert_eq!(again.slot, refused);
        assert!(again.said.get().contains("\"state\":\"refused\""));
        assert!(TurnItem::all_of(br#"{"state":"refused"}"#).is_none());
    }
}

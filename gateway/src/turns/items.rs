//! What became of each call of a turn: the items of the batch's answer. Pure.

use fleet::{
    call::{Awaiting, Language},
    ids::CallId,
    wire::{code::Code, error::ErrorBody, message::Message},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;

use super::refused::{said, slot_of};
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
    /// Whether nobody knows what became of it: it may have been accepted.
    pub(crate) is_unknown: bool,
}

#[derive(Deserialize)]
struct SaidOfCall {
    call_id: Option<CallId>,
    #[serde(default)]
    tool: String,
    #[serde(default)]
    effect: Option<String>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    accepted_at: Option<OffsetDateTime>,
    awaiting: Option<SaidAwaiting>,
    #[serde(default)]
    error: Option<Box<RawValue>>,
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

    /// Of a call that was refused when its turn was made; `None`: it was accepted.
    pub(crate) fn refused(tool: &str, slot: &TurnSlot) -> Option<Self> {
        let TurnSlot::Refused {
            code,
            message,
            more,
        } = slot
        else {
            return None;
        };
        Some(Self {
            said: said(tool, *code, message, more.as_deref()),
            slot: slot.clone(),
            accepted_at: None,
            is_clients: false,
            is_unknown: false,
        })
    }

    fn read(said: Box<RawValue>) -> Option<Self> {
        let read: SaidOfCall = serde_json::from_str(said.get()).ok()?;
        let Some(call) = read.call_id else {
            let refused = Self::refused(&read.tool, &slot_of(error_of(&read.error?)?))?;
            return Some(Self {
                is_unknown: read.effect.as_deref() == Some("unknown"),
                ..refused
            });
        };
        let whom = read.awaiting.map(|awaiting| awaiting.whom);
        Some(Self {
            slot: TurnSlot::CallId(call),
            accepted_at: read.accepted_at,
            is_unknown: false,
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

/// The error of a refusal; `None`: it is none.
fn error_of(said: &RawValue) -> Option<ErrorBody> {
    if let Ok(error) = serde_json::from_str(said.get()) {
        return Some(error);
    }
    // A word of a later release: that it was refused is all that is known.
    let said: SaidError = serde_json::from_str(said.get()).ok()?;
    let code = said.code.parse().unwrap_or(Code::InvalidArguments);
    let error = ErrorBody::refused(code, &Message::fixed("", ""), Language::En);
    Some(ErrorBody {
        message: said.message,
        ..error
    })
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
        let refused = &items[2];
        let TurnSlot::Refused { code, message, .. } = &refused.slot else {
            panic!("{refused:?}");
        };
        assert_eq!((*code, message.as_str()), (Code::UnknownTool, "no"));
        let again = TurnItem::refused("c", &refused.slot).unwrap();
        assert_eq!(again.said.get(), refused.said.get());
        assert!(again.said.get().contains("\"state\":\"refused\""));
        assert!(TurnItem::refused("a", &items[0].slot).is_none());
        let unknown = br#"{"items":[{"call_id":null,"tool":"c","state":"refused","effect":"unknown","error":{"code":"store_unavailable","message":"no"}}]}"#;
        assert!(TurnItem::all_of(unknown).unwrap()[0].is_unknown);
        assert!(TurnItem::all_of(br#"{"state":"refused"}"#).is_none());
    }
}

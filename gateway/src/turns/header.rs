//! The header of a turn, as it stands in the stream of events. Pure.

use std::collections::HashMap;

use fleet::call::Language;
use serde::Serialize;
use time::OffsetDateTime;

use super::{asked_for::TurnAsked, items::TurnItem, name::TurnName, shown::ShownTool};
use crate::speaker::{TurnCall, TurnHeader, TurnSlot};

/// What stands in place of arguments that are not told.
const UNTOLD: &str = "{}";
/// The most bytes of the arguments of a refused call that are told.
const REFUSED_MAX: usize = 1_024;

/// The kind of a header among the events of a session.
pub(crate) const TURN: &str = "turn";

/// The header of a turn whose calls became this.
pub(super) fn header_of(
    name: &TurnName,
    asked: &TurnAsked,
    items: &[TurnItem],
    shown: &HashMap<String, ShownTool>,
    created_at: OffsetDateTime,
) -> TurnHeader {
    let calls = (0..).zip(asked.calls.iter().zip(items));
    let calls = calls.map(|(index, (call, item))| {
        let known = shown.get(&call.tool);
        TurnCall {
            index,
            slot: item.slot.clone(),
            tool: call.tool.clone(),
            arguments: told(&call.arguments, &item.slot, known).to_owned(),
            presents: known.and_then(|known| known.presents),
            visibility: known.map(|known| known.visibility).unwrap_or_default(),
            is_final: known.is_some_and(|known| known.is_final),
            is_clients: item.is_clients || known.is_some_and(|known| known.is_clients),
            language: known.map_or(Language::En, |known| known.language),
            told_until: None,
            items_before: 0,
            approval_request_id: None,
        }
    });
    TurnHeader {
        turn_id: name.id(),
        response_id: name.response(),
        session: name.session(),
        order: asked.order,
        on_final: asked.on_final,
        previous_response_id: None,
        created_at,
        calls: calls.collect(),
    }
}

/// The arguments of a call as followers of its turn may see them. Those of a tool with sensitive ones are not told, nor those of one of
/// which that is not known; and those of a call that was refused, which nothing counts, only where they are short: the stream of events
/// is one for all tenants.
fn told<'a>(arguments: &'a str, slot: &TurnSlot, known: Option<&ShownTool>) -> &'a str {
    let may_be_seen = known.is_some_and(|known| !known.is_sensitive);
    let is_refused = matches!(slot, TurnSlot::Refused { .. });
    if may_be_seen && !(is_refused && arguments.len() > REFUSED_MAX) {
        arguments
    } else {
        UNTOLD
    }
}

/// As an event of its session.
pub(super) fn to_event(header: &TurnHeader) -> Vec<u8> {
    #[derive(Serialize)]
    struct TurnEvent<'a> {
        kind: &'static str,
        #[serde(flatten)]
        header: &'a TurnHeader,
    }

    let event = TurnEvent { kind: TURN, header };
    serde_json::to_vec(&event).expect("a header has only string keys")
}

/// Whether a turn that is asked for is the one that was made. What the door has accepted it compares itself.
pub(crate) fn is_same(asked: &TurnAsked, header: &TurnHeader) -> bool {
    let same_call = |(asked, made): (&super::asked_for::CallAsked, &TurnCall)| match made.slot {
        TurnSlot::CallId(_) => asked.tool == made.tool,
        TurnSlot::Refused { .. } => {
            asked.tool == made.tool
                && (asked.arguments == made.arguments || made.arguments == UNTOLD)
        }
    };
    asked.order == header.order
        && asked.on_final == header.on_final
        && asked.calls.len() == header.calls.len()
        && asked.calls.iter().zip(&header.calls).all(same_call)
}

#[cfg(test)]
mod tests {
    use fleet::wire::code::Code;

    use super::*;

    fn refused(tool: &str) -> TurnItem {
        let slot = TurnSlot::Refused {
            code: Code::UnknownTool,
            message: "no".to_owned(),
            more: None,
        };
        TurnItem::refused(tool, &slot).unwrap()
    }

    fn plain() -> ShownTool {
        ShownTool {
            presents: None,
            visibility: Default::default(),
            is_final: false,
            is_clients: false,
            language: Language::En,
            is_sensitive: false,
        }
    }

    #[test]
    fn arguments_are_told_where_nothing_says_that_they_may_not_be() {
        let accepted = TurnSlot::CallId(fleet::ids::CallId::generate());
        let refused = TurnSlot::Refused {
            code: Code::UnknownTool,
            message: "no".to_owned(),
            more: None,
        };
        let (plain, long) = (
            plain(),
            format!("{{\"a\":\"{}\"}}", "x".repeat(REFUSED_MAX)),
        );
        let sensitive = ShownTool {
            is_sensitive: true,
            ..plain.clone()
        };
        assert_eq!(told("{\"a\":1}", &accepted, Some(&plain)), "{\"a\":1}");
        assert_eq!(told(&long, &accepted, Some(&plain)), long);
        assert_eq!(told("{\"a\":1}", &refused, Some(&plain)), "{\"a\":1}");
        assert_eq!(told(&long, &refused, Some(&plain)), UNTOLD);
        assert_eq!(told("{\"a\":1}", &accepted, Some(&sensitive)), UNTOLD);
        assert_eq!(told("{\"a\":1}", &accepted, None), UNTOLD);
    }

    #[test]
    fn a_header_is_an_event_that_is_read_again_and_knows_its_turn() {
        let body = r#"{"calls":[{"tool":"look","args":{"a": 1E2}},{"tool":"x","args":{}}]}"#;
        let asked = TurnAsked::read(body.as_bytes()).unwrap();
        let name = TurnName::read(&format!("turn_{}", "0".repeat(32))).unwrap();
        let items = ["look", "x"].map(refused).to_vec();
        let at = OffsetDateTime::UNIX_EPOCH;
        let shown = HashMap::from(["look", "x"].map(|tool| (tool.to_owned(), plain())));
        let header = header_of(&name, &asked, &items, &shown, at);
        let event = to_event(&header);
        assert!(event.starts_with(br#"{"kind":"turn","#));
        assert_eq!(TurnHeader::read(&event).unwrap(), header);
        assert!(is_same(&asked, &header));
        for other in [
            r#"{"calls":[{"tool":"look","args":{"a": 1E2}}]}"#,
            r#"{"calls":[{"tool":"look","args":{"a": 1E2}},{"tool":"x","args":{}}],"order":"first_ready"}"#,
            r#"{"calls":[{"tool":"look","args":{"a": 1E3}},{"tool":"x","args":{}}]}"#,
            r#"{"calls":[{"tool":"look","args":{"a": 1E2}},{"tool":"y","args":{}}]}"#,
        ] {
            let other = TurnAsked::read(other.as_bytes()).unwrap();
            assert!(!is_same(&other, &header));
        }
    }
}

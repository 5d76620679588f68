//! Leaves old results of tools out of a conversation, with a mark in the place of each. Pure.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::super::dialect::Dialect;

/// A shorter result stays: its mark would save nothing.
const LEAST: usize = 200;
/// How much of the id of a model's call stands in a mark, in bytes.
const CALL_MAX: usize = 128;
/// No mark is longer.
const MARK_MAX: usize = 512;
/// How a mark begins.
const MARK: &str = "[result cleared: ";

/// Clears all but the newest results, and says how many.
pub(super) fn results(
    dialect: &dyn Dialect,
    request: &mut Cow<'_, Map<String, Value>>,
    keep: u32,
) -> usize {
    let member = dialect.messages();
    let Some(messages) = request.get(member).and_then(Value::as_array) else {
        return 0;
    };
    let all: usize = messages
        .iter()
        .map(|message| dialect.answered(message).len())
        .sum();
    let mut old = all.saturating_sub(keep as usize);
    if old == 0 {
        return 0;
    }
    let Some(Value::Array(messages)) = request.to_mut().get_mut(member) else {
        return 0;
    };
    let mut cleared = 0;
    for message in messages {
        if old == 0 {
            break;
        }
        // Those without content are counted as well.
        let here = dialect.answered(message).len();
        for result in dialect.results(message).into_iter().take(old) {
            let text = match &*result.content {
                Value::String(text) => Cow::Borrowed(text.as_str()),
                Value::Null => continue,
                other => Cow::Owned(other.to_string()),
            };
            let is_mark = text.starts_with(MARK) && text.len() <= MARK_MAX;
            if text.len() <= LEAST || is_mark {
                continue;
            }
            let mark = mark(&text, &result.call);
            *result.content = Value::String(mark);
            cleared += 1;
        }
        old = old.saturating_sub(here);
    }
    cleared
}

/// How large the result was, and by what it can be found again: the call of the fleet where it is its envelope, and the model's call.
fn mark(text: &str, call: &str) -> String {
    let size = text.len();
    let call = &call[..call.floor_char_boundary(CALL_MAX)];
    match fleet_call(text) {
        Some(id) => format!("{MARK}{size} bytes, tool call {call}, call_id {id}]"),
        None => format!("{MARK}{size} bytes, tool call {call}]"),
    }
}

/// Of an object with a member `call_id` of its own, in front of every member that is a list or an object: envelopes begin so.
fn fleet_call(text: &str) -> Option<fleet::ids::CallId> {
    let (before, rest) = text.strip_prefix('{')?.split_once("\"call_id\"")?;
    if before.contains(['{', '[']) {
        return None;
    }
    let id = rest.trim_start_matches([' ', ':', '"']).get(..36)?;
    id.parse().ok()
}

#[cfg(test)]
mod tests {
    use fleet::manifest::ChatProtocol;
    use serde_json::json;

    use super::{super::super::dialect, *};

    const ID: &str = "0192a6a0-0000-7000-8000-000000000001";

    #[test]
    fn a_mark_names_the_call_of_an_envelope_and_no_other() {
        let named = |text: String| mark(&text, "c1").contains(ID);
        assert!(named(format!(
            r#"{{"call_id":"{ID}","state":"succeeded"}}"#
        )));
        assert!(named(format!(r#"{{"attempts": 1, "call_id": "{ID}"}}"#)));
        assert!(!named(format!(r#"{{"note": {{"call_id": "{ID}"}}}}"#)));
        assert!(!named(format!(r#"{{"notes": [{{"call_id": "{ID}"}}]}}"#)));
        assert!(!named(format!(r#"see "call_id": "{ID}""#)));
        assert!(mark("x", &"长".repeat(1_000)).len() <= MARK_MAX);
    }

    #[test]
    fn a_result_that_begins_like_a_mark_is_cleared_too() {
        let result = |text: String| json!({"role": "tool", "tool_call_id": "a", "content": text});
        let long = result(format!("{MARK}{}", "x".repeat(1_000)));
        let request = json!({"messages": [long, result("last".to_owned())]});
        let Value::Object(request) = request else {
            panic!("it is one")
        };
        let mut request = Cow::Owned(request);
        let dialect = dialect::of(ChatProtocol::OpenaiChat);
        assert_eq!(results(dialect, &mut request, 1), 1);
        assert_eq!(results(dialect, &mut request, 1), 0);
    }
}

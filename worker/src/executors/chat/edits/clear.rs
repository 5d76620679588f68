//! Leaves old results of tools out of a conversation, with a mark in the place of each. Pure.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::super::dialect::Dialect;

/// A shorter result stays: its mark would save nothing.
const LEAST: usize = 200;
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
            if text.len() <= LEAST || text.starts_with(MARK) {
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
    match fleet_call(text) {
        Some(id) => format!("{MARK}{size} bytes, tool call {call}, call_id {id}]"),
        None => format!("{MARK}{size} bytes, tool call {call}]"),
    }
}

fn fleet_call(text: &str) -> Option<fleet::ids::CallId> {
    let (_, rest) = text.split_once("\"call_id\"")?;
    let id = rest.trim_start_matches([' ', ':', '"']).get(..36)?;
    id.parse().ok()
}

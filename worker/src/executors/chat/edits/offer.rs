//! `tool_selection`: offers the model the tools that the conversation needs.

use std::{borrow::Cow, collections::HashSet};

use fleet::{
    manifest::{FIND_TOOLS, ToolSelection},
    modes::Brake,
};
use serde_json::{Map, Value, json};

use super::{
    super::{dialect::Dialect, estimate},
    interceptor::{Edit, ModelInterceptor, ModelRequest},
    tool_selection::{Selected, found, select},
};

/// `tool_selection`, for one call.
pub(super) struct ToolOffer<'s> {
    pub(super) spec: &'s ToolSelection,
    /// The definitions that the fleet adds to those of the request.
    pub(super) of_fleet: Vec<Value>,
    /// The tool that the model is told of as the one for what the user asks.
    pub(super) hinted: Option<String>,
}

impl ModelInterceptor for ToolOffer<'_> {
    fn brake(&self) -> Brake {
        Brake::ToolSelection
    }

    fn before(&self, request: &mut ModelRequest<'_>) -> Option<Edit> {
        let dialect = request.dialect;
        let own = request.members.get("tools").and_then(Value::as_array);
        let own = own.map_or(&[][..], Vec::as_slice);
        let all: Vec<&Value> = own.iter().chain(&self.of_fleet).collect();
        let offered: Vec<_> = all.iter().map(|tool| dialect.offered(tool)).collect();
        let said = request.said().concat();
        let named = found_in(dialect, request.original);
        let mut bound: HashSet<&str> = named.iter().map(String::as_str).collect();
        bound.extend(self.hinted.as_deref());
        bound.extend(dialect.chosen(request.original));
        bound.extend(called(dialect, request.original).map(|call| call.1));
        let selected = select(self.spec, &said, &offered, &bound);
        if !matches!(selected, Selected::Kept(_)) && self.of_fleet.is_empty() {
            return None;
        }
        // Where nothing is known of what is needed, the way to the fleet's tools stands for more of them than may be chosen.
        let is_few = self.of_fleet.len() <= self.spec.max as usize;
        let stays = |place: &usize| {
            let name = offered[*place].name.unwrap_or_default();
            let is_always = self.spec.always.iter().any(|always| always == name);
            is_few || *place < own.len() || is_always || name == FIND_TOOLS || bound.contains(name)
        };
        let kept = match selected {
            Selected::Kept(kept) => kept,
            Selected::All => (0..all.len()).collect(),
            Selected::Unknown => (0..all.len()).filter(stays).collect(),
        };
        let tools: Vec<Value> = kept.iter().map(|place| all[*place].clone()).collect();
        let names: Vec<&str> = kept
            .iter()
            .filter_map(|place| offered[*place].name)
            .collect();
        let had: u64 = all.iter().map(|tool| estimate::tokens(tool)).sum();
        let has: u64 = tools.iter().map(estimate::tokens).sum();
        let mut done = Map::new();
        for (name, value) in [
            ("of", json!(all.len())),
            ("added", json!(self.of_fleet.len())),
            ("kept", json!(names)),
            ("tokens", json!(had)),
            ("to", json!(has)),
        ] {
            done.insert(name.to_owned(), value);
        }
        request
            .members
            .to_mut()
            .insert("tools".to_owned(), Value::Array(tools));
        Some(done)
    }
}

/// The names of the tools that a request has.
pub(super) fn in_request<'r>(
    dialect: &dyn Dialect,
    request: &'r Map<String, Value>,
) -> HashSet<&'r str> {
    let tools = request.get("tools").and_then(Value::as_array);
    names(dialect, tools.map_or(&[][..], Vec::as_slice)).collect()
}

/// The names of these definitions.
pub(super) fn names<'t>(
    dialect: &dyn Dialect,
    tools: &'t [Value],
) -> impl Iterator<Item = &'t str> {
    tools.iter().filter_map(|tool| dialect.offered(tool).name)
}

fn messages<'r>(
    dialect: &dyn Dialect,
    request: &'r Map<String, Value>,
) -> impl Iterator<Item = &'r Value> {
    let messages = request.get(dialect.messages()).and_then(Value::as_array);
    messages.into_iter().flatten()
}

/// The tools that the conversation has called: by which id, and their names.
fn called<'r>(
    dialect: &'static dyn Dialect,
    request: &'r Map<String, Value>,
) -> impl Iterator<Item = (&'r str, &'r str)> {
    let calls = messages(dialect, request).flat_map(move |message| dialect.calls(message));
    calls.map(|call| (call.id, call.name))
}

/// The tools that answers of `find_tools` have named, and no other text. An id that a model gives twice is that of its last call.
fn found_in(dialect: &'static dyn Dialect, request: &Map<String, Value>) -> Vec<String> {
    let mut named = Vec::new();
    let mut asked: HashSet<&str> = HashSet::new();
    for message in messages(dialect, request) {
        if dialect
            .answered(message)
            .into_iter()
            .any(|id| asked.contains(id))
        {
            let mut answer = message.clone();
            let results = dialect.results(&mut answer).into_iter();
            for result in results.filter(|result| asked.contains(result.call.as_str())) {
                let text = text(result.content);
                named.extend(found(&text).iter().map(ToString::to_string));
            }
        }
        for id in dialect.answered(message) {
            asked.remove(id);
        }
        for call in dialect.calls(message) {
            if call.name == FIND_TOOLS {
                asked.insert(call.id);
            } else {
                asked.remove(call.id);
            }
        }
    }
    named
}

/// What a result says.
fn text(content: &Value) -> Cow<'_, str> {
    match content {
        Value::String(text) => Cow::Borrowed(text),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            Cow::Owned(texts.collect())
        }
        other => Cow::Owned(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use fleet::manifest::ChatProtocol;

    use super::{super::super::dialect, *};

    #[test]
    fn the_result_of_another_tool_is_no_answer_of_find_tools_also_by_its_id() {
        let call = |name: &str| json!({"role": "assistant", "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": name, "arguments": "{}"}}]});
        let result = |tool: &str| {
            let content = json!({"tools": [{"name": tool}]}).to_string();
            json!({"role": "tool", "tool_call_id": "call_0", "content": content})
        };
        let messages = [
            call("find_tools"),
            result("found"),
            result("again"),
            call("web_search"),
            result("foisted"),
            call("find_tools"),
            call("web_search"),
            result("late"),
        ];
        let Value::Object(request) = json!({ "messages": messages }) else {
            panic!("it is one")
        };
        let named = found_in(dialect::of(ChatProtocol::OpenaiChat), &request);
        assert_eq!(named, ["found"]);
    }
}

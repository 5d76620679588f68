//! What every dialect knows of its protocol, and how a reply is looked into.

use serde::Serialize;
use serde_json::{Map, Value};

/// One vendor's form of requests and replies.
pub(in crate::executors::chat) trait Dialect: Send + Sync {
    /// The members of a request that hold what was said so far.
    fn said(&self) -> &'static [&'static str];

    /// The members of a request that say how long the answer may be, in tokens.
    fn answer_limits(&self) -> &'static [&'static str];

    /// Headers without which the vendor takes no request.
    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Whether the request wants tools to be called.
    fn has_tools(&self, request: &Map<String, Value>) -> bool {
        is_filled(request.get("tools"))
    }

    /// Whether it wants an answer that keeps to a JSON Schema.
    fn has_schema(&self, request: &Map<String, Value>) -> bool;

    /// The types of a content part that is an image.
    fn images(&self) -> &'static [&'static str];

    /// Whether the caller's program runs a tool of this type, and not the vendor.
    fn runs_at_the_caller(&self, tool: &Map<String, Value>) -> bool;

    /// Other members of a request that have the vendor run something, and what they are named in `hosted_tools`.
    fn hosting(&self) -> &'static [(&'static str, &'static str)];

    /// Whether a body with a status of success says that the request has failed.
    fn has_failed(&self, reply: &Map<String, Value>) -> bool {
        is_there(reply.get("error")) || reply.get("object").is_some_and(|it| it == "error")
    }

    /// What a reply has beside its frame; `None`: it is no reply of this protocol.
    fn answer<'r>(&self, reply: &'r Map<String, Value>) -> Option<&'r Value>;

    /// Why the model stopped.
    fn finish(&self, reply: &Map<String, Value>) -> Finish;

    /// Whether the reply has neither content nor a call of a tool nor a refusal.
    fn is_empty(&self, reply: &Map<String, Value>) -> bool;

    /// The vendor's count; `None` where it has none.
    fn usage(&self, reply: &Map<String, Value>) -> Option<TokenUsage>;
}

/// Why a model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::executors::chat) enum Finish {
    /// It had said what it wanted to say.
    Stop,
    /// It wants tools to be called.
    ToolCalls,
    /// Its answer had no more room.
    Length,
    /// It, or its vendor, does not answer this.
    Refusal,
    /// Something that nobody here knows.
    Other,
}

/// How many tokens a request took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(in crate::executors::chat) struct TokenUsage {
    /// Everything that was read, what the vendor had kept included.
    pub(in crate::executors::chat) input: u64,
    /// What the vendor had kept of that.
    pub(in crate::executors::chat) cached_input: u64,
    /// What it has kept of that for later.
    pub(in crate::executors::chat) cache_write: u64,
    /// Everything that was written, reasoning included.
    pub(in crate::executors::chat) output: u64,
    /// The reasoning in that.
    pub(in crate::executors::chat) reasoning: u64,
    /// Whether the vendor said nothing, so that these are guesses.
    pub(in crate::executors::chat) estimated: bool,
}

/// A count that the vendor gives; absent ones are none. More than 10^12 is no count.
pub(super) fn count(usage: &Value, path: &str) -> u64 {
    let counted = usage.pointer(path).and_then(Value::as_u64);
    counted
        .filter(|tokens| *tokens <= 1_000_000_000_000)
        .unwrap_or(0)
}

/// The object with the vendor's count, if it has this member as a number.
pub(super) fn counted<'r>(reply: &'r Map<String, Value>, member: &str) -> Option<&'r Value> {
    let usage = reply.get("usage")?;
    usage
        .get(member)
        .and_then(Value::as_u64)
        .map(|_is_one| usage)
}

pub(super) fn is_there(value: Option<&Value>) -> bool {
    value.is_some_and(|value| !value.is_null())
}

/// Whether it is a text, a list or an object with something in it.
pub(super) fn is_filled(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null | Value::Bool(_) | Value::Number(_)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(members)) => !members.is_empty(),
    }
}

/// The text of a member.
pub(super) fn word<'v>(value: &'v Value, member: &str) -> &'v str {
    value
        .get(member)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The items of a list; none of what is no list.
pub(super) fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

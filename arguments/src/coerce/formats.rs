//! Words around arguments: of models that wrap them, and of the published formats of calls.

use serde_json::Value;

/// Keys in which some models wrap the arguments.
pub const WRAPPERS: [&str; 8] = [
    "arguments",
    "args",
    "parameters",
    "params",
    "input",
    "tool_input",
    "action_input",
    "kwargs",
];
/// Beside a wrapper: the name of the tool. Some APIs put the whole call into the last of these.
pub(super) const NAMES: [&str; 4] = [NAME, "tool", "tool_name", FUNCTION];
pub(super) const NAME: &str = "name";
const FUNCTION: &str = "function";
/// The same, but only with this tool's name: with another value they say nothing of a call.
const NAMES_OF_THIS: [&str; 4] = ["toolName", "function_name", "recipient_name", "action"];
/// A prefix that some put before the tool's name.
const NAMESPACE: &str = "functions.";
/// Keys whose value has the name and the arguments of a call, in some formats: OpenAI's chat, Gemini in JSON and in Python, and
/// Bedrock.
pub(super) const CALLS: [&str; 7] = [
    FUNCTION,
    PARTS[0],
    PARTS[1],
    "toolUse",
    "tool_use",
    "toolCall",
    "tool_call",
];
/// Gemini's.
const PARTS: [&str; 2] = ["functionCall", "function_call"];
/// Keys whose value has several calls: nothing says which of them this call is.
pub(super) const LISTS: [&str; 3] = ["tool_calls", "toolCalls", "tool_uses"];
/// Beside a wrapper: the id of the call.
const IDS: [&str; 6] = [
    "id",
    "call_id",
    "tool_call_id",
    "tool_use_id",
    "toolCallId",
    "toolUseId",
];
/// Beside a wrapper: that it is a call.
pub(super) const TYPE: &str = "type";
const TYPES_OF_CALLS: [&str; 5] = [
    "function",
    "tool_use",
    "tool_call",
    "tool-call",
    "function_call",
];
/// The other members in the published format of this `type`, and their allowed values: OpenAI's chat (in pieces too) and
/// responses, and Anthropic's messages. Without the type they are words like any others.
const DETAILS: [(&str, &[Detail]); 3] = [
    ("function", &[("index", Value::is_u64)]),
    (
        "function_call",
        &[
            ("status", is_complete),
            ("namespace", Value::is_string),
            ("caller", Value::is_object),
            ("created_by", Value::is_string),
        ],
    ),
    (
        "tool_use",
        &[
            ("caller", Value::is_object),
            ("toolset_name", Value::is_string),
            ("cache_control", Value::is_object),
        ],
    ),
];
/// The members that Gemini has beside a `functionCall`, which has no type.
const DETAILS_OF_A_PART: [Detail; 3] = [
    ("thought", Value::is_boolean),
    ("thoughtSignature", Value::is_string),
    ("thought_signature", Value::is_string),
];
/// Members that may stand beside the name of this tool and its arguments in any format: those of MCP, of JSON-RPC, and those
/// about how the call went. Without the name they are words like any others.
pub(super) const DETAILS_OF_ANY: [Detail; 6] = [
    ("_meta", Value::is_object),
    ("jsonrpc", |version| version == "2.0"),
    ("method", |method| method == "tools/call"),
    ("index", Value::is_u64),
    ("error", Value::is_null),
    ("output", Value::is_null),
];
/// A property that was sent.
pub(super) type Entry<'a> = (&'a str, &'a Value);
/// A member that a format has beside the arguments, and its allowed values; null counts as absent.
type Detail = (&'static str, fn(&Value) -> bool);

/// The arguments of an incomplete call may be only their first half.
fn is_complete(status: &Value) -> bool {
    status == "completed"
}

/// Whether a property says only that this is a call, or which one.
pub(super) fn is_of_any_call((key, value): Entry<'_>) -> bool {
    match key {
        TYPE => value
            .as_str()
            .is_some_and(|word| TYPES_OF_CALLS.contains(&word)),
        key => IDS.contains(&key) && (value.is_string() || value.is_number()),
    }
}

/// The members that may stand beside the arguments in their format.
pub(super) fn details(args: &Value) -> &'static [Detail] {
    let is_part = |key: &str| is_one_of(&PARTS, key);
    if entries(args).any(|(key, _)| is_part(key)) {
        return &DETAILS_OF_A_PART;
    }
    let mut kinds = entries(args).filter(|(key, _)| is_one_of(&[TYPE], key));
    let kind = kinds.next().and_then(|(_, kind)| kind.as_str());
    let format = DETAILS.iter().find(|(of, _)| Some(*of) == kind);
    format.map_or(&[], |(_, details)| details)
}

/// Whether the format has this property there.
pub(super) fn is_of_format(details: &[Detail], (key, value): Entry<'_>) -> bool {
    let mut details = details.iter();
    details.any(|(name, may_be)| *name == key && (value.is_null() || may_be(value)))
}

/// Whether a property names this tool.
pub(super) fn names((key, value): Entry<'_>, tool: &str) -> bool {
    (is_one_of(&NAMES, key) || is_one_of(&NAMES_OF_THIS, key))
        && value.as_str().is_some_and(|name| {
            name == tool
                || name
                    .strip_prefix(NAMESPACE)
                    .is_some_and(|name| name == tool)
        })
}

pub(super) fn is_name(key: &str) -> bool {
    NAMES.contains(&key) || NAMES_OF_THIS.contains(&key)
}

pub(super) fn entries(args: &Value) -> impl Iterator<Item = Entry<'_>> {
    let entries = args.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.as_str(), value))
}

/// In any case: a word in another case must not let the envelope run as arguments.
pub(super) fn is_one_of(words: &[&str], key: &str) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(key))
}

pub(super) fn is_word(key: &str, tool: &str) -> bool {
    is_one_of(&WRAPPERS, key) || key == tool
}

pub(super) fn is_companion(key: &str) -> bool {
    is_one_of(&NAMES, key)
        || is_one_of(&IDS, key)
        || is_one_of(&CALLS, key)
        || is_one_of(&[TYPE], key)
}

//! What every dialect knows of its protocol, and how a reply is looked into.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    assembler::Assembler,
    members::{is_filled, is_there, texts},
    message::{OfferedTool, Speaker, ToolCall, ToolResult},
};

/// One vendor's form of requests and replies.
pub(in crate::executors::chat) trait Dialect: Send + Sync {
    /// The members of a request that hold what was said so far.
    fn said(&self) -> &'static [&'static str];

    /// The member of a request that has its messages.
    fn messages(&self) -> &'static str {
        "messages"
    }

    /// What a reply says, as messages of the next request.
    fn said_by_model(&self, reply: &Map<String, Value>) -> Vec<Value>;

    /// Who speaks in a message.
    fn speaker(&self, message: &Value) -> Speaker;

    /// The tools that a message calls.
    fn calls<'m>(&self, message: &'m Value) -> Vec<ToolCall<'m>>;

    /// The results of tools in a message: which call each is of, and what it says.
    fn results<'m>(&self, message: &'m mut Value) -> Vec<ToolResult<'m>>;

    /// The ids of the calls that a message has results of.
    fn answered<'m>(&self, message: &'m Value) -> Vec<&'m str>;

    /// What the user says in a message, in all of its parts.
    fn user_texts<'m>(&self, message: &'m Value) -> Vec<&'m str> {
        match self.speaker(message) {
            Speaker::User => texts(message.get("content")).collect(),
            Speaker::System | Speaker::Model | Speaker::Tool => Vec::new(),
        }
    }

    /// A message of the user.
    fn user_message(&self, text: &str) -> Value {
        json!({"role": "user", "content": text})
    }

    /// Puts messages of one speaker in a row together, where the protocol has them alternate.
    fn joined(&self, messages: Vec<Value>) -> Vec<Value> {
        messages
    }

    /// A request with one message of the user.
    fn question(&self, system: &str, text: &str) -> Map<String, Value> {
        let system = json!({"role": "system", "content": system});
        let mut request = Map::new();
        request.insert(
            "messages".to_owned(),
            json!([system, self.user_message(text)]),
        );
        request
    }

    /// Adds a note of the system behind the messages of a request.
    fn note(&self, request: &mut Map<String, Value>, text: &str);

    /// A definition of a tool.
    fn offered<'t>(&self, tool: &'t Value) -> OfferedTool<'t>;

    /// The tools that the request says are to be called.
    fn chosen<'r>(&self, request: &'r Map<String, Value>) -> Vec<&'r str>;

    /// The texts of a reply that are the model's own.
    fn own_texts<'r>(&self, reply: &'r mut Map<String, Value>) -> Vec<&'r mut String>;

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

    /// Whether a message stands for one that the vendor keeps.
    fn refers_to_kept(&self, _request: &Map<String, Value>) -> bool {
        false
    }

    /// Asks for the answer as a stream.
    fn ask_for_stream(&self, request: &mut Map<String, Value>) {
        request.insert("stream".to_owned(), Value::Bool(true));
    }

    /// What puts such a stream together.
    fn assembler(&self) -> Box<dyn Assembler>;

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

impl Finish {
    /// Its word, as in results.
    pub(in crate::executors::chat) const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::Refusal => "refusal",
            Self::Other => "other",
        }
    }
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

//! The messages of the protocol: what we send, with arguments byte for byte, and what a message that came is. Pure.

use fleet::{
    outcome::ToolFailure,
    said,
    wire::{code::Code, message::Message},
};
use serde::{Deserialize, Serialize};
use serde_json::{
    Map, Value, json,
    value::{RawValue, to_raw_value},
};

use crate::executors::{AttemptContext, output};

/// The most bytes of the id of a question that is answered.
pub(super) const ASKED_ID_MAX: usize = 256;

/// A revision of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Revision {
    /// Without a handshake: each request says what it needs to.
    Modern,
    /// With `initialize`, and over HTTP perhaps with a session: one of [`Self::OLDER`].
    Legacy(&'static str),
}

impl Revision {
    /// The older revisions that this client speaks, the newest first.
    pub(super) const OLDER: [&'static str; 4] =
        ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

    /// Its date, as the protocol writes it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Modern => "2026-07-28",
            Self::Legacy(date) => date,
        }
    }
}

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Request {
    /// Its number, which no other request on the same connection has.
    pub(super) id: u64,
    pub(super) method: &'static str,
    /// What the header `Mcp-Name` says.
    pub(super) name: Option<String>,
    /// The whole message.
    pub(super) body: Vec<u8>,
}

impl Request {
    /// With these parameters, to which `_meta` is added.
    pub(super) fn new(
        id: u64,
        method: &'static str,
        params: &impl Serialize,
        revision: Revision,
        meta: Map<String, Value>,
    ) -> Self {
        let params = to_raw_value(params).expect("parameters are made of text and numbers");
        Self {
            id,
            method,
            name: None,
            body: message(Some(id), method, &with_meta(params.get(), revision, meta)),
        }
    }

    #[must_use]
    pub(super) fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }
}

/// A message that nobody answers.
pub(super) fn notification(method: &str, params: &impl Serialize, revision: Revision) -> Vec<u8> {
    let params = to_raw_value(params).expect("parameters are made of text and numbers");
    message(None, method, &with_meta(params.get(), revision, Map::new()))
}

/// An answer to what a server of the older revision asks: `ping` is answered, all else is unknown here.
pub(super) fn reply(id: &RawValue, method: &str) -> Vec<u8> {
    let answer = if method == "ping" {
        r#""result":{}"#.to_owned()
    } else {
        r#""error":{"code":-32601,"message":"this client answers no requests during a call"}"#
            .to_owned()
    };
    format!(r#"{{"jsonrpc":"2.0","id":{},{answer}}}"#, id.get()).into_bytes()
}

fn message(id: Option<u64>, method: &str, params: &str) -> Vec<u8> {
    let id = id.map_or_else(String::new, |id| format!(r#""id":{id},"#));
    format!(r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":{params}}}"#).into_bytes()
}

/// An object with `_meta` behind its members, which stay as they are written.
fn with_meta(params: &str, revision: Revision, mut meta: Map<String, Value>) -> String {
    if revision == Revision::Modern {
        let fields = [
            ("protocolVersion", json!(revision.as_str())),
            ("clientCapabilities", capabilities(revision)),
            ("clientInfo", client_info()),
        ];
        for (name, value) in fields {
            meta.insert(format!("io.modelcontextprotocol/{name}"), value);
        }
    }
    if meta.is_empty() {
        return params.to_owned();
    }
    let inner = params
        .trim()
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'));
    let inner = inner.expect("parameters are an object");
    let comma = if inner.trim().is_empty() { "" } else { "," };
    format!(r#"{{{inner}{comma}"_meta":{}}}"#, Value::Object(meta))
}

/// What is said of this program.
pub(super) fn client_info() -> Value {
    json!({"name": "toolfleet", "version": env!("CARGO_PKG_VERSION")})
}

/// What this client can do: put a tool's questions to the caller, and follow a task. A server of the older revision may ask
/// nothing, for its call has begun by then and cannot wait.
pub(super) fn capabilities(revision: Revision) -> Value {
    match revision {
        Revision::Modern => json!({
            "elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        }),
        Revision::Legacy(_) => json!({}),
    }
}

/// The facts of an attempt, as its request tells them.
pub(super) fn facts(context: &AttemptContext) -> Map<String, Value> {
    let facts = context.facts().into_iter();
    let facts: Map<String, Value> = facts
        .map(|(name, value)| (name.replace('-', "_"), Value::String(value)))
        .collect();
    let mut meta = Map::from_iter([
        (
            "io.toolfleet/idempotency-key".to_owned(),
            json!(context.idempotency_key),
        ),
        ("io.toolfleet/attempt".to_owned(), Value::Object(facts)),
    ]);
    let labels = [("session", &context.session), ("run", &context.run)];
    for (name, label) in labels {
        if let Some(label) = label {
            meta.insert(format!("io.toolfleet/{name}"), json!(label));
        }
    }
    let trace = &context.trace;
    for (name, value) in [
        ("traceparent", &trace.traceparent),
        ("tracestate", &trace.tracestate),
        ("baggage", &trace.baggage),
    ] {
        if let Some(value) = value {
            meta.insert(name.to_owned(), json!(value));
        }
    }
    if context.progress.is_heard() {
        meta.insert("progressToken".to_owned(), json!(context.attempt_id));
    }
    meta
}

/// The parameters of a call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CallParams<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: &'a RawValue,
    /// What the caller said to what the tool asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) input_responses: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_state: Option<&'a RawValue>,
}

/// A message that came.
#[derive(Debug)]
pub(super) enum Incoming {
    /// An answer to the request with this id, as it is written.
    Answer {
        id: Option<Box<RawValue>>,
        answer: RpcAnswer,
    },
    /// What the server wants to know.
    Asked { id: Box<RawValue>, method: String },
    /// What the server tells.
    Told {
        method: String,
        params: Option<Box<RawValue>>,
    },
}

/// An answer.
#[derive(Debug)]
pub(super) enum RpcAnswer {
    /// A result, and a flaw where characters of it were replaced.
    Result(Box<RawValue>, Option<ToolFailure>),
    /// An error of the protocol.
    Error(RpcError),
}

/// An error of the protocol.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct RpcError {
    pub(super) code: i64,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) data: Option<Box<RawValue>>,
}

impl RpcError {
    /// Of a version of the protocol that a server does not speak; `data` says which it does.
    const UNSUPPORTED: i64 = -32_022;

    /// Whether it refuses a version and names this one as spoken all the same: some servers refuse the first request of a client.
    pub(super) fn names_as_spoken(&self, revision: Revision) -> bool {
        #[derive(Deserialize)]
        struct Versions {
            supported: Vec<String>,
        }

        let data = self.data.as_ref().map(|data| data.get());
        let versions = data.and_then(|data| serde_json::from_str::<Versions>(data).ok());
        self.code == Self::UNSUPPORTED
            && versions.is_some_and(|versions| {
                let mut spoken = versions.supported.iter();
                spoken.any(|version| version == revision.as_str())
            })
    }
}

#[derive(Deserialize)]
struct AnyMessage {
    #[serde(default)]
    id: Option<Box<RawValue>>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<Box<RawValue>>,
    #[serde(default)]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<RpcError>,
}

/// Whether an id as it is written is this number: servers write it back as it was.
pub(super) fn is_id(written: &str, id: u64) -> bool {
    written.trim() == id.to_string()
}

/// What came cannot be used, for this reason.
pub(super) fn no_answer(why: Message) -> ToolFailure {
    let what = said!(
        "what the MCP server sent cannot be used: {why}",
        "MCP 服务器发来的内容无法使用：{why}",
        why
    );
    ToolFailure::new(Code::OutputInvalid, what)
}

pub(super) fn no_message() -> Message {
    Message::fixed("it is no message of MCP", "它不是 MCP 消息")
}

/// What the bytes are. A batch, a member that stands twice, and an answer with both a result and an error are nothing.
///
/// A message may be nested as deep as it likes: one tool of a list that is too deep is none of the others' fault. Who keeps a part of one
/// says how deep that may be.
///
/// # Errors
///
/// A sentence: they are no message.
pub(super) fn read(bytes: &[u8]) -> Result<Incoming, Message> {
    let none = no_message;
    let (json, mended) = output::json_of_any_depth(bytes)?;
    if !json.get().trim_start().starts_with('{') {
        return Err(none());
    }
    let message: AnyMessage = serde_json::from_str(json.get()).map_err(|_other| none())?;
    let AnyMessage {
        id,
        method,
        params,
        result,
        error,
    } = message;
    let id = id.filter(|id| id.get() != "null");
    match (method, id, result, error) {
        (None, id, Some(result), None) => Ok(Incoming::Answer {
            id,
            answer: RpcAnswer::Result(result, mended),
        }),
        (None, id, None, Some(error)) => Ok(Incoming::Answer {
            id,
            answer: RpcAnswer::Error(error),
        }),
        (Some(method), Some(id), None, None) => Ok(Incoming::Asked { id, method }),
        (Some(method), None, None, None) => Ok(Incoming::Told { method, params }),
        (_, _, _, _) => Err(none()),
    }
}

/// How far a tool says it is.
#[derive(Debug, PartialEq)]
pub(super) struct ToldProgress {
    /// Of the attempt that it is about.
    pub(super) token: String,
    pub(super) fraction: Option<f64>,
    pub(super) words: String,
}

impl ToldProgress {
    /// The most bytes of a token: those that this client gives are the ids of attempts.
    const TOKEN_MAX: usize = 64;

    /// Of the parameters of `notifications/progress`; `None`: they are none, or have a token that this client never gives.
    pub(super) fn read(params: &RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ProgressParams<'a> {
            #[serde(borrow)]
            progress_token: &'a RawValue,
            #[serde(default)]
            progress: Option<f64>,
            #[serde(default)]
            total: Option<f64>,
            #[serde(default)]
            message: Option<String>,
        }
        let told: ProgressParams<'_> = serde_json::from_str(params.get()).ok()?;
        let token = Some(told.progress_token.get()).filter(|token| token.len() <= Self::TOKEN_MAX);
        let token = serde_json::from_str(token?).ok()?;
        let fraction = match (told.progress, told.total) {
            (Some(done), Some(total)) if total > 0.0 => Some(done / total),
            (_, _) => None,
        };
        Some(Self {
            token,
            fraction,
            words: told.message.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_go_out_byte_for_byte() {
        let arguments = r#"{"b":1.10,"a":9007199254740993,"a2":"\u00e9"}"#;
        let raw = RawValue::from_string(arguments.to_owned()).unwrap();
        let params = CallParams {
            name: "a \"b\"",
            arguments: &raw,
            input_responses: None,
            request_state: None,
        };
        let request = Request::new(
            3,
            "tools/call",
            &params,
            Revision::Legacy("2025-11-25"),
            Map::new(),
        );
        assert_eq!(
            String::from_utf8(request.body).unwrap(),
            format!(
                r#"{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"name":"a \"b\"","arguments":{arguments}}}}}"#
            )
        );
        let request = Request::new(3, "tools/call", &params, Revision::Modern, Map::new());
        let body = String::from_utf8(request.body).unwrap();
        assert!(
            body.contains(&format!(
                r#""arguments":{arguments},"_meta":{{"io.modelcontextprotocol/"#
            )),
            "{body}"
        );
    }

    #[test]
    fn a_message_is_one_thing_or_nothing() {
        let kind = |text: &str| match read(text.as_bytes()) {
            Ok(Incoming::Answer {
                answer: RpcAnswer::Result(..),
                ..
            }) => "result",
            Ok(Incoming::Answer {
                answer: RpcAnswer::Error(_),
                ..
            }) => "error",
            Ok(Incoming::Asked { .. }) => "asked",
            Ok(Incoming::Told { .. }) => "told",
            Err(_) => "nothing",
        };
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, "result"),
            (
                r#"{"id":1,"error":{"code":-32603,"message":"x","data":[1]}}"#,
                "error",
            ),
            (r#"{"id":null,"error":{"code":-32603}}"#, "error"),
            (r#"{"id":"x","method":"ping"}"#, "asked"),
            (r#"{"method":"notifications/progress","params":{}}"#, "told"),
            (r#"{"id":1,"result":{},"error":{"code":1}}"#, "nothing"),
            (r#"{"id":1,"result":{},"result":{}}"#, "nothing"),
            (r#"{"id":1,"method":"x","result":{}}"#, "nothing"),
            (r#"[{"id":1,"result":{}}]"#, "nothing"),
            (r#"{"id":1,"error":{"code":"x"}}"#, "nothing"),
            (r#"{"id":1}"#, "nothing"),
            (
                format!(
                    r#"{{"id":1,"result":{}{}}}"#,
                    "[".repeat(100_000),
                    "]".repeat(100_000)
                )
                .as_str(),
                "result",
            ),
            ("oops", "nothing"),
            ("", "nothing"),
            ("7", "nothing"),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
    }

    #[test]
    fn progress_names_its_attempt_with_a_token_of_bounded_length() {
        let of = |text: &str| ToldProgress::read(&RawValue::from_string(text.to_owned()).unwrap());
        let told = |fraction, words: &str| {
            Some(ToldProgress {
                token: "t".to_owned(),
                fraction,
                words: words.to_owned(),
            })
        };
        assert_eq!(
            of(r#"{"progressToken":"t","progress":1,"total":4,"message":"m"}"#),
            told(Some(0.25), "m")
        );
        assert_eq!(
            of(r#"{"progressToken":"\u0074","progress":7}"#),
            told(None, "")
        );
        for other in [
            r#"{"progressToken":7,"progress":1,"total":4}"#,
            r#"{"progressToken":["t"],"progress":1}"#,
            r#"{"progressToken":"t","progress":"x"}"#,
            r#"{"progress":1}"#,
            &format!(r#"{{"progressToken":"{}","progress":1}}"#, "t".repeat(64)),
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}

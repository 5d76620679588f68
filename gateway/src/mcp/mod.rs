//! The Model Context Protocol: the fleet's tools for every client that speaks it, over one POST a message.
//!
//! Nothing here decides about a call: what a client asks for is submitted as any caller's call is, and what comes of it is told in the
//! protocol's words. The modules stand in the order in which a message meets them:
//!
//! - over HTTP `forms` looks at what a request says of its body and of the answer, and `http` brings the message to `serve`;
//! - `message` takes a message apart (`members` without touching a byte), `negotiate` says which `revision` of the protocol it speaks,
//!   `serve` answers it for a `client`, whatever carries its messages, and `rpc` is how;
//! - `methods` lists what is served; `answer_code` says in a word what an answer comes to, and `answered` tells it who operates the
//!   gateway;
//! - `handshake` tells who serves; `definition` and `listing` show the tools, with the `key_argument` of those that write;
//! - `called` is a call as it is asked for, `catalogue` what is known of its tool, `derived_key` and `earlier` keep it from happening
//!   twice without a key of its own, `attempts` submits it;
//! - `envelope` reads what came of it, `words` says it to a model, and `result` is the answer; `exchange` is a call from its
//!   submission to there, with what is asked of its client in between: `asking` reads what that is (`input_requests` in the
//!   protocol's own form, `elicitation` with a form, `form_schema` says what may be in one, `exact` with its arguments), `askable`
//!   what the client declares, and `request_state` is what it sends back with its answers, signed by `state_keys`;
//! - `wishes` is what its client wants to hear of it meanwhile, from which `log_level` on, `notices` says that, and `streamed_call`
//!   is the stream, on which one of `client_sessions` is asked, whose `session_requests` a message cancels; `tool_bell` rings where
//!   tools have changed, and `subscription` tells that;
//! - `look` looks at a call by its id, for `get` and for `tasks`, and `task` says how a call stands as one, whose `question_names`
//!   are each of one question;
//! - `content` is what a folder has beside the tools, `prompts` and `resources` show it;
//! - `pipe` serves one client over its input and output.

mod answer_code;
mod answered;
mod askable;
mod asking;
mod attempts;
mod called;
pub(crate) mod catalogue;
mod client;
pub(crate) mod client_sessions;
pub(crate) mod content;
mod definition;
mod derived_key;
mod earlier;
mod elicitation;
mod envelope;
mod exact;
mod exchange;
mod form_schema;
mod forms;
mod get;
mod handshake;
mod http;
mod input_requests;
mod key_argument;
mod listing;
mod log_level;
mod look;
mod members;
mod message;
mod methods;
mod mirrored;
mod negotiate;
mod notices;
mod pipe;
mod prompts;
pub(crate) mod question_names;
mod request_state;
mod resources;
mod result;
mod revision;
mod rpc;
mod serve;
mod session_requests;
pub(crate) mod state_keys;
mod streamed_call;
mod subscription;
mod task;
mod tasks;
pub(crate) mod tool_bell;
mod wishes;
pub(crate) mod withheld;
mod words;

/// Where messages are sent to.
pub(crate) const PATH: &str = "/mcp";

pub(crate) use answered::note_unread;
pub(crate) use client::McpClient;
pub use content::McpContent;
pub(crate) use http::{end_session, refusal, serve, takes};
pub use pipe::{PipeClient, serve_pipe};

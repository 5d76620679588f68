//! The gateway: the contract of a fleet over HTTP, the same words, headers and envelopes.
//!
//! It holds nothing that decides. Every change goes through the dispatchers, over NATS, as any caller's does; of Postgres it reads the
//! documented views. So any number of gateways may run, and any of them may be killed: a caller sends again with its key, to whichever.
//!
//! The modules stand in the order in which a request meets them:
//!
//! - `edge` takes connections and looks at what stands before a body: whom it is for, from which page, and who asks (`auth`);
//! - `api` has the endpoints: a row each, and a file for what stands behind it. `asked` is what is known of a request, `query` and
//!   `body` its parts, `page` what is wanted of a list, `forward` its headers on their way to NATS, `form` and `decision` its
//!   fields;
//! - `ask` asks the dispatchers, `desk` is what calls are made with over HTTP and over a pipe, `referents` looks at whose answers
//!   stand in arguments, `submit` makes a call and waits for it, `wait` waits for one whose id is known, `when_left` says what
//!   becomes of one whose caller goes away; `views` says why the history cannot be read; `openapi` is the document that describes
//!   the API;
//! - `models` has the vendors' own packages ask models; `mcp` speaks the Model Context Protocol, and `listed` has the tools that it
//!   and the API show;
//! - `events` follows sessions for who may (`follower`), and sends what it hears; `turns` makes many calls as one
//!   turn and tells them through the speaker; `files` brings files to the dispatchers and back, a piece at a time;
//! - `console` has the pages for people, over the endpoints alone;
//! - `answer` makes their answer one over HTTP, by the table in `status`; `refusal` is what the gateway says itself, `headers` their names;
//! - `speaker` makes one stream of many calls, as a pure fold;
//! - `state` is what all endpoints work on, `run` starts and stops it in order.

mod config;

mod edge;

mod auth;

mod api;

mod asked;
mod body;
mod decision;
mod form;
mod forward;
mod page;
mod query;

mod ask;
mod desk;
mod listed;
mod referents;
mod submit;
mod value;
mod wait;
mod when_left;

mod mcp;
mod models;

mod events;
mod files;
mod follower;
mod turns;

mod looks;
mod views;

mod console;

mod openapi;

mod answer;
mod headers;
mod refusal;
mod room;
mod status;

pub mod speaker;

mod error;
mod run;
mod state;

pub use config::{Auth, Config};
pub use edge::hosts::{HostName, WebOrigin};
pub use error::RunError;
pub use mcp::{McpContent, PipeClient, serve_pipe};
pub use run::run;

/// The document of `OpenAPI` 3.1 that describes the API, as it is served at `/v1/openapi.json`: complete, without references to files.
pub fn document() -> &'static serde_json::Value {
    openapi::bundle::document()
}

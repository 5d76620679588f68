//! The worker: runs the calls of its queues and records what came of them.
//!
//! # Tools of one's own
//!
//! Implement [`Tool`] and give it to [`Worker::builder`]: the result is a program that is otherwise what `toolfleet worker` is.
//! It takes the same flags, applies its tools when it starts, and drains on SIGTERM.
//!
//! ```no_run
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//! use worker::{Effect, Tool, ToolContext, ToolError, Worker};
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Transfer {
//!     /// The account to take from, such as DE-001.
//!     from: String,
//!     /// How much, in cents.
//!     cents: u64,
//! }
//!
//! #[derive(Serialize, JsonSchema)]
//! struct Receipt {
//!     number: String,
//! }
//!
//! struct Bank;
//!
//! impl Tool for Bank {
//!     type Args = Transfer;
//!     type Output = Receipt;
//!     const NAME: &'static str = "transfer";
//!     const VERSION: i32 = 1;
//!     const EFFECT: Effect = Effect::Once;
//!     const DESCRIPTION: &'static str = "Transfers money out of an account.";
//!
//!     async fn call(&self, transfer: Transfer, context: ToolContext) -> Result<Receipt, ToolError> {
//!         if transfer.cents == 0 {
//!             return Err(ToolError::business("there is nothing to transfer"));
//!         }
//!         // Whatever goes wrong from here on leaves the effect unknown: `?` says so.
//!         let number = send(&transfer.from, transfer.cents, context.idempotency_key()).await?;
//!         Ok(Receipt { number })
//!     }
//! }
//! # async fn send(_: &str, _: u64, key: &str) -> std::io::Result<String> { Ok(key.to_owned()) }
//!
//! fn main() -> std::process::ExitCode {
//!     Worker::builder().tool(Bank).run()
//! }
//! ```
//!
//! [`tool`] says what each result means, `docs/executors/native.md` what becomes of it in the fleet. An executor for tools of
//! another kind is registered with [`Builder::executor`]; `docs/executors/own.md` shows how to write one. What stands in front of
//! all its tools, and may refuse a call, is an [`Interceptor`]: [`interceptor`] says what each hook may do.
//!
//! # Inside
//!
//! Deliver, gate, claim, ack, execute, complete, reply: `attempt` is the whole of it; read that first.
//!
//! - `stage` has the values that go from step to step; `arguments` has what the tool gets of a call's, `conversation` the messages
//!   that a model's request goes on from; `gate`, `claim`, `execute`, `intercept`, `executors`, `conclude`, `complete` and
//!   `dispose` are its parts. `onion` takes a call through the interceptors of the program. `retry_budgets` bounds how often a tool
//!   that fails is tried again, `timeouts` has those that the fleet learns. `large_results` says whether callers get a part of an
//!   answer. `mcp_discover` looks at what MCP servers offer, `find_tools` finds tools by what they do, with `relevance`, and
//!   `built_in` says which of these are applied. `redact` masks sensitive values, `handover` hands the files of calls over, `late`
//!   records outcomes that came too late.
//! - `heartbeat` keeps the lease, `leave` gives it up, `neighbours` fences dead workers of this machine. `cancel` ends attempts of
//!   cancelled calls, `progress` is what a tool tells while it runs, `parts` bounds the parts of its answer. `programs` has the
//!   slots of process tools, `inability` writes which tools cannot run here, `lacks` says it in the log once. `guard` is the small
//!   process between the worker and a process tool.
//! - `run` starts and stops all of it; `builder` and `apply` are for tools and executors of a program's own.

// One attempt, step by step.
mod attempt;
mod stage;

mod arguments;
mod conversation;
mod gate;
mod pause;
mod policy;

mod breaker;
mod cache;
mod consent;

mod programs;

mod appointments;
mod put_back;
mod waiting;

mod claim;
mod running;

mod execute;
mod handover;

mod files;

pub mod interceptor;
mod onion;

mod intercept;

mod answer;
mod news;
mod park;
mod parts;
mod progress;
mod redact;

mod conclude;
mod cool_down;

mod fallback;

mod complete;
mod find_tools;
mod large_results;
mod mcp_discover;
mod read_result;
mod relevance;
mod retry_budgets;
mod run_times;
mod timeouts;
mod todo_write;

mod dispose;
mod late;
mod reply;

// How a tool is run.
pub mod executors;

pub mod guard;

// What runs beside the attempts.
mod intake;

mod heartbeat;

mod cancel;
mod inability;
mod lacks;
mod neighbours;

mod leave;

// The process.
mod worker;

mod config;
mod error;
mod run;

// Tools and executors of a program's own.
pub mod tool;

mod apply;
mod brake_counts;
mod brakes;
mod budget;
mod builder;
mod built_in;

pub use fleet::{
    call::Effect,
    files::CallFile,
    wire::part::{Image, Part},
};

pub use crate::{
    builder::{Builder, Worker},
    built_in::built_in_of,
    config::Config,
    error::RunError,
    handover::GatewayUrl,
    interceptor::Interceptor,
    mcp_discover::discoverer_of,
    run::run,
    tool::{FileError, FileReader, Tool, ToolContext, ToolError},
};

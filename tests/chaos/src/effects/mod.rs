//! The world outside: tools of every kind, and a file that remembers every effect.
//!
//! ```text
//! tools      the tools, and the arguments that clients send them
//! manifests  the manifests of these tools
//! file       the file of effects: its writers and its reader
//! told       a tool's knowledge of its call
//! script     the meaning of each mode: pure
//! service    the common part of the HTTP and NATS services: effects, keys, and the switch that makes both fail
//! http       HTTP tools
//! nats       NATS tools
//! process    the program of process tools
//! native     tools of the worker's own program
//! tables     SQL tools: their tables, and the rows in them
//! ```
//!
//! An effect is on disk before the tool answers. What a tool does is decided by its arguments and by the attempt that it is
//! told, so a call behaves the same wherever and whenever it runs.
//!
//! A tool of mode [`Mode::Late`] applies [`LATE`] after the end of its attempt: a client that settles by the file of effects
//! looks at it later than that.

mod file;
mod http;
mod manifests;
pub mod native;
mod nats;
pub mod process;
mod script;
pub mod service;
mod tables;
mod told;
mod tools;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    file::{File, read},
    http::{spell, weather},
    manifests::{Places, approval, manifests},
    tables::{ACCOUNTS, Row, TOTAL, lay_out, read_tables, total},
    tools::{Executor, NOBODYS, OTHER_TENANT, TENANT, TOOLS, Tool, args, drawn, tenant, tool},
};

/// How long after the end of its attempt an effect of [`Mode::Late`] takes place.
pub const LATE: Duration = Duration::from_millis(700);
/// How long a tool of [`Mode::Slow`] keeps its answer back.
const SLOW: Duration = Duration::from_secs(1);
/// The size of an answer of [`Mode::Huge`], in bytes: beyond the limit in every manifest.
const HUGE: usize = 256 * 1024;

/// How a tool behaves when it is called. It is told in its arguments, so a call behaves the same wherever it runs.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Does it and says so.
    Ok,
    /// Does it and says so, after a second.
    Slow,
    /// Cannot be reached, or says that it starts nothing now. Its first attempt only, but for `unreachable` and `nats_nobody`.
    Refuse,
    /// Says no, in words for a model, and does nothing.
    Business,
    /// Breaks before it has done anything. Its first attempt only.
    ErrorBefore,
    /// Does it, and breaks then. Its first attempt only.
    ErrorAfter,
    /// Does it, and its connection or process ends without an answer. Its first attempt only.
    ResetAfter,
    /// Does nothing and says nothing. Its first attempt only.
    HangBefore,
    /// Does it and says nothing. Its first attempt only.
    HangAfter,
    /// Does it after its own timeout, when no worker waits any more. Its first attempt only.
    Late,
    /// Does it and answers with what is no answer.
    Garbage,
    /// Does it and answers with more than the limit.
    Huge,
    /// Does it, and leaves a process behind that ignores SIGTERM in a session of its own. Process tools only.
    Escape,
}

/// What happened at a tool, as one line of the file of effects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Nanoseconds of the machine's monotonic clock.
    pub at: u64,
    /// What happened.
    pub did: Did,
    /// The tool.
    pub tool: String,
    /// The call, as the tool was told.
    pub call: String,
    /// The attempt's number, as the tool was told, from 1.
    pub attempt: u32,
    /// The idempotency key, as the tool was told; empty when there was none.
    pub key: String,
    /// Which of the clients' calls.
    pub n: u64,
    /// How it was told to behave.
    pub mode: Mode,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Did {
    /// It was asked.
    Started,
    /// The effect took place.
    Applied,
    /// The effect had taken place under this key: nothing was done.
    Recognised,
    /// It gave its answer away.
    Replied,
}

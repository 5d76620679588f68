//! How a tool is run: a folder or file for each kind, one trait, one list of promises.
//!
//! Each kind implements [`Executor`], and `registry` finds it by the kind's name. A tool is told an [`AttemptContext`]; a run
//! returns [`Returned`]. `redact`, `output`, `refusal` and `headers` are shared by the kinds that need them.

pub mod chat;
pub(crate) mod context;
pub(crate) mod executor;
mod headers;
pub mod http;
pub(crate) mod later;
pub mod mcp;
pub mod native;
pub mod nats;
pub mod output;
mod own;
pub mod process;
pub(crate) mod redact;
mod refusal;
pub(crate) mod registry;
pub(crate) mod resources;
pub mod sql;
pub(crate) mod stop;

pub use fleet::{
    call::Effect,
    fencing::WorkerLock,
    manifest::Manifest,
    outcome::{Outcome, ToolFailure},
    secrets::Secrets,
    wire::{code::Code, message::Message, part::Part},
};
pub use futures_util::future::BoxFuture;

pub use self::{
    context::AttemptContext,
    executor::{BoxError, Executor, LINGER_MAX, Prepared, Returned, StartContext},
    own::own_spec,
    redact::{hidden, missing_secret, redact, veil},
    stop::{Stop, StopReason},
};
pub use crate::{
    answer::Promise,
    files::AttemptFiles,
    handover::HandedFiles,
    progress::{Progress, ToldParts},
};

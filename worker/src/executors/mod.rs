//! How a tool is run: a folder or file per kind, one trait, one list of promises.
//!
//! [`Executor`] is what each kind implements, `registry` has them by kind, [`AttemptContext`] is what a tool is told,
//! [`Returned`] what came of it. `redact`, `output`, `refusal` and `headers` are for whatever kind has a use for them.

pub(crate) mod context;
pub(crate) mod executor;
mod headers;
pub mod http;
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
    wire::{code::Code, message::Message},
};
pub use futures_util::future::BoxFuture;

pub use self::{
    context::AttemptContext,
    executor::{BoxError, Executor, LINGER_MAX, Prepared, Returned, StartContext},
    own::own_spec,
    redact::{missing_secret, redact},
    stop::{Stop, StopReason},
};
pub use crate::{answer::Promise, progress::Progress};

//! **An executor**: what runs one kind of tool.
//!
//! Running is split in two so that everything that can fail without touching the world fails *before* the claim:
//! [`Executor::prepare`] renders the request and resolves secrets, [`Prepared::run`] does it.

use std::{error::Error, sync::Arc, time::Duration};

use fleet::{
    ending::Moved,
    fencing::WorkerLock,
    manifest::Manifest,
    outcome::{Outcome, ToolFailure},
    secrets::Secrets,
};
use futures_util::{FutureExt, future::BoxFuture};
use serde_json::Value;

use super::{context::AttemptContext, redact::missing_secret};

/// How one kind of tool is run. One value serves every attempt of a worker, many of them at a time.
pub trait Executor: Send + Sync {
    /// Opens what is shared by all attempts: connections, a server. Called once, before the worker takes its first call, after
    /// the executors that were registered earlier. At most 30 s.
    ///
    /// # Errors
    ///
    /// The worker does not start. What may come back by itself is not an error here: let [`Self::check`] say it.
    fn start<'a>(&'a self, _worker: &'a StartContext) -> BoxFuture<'a, Result<(), BoxError>> {
        std::future::ready(Ok(())).boxed()
    }

    /// Whether this worker could run the tool at all, whatever its arguments are. Asked of every tool of the worker's queues, every
    /// ten seconds; must neither wait nor touch anything outside this process.
    ///
    /// # Errors
    ///
    /// What this worker lacks, in the words of [`Self::prepare`].
    fn check(&self, manifest: &Manifest, secrets: &Secrets) -> Result<(), ToolFailure> {
        has_secrets(manifest, secrets)
    }

    /// What an attempt depends on outside the fleet, such as an origin or a program: failures are counted by it. No secret, no
    /// argument.
    fn target(&self, manifest: &Manifest) -> String {
        manifest.executor.target()
    }

    /// Whether each attempt starts a program, of which a worker runs only a few at a time (`--programs`).
    fn is_program(&self) -> bool {
        false
    }

    /// Renders the request and resolves its secrets. Must neither wait nor touch anything outside this process.
    ///
    /// # Errors
    ///
    /// The failure is final for this attempt and proves that nothing started. `tool_error`, `tool_gone` and
    /// `payload_too_large` end the call, for it would fail the same way everywhere; after any other code it waits for another worker.
    fn prepare(
        &self,
        manifest: &Manifest,
        arguments: &Value,
        secrets: &Secrets,
    ) -> Result<Box<dyn Prepared>, ToolFailure>;

    /// Closes what [`Self::start`] has opened. Called once, when every attempt has ended or was given up, before the
    /// executors that were registered earlier. At most 5 s; the executor is dropped then. A process that is killed or panics
    /// does not call it.
    fn stop(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

/// Why an executor cannot start.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// What an executor is told of its worker when it starts.
#[derive(Debug, Clone)]
pub struct StartContext {
    /// The worker's name, a label for people.
    pub worker: String,
    /// The lock that proves, once it is free, that nothing of the worker lives. What can act for a tool outside this
    /// process holds a share: a child that was started within [`WorkerLock::lend`] has one.
    pub lock: Arc<WorkerLock>,
}

/// Whether every secret that the tool names can be had here.
pub(super) fn has_secrets(manifest: &Manifest, secrets: &Secrets) -> Result<(), ToolFailure> {
    let spec = serde_json::to_value(&manifest.executor).unwrap_or_default();
    let mut open = vec![&spec];
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) if text.starts_with(Secrets::SCHEME) => {
                secrets
                    .resolve(text)
                    .map_err(|error| missing_secret(&error))?;
            }
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    Ok(())
}

/// A rendered request, ready to go out once.
pub trait Prepared: Send {
    /// Runs the tool once. Ends at the latest [`LINGER_MAX`] after `context.until` or after `context.stop`. What it started
    /// is gone then; if that is not certain, it returns `left_behind`.
    ///
    /// Not cancel-safe: a dropped future may leave an effect that is not recorded. Use `context.stop`.
    fn run(self: Box<Self>, context: AttemptContext) -> BoxFuture<'static, Returned>;
}

/// What the run of a tool returned.
#[derive(Debug)]
pub struct Returned {
    /// What is known of the tool's effect, and its answer.
    pub outcome: Outcome,
    /// Whether something that was started for the attempt may outlive it. Until that is proven gone, it cannot be known that an
    /// effect did not take place.
    pub left_behind: bool,
    /// How the call ended, where that was committed in the same transaction as the tool's effect.
    pub committed: Option<Box<Moved>>,
}

impl From<Outcome> for Returned {
    /// Nothing is left behind, and nothing is recorded yet.
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            left_behind: false,
            committed: None,
        }
    }
}

/// How long after its deadline an attempt may take to be gone: TERM, two seconds, KILL, and a little for the kernel.
pub const LINGER_MAX: Duration = Duration::from_millis(3_000);

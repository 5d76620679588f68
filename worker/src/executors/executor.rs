//! **An executor**: what runs one kind of tool.
//!
//! A run has two parts, so that everything that can fail without an effect fails *before* the claim: [`Executor::prepare`]
//! renders the request and resolves secrets, [`Prepared::run`] sends it.

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
    /// Opens what all attempts share: connections, a server. Called once, before the worker takes its first call, and after the
    /// start of executors that were registered earlier. At most 30 s.
    ///
    /// # Errors
    ///
    /// The worker does not start. A lack that may pass by itself is not an error here: report it in [`Self::check`].
    fn start<'a>(&'a self, _worker: &'a StartContext) -> BoxFuture<'a, Result<(), BoxError>> {
        std::future::ready(Ok(())).boxed()
    }

    /// Whether this worker can run the tool, whatever the arguments are. Called for every tool of the worker's queues, every
    /// ten seconds. Must neither wait nor touch anything outside this process.
    ///
    /// # Errors
    ///
    /// What this worker lacks, in the words of [`Self::prepare`].
    fn check(&self, manifest: &Manifest, secrets: &Secrets) -> Result<(), ToolFailure> {
        has_secrets(manifest, secrets)
    }

    /// What an attempt depends on outside the fleet, such as an origin or a program. Failures are counted by it. It must
    /// contain no secret and no argument.
    fn target(&self, manifest: &Manifest) -> String {
        manifest.executor.target()
    }

    /// Whether each attempt of the tool starts a program, of which a worker runs only a few at a time (`--programs`).
    fn is_program(&self, _manifest: &Manifest) -> bool {
        false
    }

    /// Renders the request and resolves its secrets. Must neither wait nor touch anything outside this process.
    ///
    /// # Errors
    ///
    /// The failure is final for this attempt and proves that nothing started. `tool_error`, `tool_gone`, `payload_too_large` and
    /// `invalid_arguments` end the call, for it would fail the same way on every worker. After any other code the call waits for
    /// another worker.
    fn prepare(
        &self,
        manifest: &Manifest,
        arguments: &Value,
        secrets: &Secrets,
    ) -> Result<Box<dyn Prepared>, ToolFailure>;

    /// Closes what [`Self::start`] opened. Called once, after every attempt has ended or was given up, and before the stop of
    /// executors that were registered earlier. At most 5 s; then the executor is dropped. A process that is killed or panics
    /// does not call it.
    fn stop(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

/// Why an executor cannot start.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// What an executor knows of its worker when it starts.
#[derive(Debug, Clone)]
pub struct StartContext {
    /// The worker's name, a label for people.
    pub worker: String,
    /// The lock whose release proves that nothing of the worker lives. Every process that the
    /// executor starts and that can act for a tool must hold a share of it: a child that was started within
    /// [`WorkerLock::lend`] has one.
    pub lock: Arc<WorkerLock>,
}

/// Whether this worker has every secret that the tool names.
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
    /// Why it may not run for a call that nobody follows, if it may not. The worker asks before it claims a call without a session,
    /// or of a hidden tool; the failure ends the call. One that stands in for another tool is not asked, and not heard.
    fn unfollowed(&self) -> Option<ToolFailure> {
        None
    }

    /// Runs the tool once. Ends at the latest [`LINGER_MAX`] after `context.until` or after `context.stop`. By then everything
    /// that it started is gone; where that is not certain, it returns `left_behind`.
    ///
    /// Not cancel-safe: a dropped future may leave an effect that is not recorded. Use `context.stop`.
    fn run(self: Box<Self>, context: AttemptContext) -> BoxFuture<'static, Returned>;
}

/// What the run of a tool returned.
#[derive(Debug)]
pub struct Returned {
    /// What is known of the tool's effect, and its answer.
    pub outcome: Outcome,
    /// Whether something that the attempt started, and that ends with the worker, may outlive it. Until the worker is proven
    /// gone, an effect cannot be ruled out. Not what runs at a server elsewhere, about which that end proves nothing.
    pub left_behind: bool,
    /// How the call ended, where the executor committed that in the same transaction as the tool's effect.
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

/// How long an attempt may take to be gone after its deadline: TERM, two seconds, KILL, and a little for the kernel.
pub const LINGER_MAX: Duration = Duration::from_millis(3_000);

//! How a tool is run: one file per kind, one trait, one list of promises.
//!
//! Running is split in two so that everything that can fail without touching the world fails *before* the claim:
//! [`Executor::prepare`] renders the request and resolves secrets, [`Prepared::run`] does it.

mod headers;
pub mod http;
pub mod native;
pub mod nats;
pub mod output;
pub mod process;
mod refusal;
mod resources;
pub mod sql;
mod stop;
mod veil;

use std::time::Duration;

use fleet::{
    call::Language,
    ending::Moved,
    ids::{AttemptId, CallId, Label, ToolName},
    manifest::{ExecutorSpec, Manifest},
    outcome::{Outcome, ToolFailure},
    secrets::Secrets,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, value::RawValue};
use time::OffsetDateTime;
use tokio::time::Instant;

pub(crate) use self::resources::lacks_resources;
pub use self::stop::{Stop, StopReason};
use self::veil::no_secret;
pub use crate::{answer::Promise, progress::Progress};

/// One executor of each kind.
pub(crate) struct Executors {
    pub(crate) http: http::HttpExecutor,
    pub(crate) process: process::ProcessExecutor,
    pub(crate) nats: nats::NatsExecutor,
    pub(crate) sql: sql::SqlExecutor,
    pub(crate) native: native::NativeExecutor,
}

impl Executors {
    /// The executor of this kind.
    pub(crate) fn of(&self, spec: &ExecutorSpec) -> &dyn Executor {
        match spec {
            ExecutorSpec::Http(_) => &self.http,
            ExecutorSpec::Process(_) => &self.process,
            ExecutorSpec::Nats(_) => &self.nats,
            ExecutorSpec::Sql(_) => &self.sql,
            ExecutorSpec::Native(_) => &self.native,
        }
    }
}

/// How one kind of tool is run.
pub trait Executor: Send + Sync {
    /// Whether this worker could run the tool at all, whatever its arguments are. Touches nothing outside this process.
    ///
    /// # Errors
    ///
    /// What this worker lacks, in the words of [`Self::prepare`].
    fn could_run(&self, manifest: &Manifest, secrets: &Secrets) -> Result<(), ToolFailure> {
        has_secrets(manifest, secrets)
    }

    /// Renders the request and resolves its secrets. Touches nothing outside this process.
    ///
    /// # Errors
    ///
    /// The failure is final for this attempt and proves that nothing started.
    fn prepare(
        &self,
        manifest: &Manifest,
        arguments: &Value,
        secrets: &Secrets,
    ) -> Result<Box<dyn Prepared>, ToolFailure>;
}

/// Whether every secret that the tool names can be had here.
fn has_secrets(manifest: &Manifest, secrets: &Secrets) -> Result<(), ToolFailure> {
    let spec = serde_json::to_value(&manifest.executor).unwrap_or_default();
    let mut open = vec![&spec];
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) if text.starts_with(Secrets::SCHEME) => {
                secrets.resolve(text).map_err(|error| no_secret(&error))?;
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

/// What a tool is told about the attempt, and what bounds it.
#[derive(Debug, Clone)]
pub struct AttemptContext {
    /// The call.
    pub call_id: CallId,
    /// This attempt.
    pub attempt_id: AttemptId,
    /// Its number, from 1.
    pub attempt: u32,
    /// The tool's name.
    pub tool: ToolName,
    /// The tool's version.
    pub tool_version: i32,
    /// Constant over all attempts of the call; what a tool uses to recognise a repetition.
    pub idempotency_key: String,
    /// When this attempt must have answered, on Postgres's clock. For telling; [`Self::until`] is for measuring.
    pub deadline_at: OffsetDateTime,
    /// When this attempt must have answered, on this process's monotonic clock.
    pub until: Instant,
    /// Who asked.
    pub tenant: Label,
    /// The caller's session.
    pub session: Option<Label>,
    /// The caller's run.
    pub run: Option<Label>,
    /// The caller's `Toolfleet-Meta`, a JSON object.
    pub meta: Option<Box<RawValue>>,
    /// The language of messages for the model.
    pub language: Language,
    /// The trace context of this attempt.
    pub trace: fleet::wire::trace::TraceContext,
    /// Tells when the attempt must end now: the caller took the call back, or the worker's grace is over.
    pub stop: Stop,
    /// Where a tool says how far it is.
    pub progress: Progress,
    /// What the answer is held against, for an executor that has to know before it commits.
    pub promise: Promise,
}

impl AttemptContext {
    /// Milliseconds until the attempt must have answered; zero when that is past.
    pub fn remaining_ms(&self) -> u64 {
        let left = self.until.saturating_duration_since(Instant::now());
        u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
    }

    /// `deadline_at` as milliseconds since the Unix epoch.
    pub fn deadline_unix_ms(&self) -> i64 {
        i64::try_from(self.deadline_at.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
    }

    /// The facts every tool is told, as pairs of a kebab-case name and a value, in a stable order:
    /// `call-id`, `attempt`, `tenant`, … HTTP prefixes them `Toolfleet-`, a process `TOOLFLEET_`.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            ("call-id", self.call_id.to_string()),
            ("attempt", self.attempt.to_string()),
            ("tool", self.tool.to_string()),
            ("tool-version", self.tool_version.to_string()),
            ("tenant", self.tenant.to_string()),
            ("deadline-ms", self.deadline_unix_ms().to_string()),
            ("remaining-ms", self.remaining_ms().to_string()),
            ("language", self.language.to_string()),
        ];
        facts.extend(
            self.session
                .iter()
                .map(|session| ("session", session.to_string())),
        );
        facts.extend(self.run.iter().map(|run| ("run", run.to_string())));
        facts.extend(self.meta.iter().map(|meta| ("meta", meta.get().to_owned())));
        facts
    }
}

//! The facts about its call that a tool gets.

use std::{fmt, sync::Arc, time::Duration};

use fleet::{call::Language, fencing::WorkerLock, files::CallFile, ids::CallId, wire::part::Part};
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{error::ToolError, file::FileReader};
use crate::executors::AttemptContext;

/// What a tool is told about the call it runs for, and how it answers. Clones belong to the same attempt.
#[derive(Clone)]
pub struct ToolContext {
    attempt: Arc<AttemptContext>,
    cancelled: CancellationToken,
    blocking: TaskTracker,
    /// Held by everything that may still act: the worker cannot be proven gone before it is dropped.
    share: Option<Arc<WorkerLock>>,
}

// The rest may be sensitive and must not be logged.
impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext")
            .field("call_id", &self.call_id())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

impl ToolContext {
    pub(crate) fn new(
        attempt: AttemptContext,
        cancelled: CancellationToken,
        blocking: TaskTracker,
        share: Option<Arc<WorkerLock>>,
    ) -> Self {
        Self {
            attempt: Arc::new(attempt),
            cancelled,
            blocking,
            share,
        }
    }

    /// The call.
    pub fn call_id(&self) -> CallId {
        self.attempt.call_id
    }

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt.attempt
    }

    /// The same for every attempt of the call, and for no other call. Send it along so that a repetition is recognised.
    pub fn idempotency_key(&self) -> &str {
        &self.attempt.idempotency_key
    }

    /// When the attempt must have answered, by the fleet's clock: to be told to others. [`Self::remaining`] is for measuring.
    pub fn deadline(&self) -> OffsetDateTime {
        self.attempt.deadline_at
    }

    /// How long the attempt has left; zero when its time is over.
    pub fn remaining(&self) -> Duration {
        let now = tokio::time::Instant::now();
        self.attempt.until.saturating_duration_since(now)
    }

    /// The tenant of the caller.
    pub fn tenant(&self) -> &str {
        self.attempt.tenant.as_str()
    }

    /// The caller's session.
    pub fn session(&self) -> Option<&str> {
        self.attempt
            .session
            .as_ref()
            .map(|session| session.as_str())
    }

    /// The caller's run.
    pub fn run(&self) -> Option<&str> {
        self.attempt.run.as_ref().map(|run| run.as_str())
    }

    /// The caller's `Toolfleet-Meta`, read as a type.
    ///
    /// # Errors
    ///
    /// The meta is there and does not fit this type: a business error that says so.
    pub fn meta<T: DeserializeOwned>(&self) -> Result<Option<T>, ToolError> {
        let Some(meta) = &self.attempt.meta else {
            return Ok(None);
        };
        // Its message would quote the caller.
        serde_json::from_str(meta.get())
            .map(Some)
            .map_err(|_quotes| ToolError::business("Toolfleet-Meta is not what this tool expects"))
    }

    /// With what the tool may answer later, after [`ToolError::deferred`]; `None` where its manifest has no `completion`. A secret: hand it
    /// to whoever will answer, and log it nowhere.
    pub fn completion_token(&self) -> Option<&str> {
        let token = self.attempt.completion_token.as_ref();
        token.map(ExposeSecret::expose_secret)
    }

    /// What the caller said when the tool asked last ([`ToolError::needs`]), read as a type; `None` where it has not asked.
    ///
    /// # Errors
    ///
    /// The input is there and does not fit this type: a business error that says so. To ask again, read it as a
    /// [`Value`](serde_json::Value) first.
    pub fn input<T: DeserializeOwned>(&self) -> Result<Option<T>, ToolError> {
        let asked = self.attempt.asked.as_ref();
        let input = asked.and_then(|asked| asked.input.as_deref());
        read(input, "the input is not what this tool asked for")
    }

    /// What the tool kept for itself when it asked last, read as a type.
    ///
    /// # Errors
    ///
    /// The state is there and does not fit this type.
    pub fn state<T: DeserializeOwned>(&self) -> Result<Option<T>, ToolError> {
        let asked = self.attempt.asked.as_ref();
        let state = asked.and_then(|asked| asked.state.as_deref());
        read(state, "the state is not what this tool keeps")
    }

    /// What is known of the files that the caller has named, in the caller's order; none where its manifest has no `files`.
    pub fn files(&self) -> &[CallFile] {
        self.attempt.files.list()
    }

    /// Reads one of [these](Self::files), from its beginning. Nothing of it is read before the first piece is asked for.
    pub fn read_file(&self, file: &CallFile) -> FileReader {
        FileReader::new(file.clone(), self.attempt.files.clone())
    }

    /// The language of messages for the model.
    pub fn language(&self) -> Language {
        self.attempt.language
    }

    /// The W3C trace context of this attempt, to be sent along: `traceparent`.
    pub fn traceparent(&self) -> Option<&str> {
        self.attempt.trace.traceparent.as_deref()
    }

    /// Resolves when the attempt must end: its time is over, the caller cancelled the call, or the worker stops.
    ///
    /// The tool then has two seconds to put things in order and to return what it knows. Cancel-safe.
    pub async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// Whether the attempt must end, for loops that do not wait.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// Yields to other tasks, and fails when the attempt must end: for the inside of a long computation, as often as you like.
    ///
    /// # Errors
    ///
    /// The attempt must end, and its effect is unknown. A tool that knows better returns its own error.
    pub async fn proceed(&self) -> Result<(), ToolError> {
        tokio::task::yield_now().await;
        if self.is_cancelled() {
            return Err(ToolError::unknown("it was told to end"));
        }
        Ok(())
    }

    /// Reports how much is done, from 0 to 1 (`None` where that is not known), and a message.
    ///
    /// Followers of the caller's session see it; a call without a session has none. Report as often as you like: it never waits
    /// and never fails, at most ten reports a second are sent on, and the last one always is. Messages have at most 512 bytes.
    pub fn progress(&self, fraction: impl Into<Option<f64>>, message: &str) {
        self.attempt.progress.report(fraction.into(), message);
    }

    /// Tells a part of the answer before it is complete: the next characters of a text (`told.output("…")`), what the tool is
    /// doing now ([`Part::Step`]), an image or a sketch of one, or any other value.
    ///
    /// Followers of the caller's session see it; a call without a session has none. Parts are news: the result must not depend on
    /// them and must have all of the answer. It never waits and never fails. Text is joined for 50 ms, at most 50 parts a second
    /// are sent, in order, and what waits when the tool returns is sent before the end of the call is told. A part that is
    /// [unfit](Part::check) is left out; beyond 4 MiB, or with 128 parts waiting, all further ones are.
    pub fn output(&self, part: impl Into<Part>) {
        self.attempt.progress.output(part);
    }

    /// Whether anybody may hear of [progress](Self::progress) and [parts](Self::output): the caller named a session. For tools
    /// that would do extra work to have something to show.
    pub fn is_followed(&self) -> bool {
        self.attempt.progress.is_heard()
    }

    /// Runs code that blocks its thread on a thread that no other attempt needs.
    ///
    /// It cannot be interrupted: look at [`Self::is_cancelled`] in it. Until it has returned, the worker does not say that the
    /// attempt is over.
    ///
    /// # Errors
    ///
    /// It panicked, so its effect is unknown.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ToolError> {
        let share = self.share.clone();
        let working = move || {
            let done = work();
            drop(share);
            done
        };
        let done = self.blocking.spawn_blocking(working).await;
        done.map_err(|_panicked| ToolError::unknown("the tool panicked"))
    }
}

/// JSON text as a type. The error of serde would quote it.
fn read<T: DeserializeOwned>(
    text: Option<&RawValue>,
    otherwise: &str,
) -> Result<Option<T>, ToolError> {
    let read = text
        .map(|text| serde_json::from_str(text.get()))
        .transpose();
    read.map_err(|_quotes| ToolError::business(otherwise))
}

//! The facts about an attempt that its executor and its tool get.

use fleet::{
    call::Language,
    ids::{AttemptId, CallId, Label, ToolName},
    input::Asked,
    wire::trace::TraceContext,
};
use secrecy::SecretString;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::stop::Stop;
use crate::{answer::Promise, files::AttemptFiles, handover::HandedFiles, progress::Progress};

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
    /// When this attempt must have answered, on Postgres's clock: to be told to others. [`Self::until`] is for measuring.
    pub deadline_at: OffsetDateTime,
    /// When this attempt must have answered, on this process's monotonic clock.
    pub until: Instant,
    /// The tenant of the call.
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
    pub trace: TraceContext,
    /// Resolves when the attempt must end now: the caller cancelled the call, or the worker's drain time is over.
    pub stop: Stop,
    /// Where a tool reports its progress and tells parts of its answer.
    pub progress: Progress,
    /// With what the tool may answer later, where its manifest has `completion`.
    pub completion_token: Option<SecretString>,
    /// What the tool has asked for in an earlier attempt, and was told.
    pub asked: Option<Box<Asked>>,
    /// The files that the call names.
    pub files: AttemptFiles,
    /// The folder or the URLs of the files of the call, where it has some and its tool is of a kind that gets them so.
    pub handed: HandedFiles,
    /// The schema of the answer, for an executor that must check it before it commits.
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

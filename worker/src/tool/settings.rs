//! The fields of a manifest that have defaults, as a tool's author writes them.

use std::time::Duration;

use fleet::{
    call::Language,
    manifest::{
        AnswerForm, FilesSpec, KeyPolicy, LearnedTimeout, Policy, RateLimit, RetryPolicy,
        SensitiveMode, format_duration,
    },
};
use serde_json::{Map, Value, json};

/// The fields of a tool's manifest that have defaults. They are checked together with the rest when the worker starts.
///
/// ```
/// # use std::time::Duration;
/// # use worker::tool::Settings;
/// let settings = Settings::default().timeout(Duration::from_secs(5)).queue("gpu");
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    pub(super) fields: Map<String, Value>,
    pub(super) without_output_schema: bool,
}

impl Settings {
    /// How long one attempt may take; 30 s if not set.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        self.field("timeout", format_duration(timeout))
    }

    /// How long one attempt may take, as the fleet learns it within these bounds. Not for `once`.
    #[must_use]
    pub fn learned_timeout(self, bounds: &LearnedTimeout) -> Self {
        let bounds = serde_json::to_value(bounds).expect("bounds have only string keys");
        self.field("timeout", bounds)
    }

    /// How long the whole call may take, from acceptance; 5 minutes if not set.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.field("deadline", format_duration(deadline))
    }

    /// How long the call may wait for its first attempt; as long as the call may take if not set.
    #[must_use]
    pub fn max_queue_wait(self, wait: Duration) -> Self {
        self.field("max_queue_wait", format_duration(wait))
    }

    /// How many attempts may run at a time over the whole fleet, 1 to 1000; as many as workers have slots if not set.
    #[must_use]
    pub fn concurrency(self, limit: u32) -> Self {
        self.field("concurrency", limit)
    }

    /// How many attempts may start in a time over the whole fleet; as many as workers have slots for if not set.
    #[must_use]
    pub fn rate_limit(self, limit: &RateLimit) -> Self {
        let limit = serde_json::to_value(limit).expect("a limit has only string keys");
        self.field("rate_limit", limit)
    }

    /// What must, and what must not, have happened before in the run or session of a call; anything if not set.
    #[must_use]
    pub fn policy(self, policy: &Policy) -> Self {
        let policy = serde_json::to_value(policy).expect("a policy has only string keys");
        self.field("policy", policy)
    }

    /// Which files a call may name beside its arguments; none if not set.
    #[must_use]
    pub fn files(self, files: &FilesSpec) -> Self {
        let files = serde_json::to_value(files).expect("patterns and numbers");
        self.field("files", files)
    }

    /// The queue of its calls. If not set, it is named like the tool, so that only workers that pull it, which are those that
    /// have the tool, get its calls.
    #[must_use]
    pub fn queue(self, queue: &str) -> Self {
        self.field("queue", queue)
    }

    /// When a failed attempt is followed by another.
    #[must_use]
    pub fn retry(self, retry: &RetryPolicy) -> Self {
        let retry = serde_json::to_value(retry).expect("a policy has only string keys");
        self.field("retry", retry)
    }

    /// How long a good answer is given to equal calls of the same tenant; not at all if not set. Only for reads.
    #[must_use]
    pub fn cache(self, ttl: Duration) -> Self {
        self.field("cache", json!({ "ttl": format_duration(ttl) }))
    }

    /// How long its answer is waited for after [`ToolError::deferred`](crate::ToolError::deferred); it must answer at once if not set. At
    /// most the deadline.
    #[must_use]
    pub fn completion(self, wait: Duration) -> Self {
        self.field("completion", json!({ "wait": format_duration(wait) }))
    }

    /// How often a call may lose the worker that runs it, 0 to 100, before it is set aside; 5 if not set.
    #[must_use]
    pub fn losses(self, losses: u32) -> Self {
        self.field("losses", losses)
    }

    /// Where the idempotency key of a call comes from; required for `once`, else optional, if not set.
    #[must_use]
    pub fn key(self, key: KeyPolicy) -> Self {
        self.field("key", key.as_str())
    }

    /// How long a key lives after its call is terminal; 24 hours if not set, and at least.
    #[must_use]
    pub fn key_retention(self, retention: Duration) -> Self {
        self.field("key_retention", format_duration(retention))
    }

    /// How long after the first attempt the tool still recognises
    /// [`ToolContext::idempotency_key`](crate::ToolContext::idempotency_key); for ever if not set.
    #[must_use]
    pub fn key_valid_for(self, validity: Duration) -> Self {
        self.field(
            "idempotency",
            json!({ "valid_for": format_duration(validity) }),
        )
    }

    /// The most bytes of its result as JSON; 1 MiB if not set.
    #[must_use]
    pub fn output_limit(self, bytes: usize) -> Self {
        self.field("output_limit", bytes)
    }

    /// Which values of arguments and results are shown only to the tool and its caller, as JSON pointers.
    #[must_use]
    pub fn sensitive(self, pointers: &[&str], mode: SensitiveMode) -> Self {
        self.field(
            "sensitive",
            json!({ "pointers": pointers, "mode": mode.as_str() }),
        )
    }

    /// The language of messages for models, where the caller does not ask for one; English if not set.
    #[must_use]
    pub fn language(self, language: Language) -> Self {
        self.field("language", language.as_str())
    }

    /// Interceptors without which no worker runs it, by name.
    #[must_use]
    pub fn interceptors(self, names: &[&str]) -> Self {
        self.field("interceptors", names)
    }

    /// Its result is one of blocks: `{"content": [text, image, audio, resource, resource_link …], "structured"?}`, in the shapes of MCP.
    ///
    /// The schema of the result's type is left out; one of what is `structured` can be given as the field `output_schema`.
    #[must_use]
    pub fn content(self) -> Self {
        self.without_output_schema()
            .field("output", AnswerForm::Content.as_str())
    }

    /// Any other field of the manifest, such as `probe`.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(name.to_owned(), value.into());
        self
    }

    /// Leaves out the schema of the result, for types whose schema is too large.
    #[must_use]
    pub fn without_output_schema(mut self) -> Self {
        self.without_output_schema = true;
        self
    }
}

//! A tool manifest: what an operator writes, what is stored as an immutable version.
//!
//! `parse` reads and checks one file; this file holds what it becomes.

mod advice;
mod check;
mod document;
mod duration;
mod executor;
mod flow;
mod lint;
mod parse;
mod probe;
mod request;
mod required;
pub mod sql;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    duration::{format_duration, parse_duration},
    executor::{
        ExecutorSpec, HttpSpec, NativeSpec, NatsSpec, OwnSpec, ProcessSpec, RowBounds, SqlSpec,
    },
    lint::{lint, lint_text},
    parse::{ManifestProblem, parse},
    probe::ProbeSpec,
};
use crate::{
    arguments::Level,
    call::{Effect, Language, words},
    ids::{QueueName, ToolName},
    wire::code::Code,
};

/// One version of one tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The name a caller uses.
    pub name: ToolName,
    /// Immutable once applied: the same version with other content is refused.
    pub version: i32,
    /// What a model reads to decide whether to call it.
    pub description: String,
    /// What running it again would mean.
    pub effect: Effect,
    /// JSON Schema 2020-12 of the arguments, an object.
    pub input_schema: Value,
    /// JSON Schema 2020-12 of the answer. `None`: any answer will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// How it is run.
    pub executor: ExecutorSpec,
    /// Which workers run it.
    #[serde(default = "Manifest::default_queue")]
    pub queue: QueueName,
    /// Where the idempotency key of a call comes from. `None`: required for `once`, else optional.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyPolicy>,
    /// How long a key lives after its call is terminal; at least 24 hours.
    #[serde(default = "Manifest::default_key_retention", with = "duration")]
    pub key_retention: Duration,
    /// How the tool itself recognises a repeated call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency: Option<Idempotency>,
    /// How long one attempt may take.
    #[serde(default = "Manifest::default_timeout", with = "duration")]
    pub timeout: Duration,
    /// How long the whole call may take, from acceptance. A caller can ask for another one.
    #[serde(default = "Manifest::default_deadline", with = "duration")]
    pub deadline: Duration,
    /// How long its first attempt may be waited for.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional")]
    pub max_queue_wait: Option<Duration>,
    /// How many attempts of the tool may run at a time, over the whole fleet. `None`: as many as workers have places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// When a failed attempt is followed by another.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// How often a call may lose the worker that runs it, 0 to 100; with the next loss it is set aside. A worker that leaves in
    /// order is not lost. A `once` call is in doubt after the first loss whatever this says.
    #[serde(
        default = "Manifest::default_losses",
        skip_serializing_if = "Manifest::are_default_losses"
    )]
    pub losses: u32,
    /// How a call in doubt is looked into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProbeSpec>,
    /// HTTP statuses that mean "the tool said no".
    #[serde(default = "Manifest::default_business_statuses")]
    pub business_statuses: Vec<u16>,
    /// HTTP statuses that prove that a write did not happen.
    #[serde(default)]
    pub not_applied_statuses: Vec<u16>,
    /// What the exit codes of a program mean.
    #[serde(default, skip_serializing_if = "ExitCodes::is_default")]
    pub exit_codes: ExitCodes,
    /// How much of what a model got slightly wrong in its arguments is mended.
    #[serde(default, skip_serializing_if = "CoercionPolicy::is_default")]
    pub coercion: CoercionPolicy,
    /// Which arguments and results are nobody's business.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitive: Option<Sensitive>,
    /// The most bytes an answer may have.
    #[serde(default = "Manifest::default_output_limit", with = "bytes")]
    pub output_limit: usize,
    /// The language of messages for models, where the caller does not ask for one.
    #[serde(default = "Manifest::default_language")]
    pub language: Language,
}

impl Manifest {
    /// The largest answer that a manifest may allow, in bytes.
    pub const OUTPUT_LIMIT_MAX: usize = 8 * 1024 * 1024;
    /// The shortest life of a key after its call is terminal.
    pub const KEY_RETENTION_MIN: Duration = Duration::from_secs(24 * 3600);
    /// The longest time a call may take.
    pub const DEADLINE_MAX: Duration = Duration::from_secs(24 * 3600);

    /// How often a call may lose its worker where its tool does not say.
    pub const LOSSES: u32 = 5;

    fn default_queue() -> QueueName {
        "default"
            .parse()
            .expect("the default queue has a valid name")
    }

    const fn default_key_retention() -> Duration {
        Self::KEY_RETENTION_MIN
    }

    const fn default_timeout() -> Duration {
        Duration::from_secs(30)
    }

    const fn default_deadline() -> Duration {
        Duration::from_secs(300)
    }

    const fn default_losses() -> u32 {
        Self::LOSSES
    }

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde asks with a reference"
    )]
    const fn are_default_losses(losses: &u32) -> bool {
        *losses == Self::LOSSES
    }

    fn default_business_statuses() -> Vec<u16> {
        vec![400, 404, 409, 422]
    }

    const fn default_output_limit() -> usize {
        1024 * 1024
    }

    const fn default_language() -> Language {
        Language::En
    }

    /// What a caller's arguments must fit: the input schema, in which the argument that carries the downstream key,
    /// if there is one, may not be given.
    pub fn caller_schema(&self) -> Value {
        let mut schema = self.input_schema.clone();
        if let Some(argument) = self
            .idempotency
            .as_ref()
            .and_then(|idempotency| idempotency.argument.as_ref())
        {
            schema["properties"][argument] = Value::Bool(false);
        }
        schema
    }

    /// How much of a call's arguments may be mended.
    pub const fn coercion_level(&self) -> Level {
        match (self.coercion, self.effect) {
            (CoercionPolicy::Off, _) => Level::Off,
            (CoercionPolicy::On, Effect::Read) => Level::Read,
            (CoercionPolicy::On | CoercionPolicy::Safe, _) => Level::Safe,
        }
    }

    /// Where the idempotency key of a call comes from, written or by default.
    pub fn key_policy(&self) -> KeyPolicy {
        self.key.unwrap_or(match self.effect {
            Effect::Once | Effect::Transaction => KeyPolicy::Required,
            Effect::Read | Effect::Idempotent => KeyPolicy::Optional,
        })
    }
}

words! {
    /// Where the idempotency key of a call comes from. A key that a caller sends always counts.
    KeyPolicy {
        /// A call without a key is refused.
        Required = "required",
        /// A call without a key is accepted, and a repetition is another call.
        Optional = "optional",
        /// A call without a key gets one made of its tenant, tool and arguments: a repetition is the same call.
        FromArguments = "from_arguments",
    }
}

words! {
    /// How much of what a model got slightly wrong in its arguments is mended.
    #[derive(Default)]
    CoercionPolicy {
        /// What the effect class allows.
        #[default]
        On = "on",
        /// What every effect class allows, even for a `read` tool.
        Safe = "safe",
        /// Nothing, and no defaults are filled in.
        Off = "off",
    }
}

impl CoercionPolicy {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How the tool itself recognises a repeated call: where the constant downstream key goes, and how long it is honoured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Idempotency {
    /// The HTTP header that carries the key. Process tools find it in `TOOLFLEET_IDEMPOTENCY_KEY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The top-level argument that carries the key; a caller may not set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument: Option<String>,
    /// How long after the first attempt the tool still recognises the key.
    #[serde(default = "Manifest::default_key_retention", with = "duration")]
    pub valid_for: Duration,
}

/// What the exit codes of a program mean besides 0, which is success. Every other one leaves the effect of a write unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExitCodes {
    /// The tool said no.
    pub business: Vec<u8>,
    /// They prove that a write did not happen.
    pub not_applied: Vec<u8>,
}

impl Default for ExitCodes {
    fn default() -> Self {
        Self {
            business: vec![10],
            not_applied: Vec::new(),
        }
    }
}

impl ExitCodes {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Which values of a call are shown to nobody but its tool and its caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sensitive {
    /// JSON pointers into arguments and results, such as `/card/number`; `*` as a segment stands for every one.
    pub pointers: Vec<String>,
    /// What becomes of them.
    #[serde(default)]
    pub mode: SensitiveMode,
}

words! {
    /// What becomes of sensitive values.
    #[derive(Default)]
    SensitiveMode {
        /// Stored, and masked wherever they are shown.
        #[default]
        Mask = "mask",
        /// As `mask`, and no longer stored once the call is terminal.
        Omit = "omit",
    }
}

words! {
    /// How the pauses between attempts grow.
    RetryStrategy {
        /// One attempt.
        None = "none",
        /// Always `base`.
        Fixed = "fixed",
        /// `base × factor^(n-1)`, at most `cap`.
        Exponential = "exponential",
        /// A random part of the exponential pause ("full jitter"), the same for every process that computes it.
        Jittered = "jittered",
    }
}

/// When a failed attempt is followed by another, and how soon.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryPolicy {
    /// How the pauses grow.
    pub strategy: RetryStrategy,
    /// How many attempts in all, 1 to 20.
    pub max_attempts: u32,
    /// The first pause.
    #[serde(with = "duration")]
    pub base: Duration,
    /// What each pause is multiplied by, 1 to 10.
    pub factor: f64,
    /// The longest pause; applied last.
    #[serde(with = "duration")]
    pub cap: Duration,
    /// Which failures are tried again. `None`: `timeout`, `unavailable`, `tool_crashed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<Vec<Code>>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            strategy: RetryStrategy::Jittered,
            max_attempts: 3,
            base: Duration::from_millis(500),
            factor: 2.0,
            cap: Duration::from_secs(30),
            on: None,
        }
    }
}

impl RetryPolicy {
    /// How many attempts in all.
    pub const fn attempts_max(&self) -> u32 {
        match self.strategy {
            RetryStrategy::None => 1,
            RetryStrategy::Fixed | RetryStrategy::Exponential | RetryStrategy::Jittered => {
                self.max_attempts
            }
        }
    }

    /// Whether a failure with this code may be tried again.
    pub fn covers(&self, code: Code) -> bool {
        match &self.on {
            Some(codes) => codes.contains(&code),
            None => matches!(code, Code::Timeout | Code::Unavailable | Code::ToolCrashed),
        }
    }
}

/// A duration that may be absent.
mod optional {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::{format_duration, parse_duration};

    pub(super) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => serializer.serialize_str(&format_duration(*duration)),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| parse_duration(&text).map_err(D::Error::custom))
            .transpose()
    }
}

/// A size: a number of bytes, or a text such as `64KiB` or `1MiB`.
mod bytes {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use serde_json::Value;

    pub(super) fn serialize<S: Serializer>(
        bytes: &usize,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(*bytes as u64)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<usize, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let bytes = match &value {
            Value::Number(number) => number.as_u64().and_then(|n| usize::try_from(n).ok()),
            Value::String(text) => parse(text),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        };
        bytes.ok_or_else(|| {
            D::Error::custom("a size is a number of bytes or a text such as 64KiB or 1MiB")
        })
    }

    fn parse(text: &str) -> Option<usize> {
        let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
        let unit = match unit {
            "B" => 1,
            "KiB" => 1024,
            "MiB" => 1024 * 1024,
            _ => return None,
        };
        digits.parse::<usize>().ok()?.checked_mul(unit)
    }
}

//! One version of one tool, with defaults filled in.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    answer_form::AnswerForm,
    approval::{ApprovalSpec, PreviewSpec},
    breaker::{BreakerSpec, WhenOpen},
    budget::Budget,
    cache::CacheSpec,
    completion::CompletionSpec,
    context::ContextSpec,
    delegate::Delegate,
    duration,
    executor::ExecutorSpec,
    fallback::{FallbackSpec, UnfitTool},
    files::FilesSpec,
    large_result::LargeResult,
    optional,
    over_mcp::OverMcp,
    policy::{CoercionPolicy, ExitCodes, Idempotency, KEY_RETENTION_MIN, KeyPolicy, Sensitive},
    probe::ProbeSpec,
    rate::{OnLimit, RateLimit},
    retry::RetryPolicy,
    rules::Policy,
    sandbox::Sandbox,
    shown::{ShownAs, Visibility},
    size,
    timeout::Timeout,
    todo::TodoSpec,
    tool_selection::ToolSelection,
};
use crate::{
    arguments::{Level, Limits},
    call::{Effect, Language},
    ids::{InterceptorName, QueueName, ToolName},
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
    /// What its answers are.
    #[serde(default, skip_serializing_if = "AnswerForm::is_default")]
    pub output: AnswerForm,
    /// JSON Schema 2020-12 of the answer; of one of blocks, of what is `structured` in it. `None`: any answer is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// How it is run.
    pub executor: ExecutorSpec,
    /// The workers of this queue run it.
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
    #[serde(default = "Manifest::default_timeout")]
    pub timeout: Timeout,
    /// How long the whole call may take, from acceptance. A caller can ask for another one.
    #[serde(default = "Manifest::default_deadline", with = "duration")]
    pub deadline: Duration,
    /// How long the call may wait for its first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional")]
    pub max_queue_wait: Option<Duration>,
    /// How many attempts of the tool may run at a time, over the whole fleet. `None`: as many as workers have slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// How many attempts of the tool may start in a time, over the whole fleet. `None`: as many as there are slots for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    /// What becomes of a new call that could not start at once, by `rate_limit`.
    #[serde(default, skip_serializing_if = "OnLimit::is_default")]
    pub on_limit: OnLimit,
    /// What must, and what must not, have happened before in the run or session of a call. `None`: anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// What calls of a model may spend before further ones end. `None`: anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// How the conversation of a model is kept within a number of tokens. `None`: it is sent whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextSpec>,
    /// Which of many tools a model is told of. `None`: all that its request has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_selection: Option<ToolSelection>,
    /// The tools that a model is reminded of where the user asks for what they do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegates: Vec<Delegate>,
    /// That a model is told the todo list of its session. `None`: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub todo: Option<TodoSpec>,
    /// When a failed attempt is followed by another.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// When calls stop being sent to a target that fails. `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker: Option<BreakerSpec>,
    /// What becomes of queued calls while the breaker is open. `None`: a read fails, a write waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_open: Option<WhenOpen>,
    /// How long a good answer counts for equal calls. `None`: each call asks the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheSpec>,
    /// What answers where the tool cannot. `None`: its error does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackSpec>,
    /// Which calls wait until somebody says yes. `None`: none do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<ApprovalSpec>,
    /// How the tool says that it answers later, and how long that is waited for. `None`: it answers at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion: Option<CompletionSpec>,
    /// How often a call may lose the worker that runs it, 0 to 100; with the next loss it is set aside. A worker that leaves in
    /// order is not lost. A `once` call is in doubt after the first loss whatever this says.
    #[serde(
        default = "Manifest::default_losses",
        skip_serializing_if = "Manifest::are_default_losses"
    )]
    pub losses: u32,
    /// How often the same arguments may fail in a run, or without one in a session, within 15 minutes, before they are refused;
    /// 0: as often as they are sent.
    #[serde(
        default = "Manifest::default_repeat_cap",
        skip_serializing_if = "Manifest::is_default_repeat_cap"
    )]
    pub repeat_cap: u32,
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
    /// What a program may reach and use. `None`: all that the worker's user may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// How much of a model's small mistakes in arguments is mended.
    #[serde(default, skip_serializing_if = "CoercionPolicy::is_default")]
    pub coercion: CoercionPolicy,
    /// Which arguments and results are sensitive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitive: Option<Sensitive>,
    /// Whether a secret that the tool was given is masked in what it answers.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub redact_results: bool,
    /// Whether the tool is told the caller's `baggage`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub baggage: bool,
    /// Which files it takes beside its arguments. `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FilesSpec>,
    /// Interceptors of a worker's own program without which the tool must not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interceptors: Vec<InterceptorName>,
    /// The most bytes an answer may have.
    #[serde(default = "Manifest::default_output_limit", with = "size")]
    pub output_limit: usize,
    /// When callers get a part of an answer and read the rest where they need it. `None`: they get all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub large_result: Option<LargeResult>,
    /// Who is told of it and of its calls.
    #[serde(default, skip_serializing_if = "Visibility::is_default")]
    pub visibility: Visibility,
    /// As what kind of item of a turn its calls are shown. `None`: as a call of a tool. One that the caller's program runs says it in
    /// its executor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub presents: Option<ShownAs>,
    /// What it is to clients of MCP beside that.
    #[serde(default, skip_serializing_if = "OverMcp::is_default")]
    pub mcp: OverMcp,
    /// Whether its answer is the assistant's, in a turn.
    #[serde(default, rename = "final", skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
    /// The language of messages for models, where the caller does not ask for one.
    #[serde(default = "Manifest::default_language")]
    pub language: Language,
}

const fn yes() -> bool {
    true
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks with a reference"
)]
const fn is_yes(it: &bool) -> bool {
    *it
}

impl Manifest {
    /// The largest answer that a manifest may allow, in bytes.
    pub const OUTPUT_LIMIT_MAX: usize = Limits::ANSWER.bytes;
    /// The shortest life of a key after its call is terminal.
    pub const KEY_RETENTION_MIN: Duration = KEY_RETENTION_MIN;
    /// The longest time a call may take.
    pub const DEADLINE_MAX: Duration = Duration::from_secs(24 * 3600);

    /// How often a call may lose its worker, unless the manifest says otherwise.
    pub const LOSSES: u32 = 5;
    /// How often the same arguments may fail in a run where the manifest says nothing else.
    pub const REPEAT_CAP: u32 = 10;

    pub(super) fn default_queue() -> QueueName {
        "default"
            .parse()
            .expect("the default queue has a valid name")
    }

    const fn default_key_retention() -> Duration {
        Self::KEY_RETENTION_MIN
    }

    const fn default_timeout() -> Timeout {
        Timeout::Fixed(Duration::from_secs(30))
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

    const fn default_repeat_cap() -> u32 {
        Self::REPEAT_CAP
    }

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde asks with a reference"
    )]
    const fn is_default_repeat_cap(cap: &u32) -> bool {
        *cap == Self::REPEAT_CAP
    }

    pub(super) fn default_business_statuses() -> Vec<u16> {
        vec![400, 404, 409, 422]
    }

    const fn default_output_limit() -> usize {
        1024 * 1024
    }

    const fn default_language() -> Language {
        Language::En
    }

    /// The schema for a caller's arguments: the input schema, without the argument that carries the downstream key, if there is
    /// one.
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

    /// How large a call's arguments may be.
    pub const fn arguments_limits(&self) -> &'static Limits {
        match self.executor {
            ExecutorSpec::Chat(_) => &Limits::CONVERSATION,
            _ => &Limits::DEFAULT,
        }
    }

    /// How much of a call's arguments may be mended.
    pub const fn coercion_level(&self) -> Level {
        match (self.coercion, self.effect) {
            (CoercionPolicy::Off, _) => Level::Off,
            (CoercionPolicy::On, Effect::Read) => Level::Read,
            (CoercionPolicy::On | CoercionPolicy::Safe, _) => Level::Safe,
        }
    }

    /// What becomes of queued calls while the breaker is open, written or by default.
    pub fn when_open(&self) -> WhenOpen {
        self.when_open.unwrap_or(match self.effect {
            Effect::Read => WhenOpen::Fail,
            Effect::Idempotent | Effect::Once | Effect::Transaction => WhenOpen::Wait,
        })
    }

    /// Whether the ledger bounds its attempts, at a time or in a time: then its calls wait in a line of their own, and a claim
    /// asks for a place or a start time.
    pub const fn is_limited(&self) -> bool {
        self.concurrency.is_some() || self.rate_limit.is_some()
    }

    /// Whether the program of its caller runs it, and no worker.
    pub const fn is_run_by_client(&self) -> bool {
        matches!(self.executor, ExecutorSpec::Client(_))
    }

    /// Whether it may be asked about a doubt, or before a yes: a read that workers run, that answers at once, that nobody has to
    /// agree to, and that has no policy and no budget.
    pub const fn may_probe(&self) -> bool {
        self.unfit_to_be_asked().is_none()
    }

    /// Why it may not; `None`: it may.
    pub const fn unfit_to_be_asked(&self) -> Option<UnfitTool> {
        if self.is_run_by_client() {
            Some(UnfitTool::Client)
        } else if self.approval.is_some() {
            Some(UnfitTool::NeedsApproval)
        } else if self.completion.is_some() {
            Some(UnfitTool::AnswersLater)
        } else if !matches!(self.effect, Effect::Read) {
            Some(UnfitTool::Writes)
        } else if self.policy.is_some() {
            Some(UnfitTool::Ruled)
        } else if self.budget.is_some() {
            Some(UnfitTool::Budgeted)
        } else {
            None
        }
    }

    /// The argument whose values have start times of their own, a JSON pointer.
    pub fn rate_pointer(&self) -> Option<&str> {
        self.rate_limit.as_ref()?.pointer()
    }

    /// Whether another tool may be asked in the place of this one.
    pub fn asks_another(&self) -> bool {
        let fallback = self.fallback.as_ref();
        fallback.is_some_and(|fallback| fallback.tool.is_some())
    }

    /// Why the tool cannot be asked in the place of one of this queue; `None`: it can.
    pub fn unfit_to_stand_in(&self, queue: &QueueName) -> Option<UnfitTool> {
        if let Some(unfit) = self.unfit_to_be_asked() {
            Some(unfit)
        } else if self.is_limited() {
            Some(UnfitTool::Limited)
        } else if self.fallback.is_some() {
            Some(UnfitTool::FallsBack)
        } else if self.queue != *queue {
            Some(UnfitTool::Elsewhere)
        } else if self.sensitive.is_some() {
            Some(UnfitTool::Sensitive)
        } else {
            None
        }
    }

    /// Whether its claims ask the ledger for more than the call: for a place or a start time, or what its policy says.
    pub const fn is_judged_by_claim(&self) -> bool {
        self.is_limited() || self.policy.is_some()
    }

    /// Whether a new call takes its start time at the door, or is refused.
    pub fn refuses_over_limit(&self) -> bool {
        self.rate_limit.is_some() && self.on_limit == OnLimit::Refuse
    }

    /// The tool that is asked for who decides about its calls.
    pub fn preview(&self) -> Option<&PreviewSpec> {
        self.approval.as_ref()?.preview.as_ref()
    }

    /// When it is applied among others, in ascending order: before those that name it as their fallback, and then as their probe or
    /// their preview.
    pub fn turn(&self) -> u8 {
        if self.probe.is_some() || self.preview().is_some() {
            2
        } else {
            u8::from(self.asks_another())
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

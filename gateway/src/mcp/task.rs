//! **How does a call stand as a task?** A pure table.
//!
//! | the call | the task |
//! |---|---|
//! | is queued or runs | `working` |
//! | waits for what its client can say | `input_required`, with the requests |
//! | waits for somebody else | `working`, and its message says for whom |
//! | is in doubt, and its probe may still decide it | `working`, for 30 s at most |
//! | is in doubt | `completed`, with `isError`; settled later, it is what it was settled as |
//! | was cancelled | `cancelled`, and its message says what is known of the effect |
//! | is over otherwise, whatever it came to | `completed`, with the result that `tools/call` would have had |
//!
//! `failed` is for errors of the protocol, and no call becomes one once it is a task.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use fleet::{call::Language, ids::CallId, said, wire::message::Message};
use fleet_client::Answer;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    answer_code::AnswerCode,
    askable::Askable,
    asking::{CallQuestion, ClientAsked},
    catalogue::ToolFacts,
    envelope::{Became, McpEnvelope},
    message::RpcRequest,
    negotiate::META_CAPABILITIES,
    question_names::QuestionNames,
    result::{CallToolResult, ResultMeta, Telling},
    rpc::{RpcError, RpcId, RpcReply, completed},
    words,
};
use crate::{answer::Glimpse, headers::Speaker};

/// The extension in which a call becomes a task.
pub(super) const TASKS: &str = "io.modelcontextprotocol/tasks";

/// How long a call may take before it becomes a task, in seconds: until its id is known by a question of its own.
pub(super) const WAIT_S: u64 = 2;

/// How long a doubt is left to the probe of its tool.
const PROBED: Duration = Duration::from_secs(30);
/// How often a client is to look at a task, while it is young, and later.
const LOOK: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// How long it is young.
const YOUNG: Duration = Duration::from_secs(30);

/// What is done with a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OfTask {
    Get,
    Update,
    Cancel,
}

/// Whether the client of a request takes a task in the place of a result.
pub(super) fn are_taken(request: &RpcRequest) -> bool {
    #[derive(Deserialize)]
    struct DeclaredExtensions {
        #[serde(default)]
        extensions: HashMap<String, Box<RawValue>>,
    }

    let declared = request.meta.get(META_CAPABILITIES);
    let declared =
        declared.and_then(|declared| serde_json::from_slice::<DeclaredExtensions>(declared).ok());
    declared.is_some_and(|declared| {
        declared
            .extensions
            .get(TASKS)
            .is_some_and(|of| of.get().starts_with('{'))
    })
}

/// What is missing of a client that cannot take a task.
pub(super) fn no_tasks() -> RpcError {
    let what = Message::fixed(
        "this needs a client that declares the extension io.modelcontextprotocol/tasks with the request",
        "这需要客户端在请求中声明扩展 io.modelcontextprotocol/tasks",
    );
    RpcError::missing_capability(what, &json!({"extensions": {TASKS: {}}}))
}

/// How a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum TaskStatus {
    Working,
    InputRequired,
    Completed,
    Cancelled,
}

/// A task: a `CreateTaskResult`, or with what it came to the result of `tasks/get`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskResult<'a> {
    result_type: &'static str,
    task_id: CallId,
    status: TaskStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_message: Option<String>,
    created_at: String,
    last_updated_at: String,
    ttl_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_interval_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_requests: Option<InputRequests>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<CallToolResult<'a>>,
    #[serde(rename = "_meta")]
    meta: ResultMeta<'a>,
}

/// As what a call is told to a client that takes tasks.
#[derive(Debug, Clone)]
pub(super) struct CallAsTask {
    /// What the client can be asked.
    pub(super) askable: Askable,
    /// Of its tool, where there still is one.
    pub(super) facts: Option<Arc<ToolFacts>>,
    /// Whether it becomes one without being waited for.
    pub(super) is_at_once: bool,
    /// Who asks for it, by name: the questions of its call are asked of who made that.
    pub(super) principal: Option<String>,
}

/// What a task asks of its client.
enum TaskAsks {
    Requests(InputRequests),
    /// Nothing, for it lacks these capabilities.
    Lacks(Value),
    Nothing,
}

/// The requests of a task, by name.
type InputRequests = BTreeMap<String, Box<RawValue>>;

impl TaskResult<'_> {
    /// What it comes to. `envelope`: of its call.
    pub(super) fn code(&self, envelope: &McpEnvelope<'_>) -> AnswerCode {
        match self.status {
            TaskStatus::Working | TaskStatus::InputRequired => AnswerCode::Ok,
            TaskStatus::Completed | TaskStatus::Cancelled => AnswerCode::of_call(envelope),
        }
    }
}

impl CallAsTask {
    /// The task that a call has become whose answer leaves it open; `None`: it is over, or there is none.
    pub(super) fn created(
        &self,
        id: &RpcId,
        answer: &Answer,
        telling: Telling,
        names: &QuestionNames,
    ) -> Option<RpcReply> {
        let glimpse = Glimpse::of(answer.bytes());
        let call = glimpse.call_id.filter(|_| glimpse.is_open())?;
        let envelope = McpEnvelope::of(answer.bytes());
        let telling = self.telling(telling, names, now());
        let task = telling.created(call, answer.bytes(), &envelope);
        Some(completed(id, &task, Speaker::Call))
    }

    /// How it is told at this time.
    pub(super) fn telling<'a>(
        &'a self,
        telling: Telling,
        names: &'a QuestionNames,
        now: OffsetDateTime,
    ) -> TaskTelling<'a> {
        TaskTelling {
            telling,
            names,
            askable: self.askable,
            facts: self.facts.as_deref(),
            principal: self.principal.as_deref(),
            now,
        }
    }
}

/// How a call is told as a task.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskTelling<'a> {
    telling: Telling,
    /// Under which tasks ask.
    names: &'a QuestionNames,
    askable: Askable,
    facts: Option<&'a ToolFacts>,
    principal: Option<&'a str>,
    now: OffsetDateTime,
}

impl TaskTelling<'_> {
    /// The task that a call has become which is not over.
    fn created<'a>(
        &self,
        call: CallId,
        bytes: &[u8],
        envelope: &'a McpEnvelope<'a>,
    ) -> TaskResult<'a> {
        TaskResult {
            result_type: "task",
            // They are what a look at it says.
            input_requests: None,
            ..self.detailed(call, bytes, envelope)
        }
    }

    /// A call as a task. `bytes`: those of the envelope.
    pub(super) fn detailed<'a>(
        &self,
        call: CallId,
        bytes: &[u8],
        envelope: &'a McpEnvelope<'a>,
    ) -> TaskResult<'a> {
        let created = call.made_at();
        let changed = envelope
            .ended_after()
            .map_or(created, |after| created + after);
        let language = self.telling.language;
        let (status, message, requests) = match envelope.became() {
            Became::Open => (TaskStatus::Working, None, None),
            Became::Awaiting => {
                let (whom, by) = envelope.awaited();
                let waits = words::awaited(Some(call), whom, by);
                match self.asks(bytes) {
                    TaskAsks::Requests(requests) => {
                        (TaskStatus::InputRequired, None, Some(requests))
                    }
                    TaskAsks::Lacks(lacked) => {
                        let lacks = words::lacks(&lacked);
                        let waits = said!("{waits}\n{lacks}", "{waits}\n{lacks}", waits, lacks);
                        (TaskStatus::Working, Some(waits), None)
                    }
                    TaskAsks::Nothing => (TaskStatus::Working, Some(waits), None),
                }
            }
            Became::InDoubt if self.is_looked_into(changed) => {
                let doubt = words::in_doubt(Some(call), &envelope.failure(), true);
                (TaskStatus::Working, Some(doubt), None)
            }
            Became::Error if envelope.state == "cancelled" => {
                let failure = words::failed(&envelope.failure());
                (TaskStatus::Cancelled, Some(failure), None)
            }
            Became::InDoubt | Became::Result | Became::StandIn | Became::Error => {
                (TaskStatus::Completed, None, None)
            }
        };
        let is_over = matches!(status, TaskStatus::Completed | TaskStatus::Cancelled);
        TaskResult {
            result_type: "complete",
            task_id: call,
            status,
            status_message: message.map(|message| message.told(language).to_owned()),
            created_at: written(created),
            last_updated_at: written(changed),
            ttl_ms: millis(self.facts.map_or(ToolFacts::KEPT, |facts| facts.kept)),
            poll_interval_ms: (!is_over).then(|| millis(self.interval(created))),
            input_requests: requests,
            result: (status == TaskStatus::Completed).then(|| self.telling.result(envelope)),
            meta: self.telling.meta(envelope),
        }
    }

    /// What the client of a task is asked.
    fn asks(&self, envelope: &[u8]) -> TaskAsks {
        let language = self.telling.language;
        let question = question(envelope, self.principal, language);
        let asks = question
            .as_ref()
            .map(|question| question.asks(self.askable, language));
        match (question, asks) {
            (Some(question), Some(ClientAsked::Requests(asked))) => {
                let named = asked.into_iter();
                let named =
                    named.map(|(name, request)| (self.names.name(&question, &name), request));
                TaskAsks::Requests(named.collect())
            }
            (_, Some(ClientAsked::Lacks(lacked))) => TaskAsks::Lacks(lacked),
            (_, Some(ClientAsked::Nothing) | None | Some(ClientAsked::Requests(_))) => {
                TaskAsks::Nothing
            }
        }
    }

    /// Whether the probe of its tool may still decide about a call that is in doubt since then.
    fn is_looked_into(&self, since: OffsetDateTime) -> bool {
        self.facts.is_some_and(|facts| facts.has_probe) && self.now < since + PROBED
    }

    fn interval(&self, created: OffsetDateTime) -> Duration {
        LOOK[usize::from(self.now >= created + YOUNG)]
    }
}

/// What a call asks of this principal that may be asked inside a task. Arguments that are not told here are sensitive.
pub(super) fn question(
    envelope: &[u8],
    principal: Option<&str>,
    language: Language,
) -> Option<CallQuestion> {
    CallQuestion::of(envelope, None, language).filter(|question| question.is_asked_of(principal))
}

/// The time by the clock of this machine.
#[expect(
    clippy::disallowed_methods,
    reason = "it says how old a task is about, and decides nothing about its call"
)]
pub(super) fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

fn written(at: OffsetDateTime) -> String {
    at.format(&Rfc3339)
        .expect("a time of this age can be written")
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

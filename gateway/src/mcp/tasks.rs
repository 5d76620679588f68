//! `tasks/get`, `tasks/update` and `tasks/cancel`: a call by its id, as the extension `io.modelcontextprotocol/tasks` has it.
//!
//! Nothing is kept of a task: its id is that of its call, and any gateway looks at that. Who asks and for which tools is looked at
//! each time; a task of somebody else is one that there is not.

use std::time::Duration;

use fleet::{ids::CallId, said, store::approvals::Ruling, tokens::Scope, wire::message::Message};
use fleet_client::{
    Answer, Question,
    calls::{Approving, Cancelling, ClientOutput, HandedIn},
};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use super::{
    askable::Askable,
    asking::{ClientAsked, GivenAnswer},
    envelope::McpEnvelope,
    look::LookedCall,
    members::RawMembers,
    message::RpcRequest,
    result::Telling,
    rpc::{RpcError, RpcReply, SERVER_INFO, completed, server_info},
    serve::{LOOKERS_AT_CALLS, NoResult, ServedRequest},
    task::{self, CallAsTask, OfTask, are_taken, no_tasks},
};
use crate::{
    answer::Glimpse,
    headers::Speaker,
    refusal::{Refused, Repeatable},
    wait::WaitUntil,
};

/// How long an answer to a question is followed until the call waits again, or is over: a client that has said a part of what was asked
/// then finds the rest, and not a tool that is about to ask it.
const FOLLOWED: Duration = Duration::from_secs(2);
/// Who decides where nobody is asked for a name.
const NOBODY: &str = "mcp client";
impl ServedRequest<'_> {
    /// Answers what is asked of a task.
    pub(super) async fn task(
        &self,
        request: &RpcRequest,
        of: OfTask,
    ) -> Result<RpcReply, NoResult> {
        if !are_taken(request) {
            return Err(no_tasks().into());
        }
        let askable = Askable::of_request(request);
        let call = wanted(request)?;
        match of {
            OfTask::Get => {
                self.may(&LOOKERS_AT_CALLS)?;
                let looked = self.look(call, Duration::ZERO).await?;
                Ok(self.shown(request, call, looked, askable))
            }
            OfTask::Update => {
                self.may(&[Scope::Call])?;
                let responses = responses(request)?;
                self.update(call, responses, askable).await?;
                Ok(acknowledged(request))
            }
            OfTask::Cancel => {
                self.may(&[Scope::Call])?;
                self.cancel(call).await?;
                Ok(acknowledged(request))
            }
        }
    }

    async fn look(&self, call: CallId, longest: Duration) -> Result<LookedCall, NoResult> {
        let until = WaitUntil::DecidedOrAwaiting;
        let looked = LookedCall::at(&self.desk, self.client, call, longest, until).await;
        let looked = looked.map_err(|refused| self.internal(&refused))?;
        self.found(call, &looked.answer)?;
        Ok(looked)
    }

    /// Whether an answer is about the call, and no refusal.
    fn found(&self, call: CallId, answer: &Answer) -> Result<(), NoResult> {
        let glimpse = Glimpse::of(answer.bytes());
        if glimpse.is_not_found() {
            return Err(unknown(&call.to_string()).into());
        }
        if glimpse.is_refused() {
            return Err(self.refused_by_door(answer).into());
        }
        Ok(())
    }

    /// What a dispatcher refuses of a request about a task.
    fn refused_by_door(&self, answer: &Answer) -> RpcError {
        let failure = McpEnvelope::of(answer.bytes()).failure();
        RpcError::told_by_door(&failure)
    }

    fn internal(&self, refused: &Refused) -> RpcError {
        RpcError::refused(refused, self.client.language)
    }

    fn shown(
        &self,
        request: &RpcRequest,
        call: CallId,
        looked: LookedCall,
        askable: Askable,
    ) -> RpcReply {
        let telling = Telling {
            is_content: looked.is_content(),
            has_probe: looked.has_probe(),
            ..self.telling()
        };
        let LookedCall { answer, facts } = looked;
        let envelope = McpEnvelope::of(answer.bytes());
        let as_task = CallAsTask {
            askable,
            facts,
            is_at_once: true,
            principal: self.client.principal.name().map(ToOwned::to_owned),
        };
        let telling = as_task.telling(telling, &self.desk.question_names, task::now());
        let task = telling.detailed(call, answer.bytes(), &envelope);
        completed(&request.id, &task, Speaker::Call).coded(task.code(&envelope))
    }

    /// Hands on what a client says to what its task asks. What is not asked, or not any more, is passed over.
    async fn update(
        &self,
        call: CallId,
        responses: RawMembers,
        askable: Askable,
    ) -> Result<(), NoResult> {
        let looked = self.look(call, Duration::ZERO).await?;
        let language = self.client.language;
        // What is asked of another principal is not asked here.
        let name = self.client.principal.name();
        let Some(question) = task::question(looked.answer.bytes(), name, language) else {
            return Ok(());
        };
        let names = &self.desk.question_names;
        let responses = responses.renamed(|name| names.own(&question, name).map(ToOwned::to_owned));
        let asked = match question.asks(askable, language) {
            ClientAsked::Requests(asked) => asked,
            ClientAsked::Lacks(_) | ClientAsked::Nothing => return Ok(()),
        };
        if !asked.iter().any(|(name, _)| responses.get(name).is_some()) {
            return Ok(());
        }
        let (subjects, tenant) = (self.desk.dispatchers.subjects(), &self.client.tenant);
        let asked = match question.answered_in_part(&responses, askable) {
            GivenAnswer::Missing => return Err(no_answer().into()),
            GivenAnswer::Dismissed => return Ok(()),
            // The tool has asked for what its user does not say.
            GivenAnswer::Declined => return self.cancel(call).await,
            GivenAnswer::Decided {
                is_yes,
                args_hash,
                note,
            } => {
                let approving = Approving {
                    call_id: question.call,
                    token: Some(&question.token),
                    decision: if is_yes {
                        Ruling::Approve
                    } else {
                        Ruling::Deny
                    },
                    args_hash: &args_hash,
                    actor: name.unwrap_or(NOBODY),
                    note: &note,
                };
                Question::new(subjects.approve(tenant), body(&approving))
            }
            GivenAnswer::Input(input) => {
                let handed_in = HandedIn {
                    call_id: question.call,
                    token: &question.token,
                    answer: ClientOutput::Told {
                        input: RawValue::from_string(input).map_err(|_no_json| no_answer())?,
                    },
                };
                Question::new(subjects.output(tenant), body(&handed_in))
            }
        };
        let answer = self.ask(asked).await?;
        if Glimpse::of(answer.bytes()).is_too_late() {
            return Ok(());
        }
        self.found(call, &answer)?;
        // What it comes to is looked at by the client.
        if let Ok(looked) = self.look(call, FOLLOWED).await
            && let Some(next) = task::question(looked.answer.bytes(), name, language)
        {
            names.keep(&question, |name| responses.get(name).is_some(), &next);
        }
        Ok(())
    }

    async fn cancel(&self, call: CallId) -> Result<(), NoResult> {
        // Also where the token is not for its tool.
        self.look(call, Duration::ZERO).await?;
        let cancelling = Cancelling {
            call_id: call,
            reason: Some("its client cancelled the task"),
            actor: self.client.principal.name(),
        };
        let subject = self.desk.dispatchers.subjects().cancel(&self.client.tenant);
        let answer = self.ask(Question::new(subject, body(&cancelling))).await?;
        if Glimpse::of(answer.bytes()).is_too_late() {
            return Ok(());
        }
        self.found(call, &answer)
    }

    async fn ask(&self, question: Question) -> Result<Answer, NoResult> {
        let answered = self
            .desk
            .dispatchers
            .ask(question, Repeatable::Always)
            .await;
        answered.map_err(|refused| self.internal(&refused).into())
    }
}

/// The call that a request is about.
fn wanted(request: &RpcRequest) -> Result<CallId, RpcError> {
    let Some(id) = request.params.text("taskId") else {
        let what = Message::fixed(
            "params.taskId must be a string",
            "params.taskId 必须是字符串",
        );
        return Err(RpcError::invalid_params(what));
    };
    id.parse().map_err(|_no_id| unknown(&id))
}

fn responses(request: &RpcRequest) -> Result<RawMembers, RpcError> {
    let responses = request.params.get("inputResponses");
    let read = responses.and_then(|responses| RawMembers::of(responses).ok());
    read.ok_or_else(|| {
        RpcError::invalid_params(Message::fixed(
            "params.inputResponses must be an object that names nothing twice",
            "params.inputResponses 必须是没有重复名称的对象",
        ))
    })
}

fn unknown(id: &str) -> RpcError {
    let id: String = id.chars().take(100).collect();
    RpcError::unknown(said!("there is no task {id}", "没有任务 {id}"))
}

fn acknowledged(request: &RpcRequest) -> RpcReply {
    let done: Value = json!({"resultType": "complete", "_meta": {SERVER_INFO: server_info()}});
    completed(&request.id, &done, Speaker::Door)
}

fn no_answer() -> RpcError {
    RpcError::invalid_params(Message::fixed(
        "params.inputResponses has what is no answer to what was asked",
        "params.inputResponses 中的内容不是对所提问题的回答",
    ))
}

fn body(question: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(question).expect("a question has only string keys")
}

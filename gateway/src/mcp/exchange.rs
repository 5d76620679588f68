//! A call of one request, from its submission to the message that answers it, with what is asked of its client in between. It owns what it
//! needs, so that it may go on where the request's own future has ended: in a stream.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use fleet::{
    ids::{CallId, Label, ToolName},
    wire::{code::Code, message::Message},
};
use fleet_client::{Answer, Question};
use serde::Serialize;
use serde_json::{json, value::RawValue};
use tokio::time::Instant;

use super::{
    answer_code::AnswerCode,
    askable::Askable,
    asking::{CallQuestion, ClientAsked, GivenAnswer},
    attempts::{self, CallKey},
    derived_key::DerivedKey,
    envelope::McpEnvelope,
    get,
    members::RawMembers,
    request_state::{RequestState, StateAbout},
    result::{ResultMeta, Telling},
    revision::Revision,
    rpc::{RpcError, RpcId, RpcReply, completed},
    task::{self, CallAsTask},
    words,
};
use crate::{
    answer::Glimpse,
    body::aside,
    desk::CallDesk,
    headers::Speaker,
    refusal::{Refused, Repeatable},
    submit::{Attended, Submitted, attend, cancel},
    wait::{WaitUntil, wait},
    when_left::WhenLeft,
};

/// Why calls are taken back, in the history.
const DECLINED: &str = "its caller does not want to say what it asks";
const UNASKABLE: &str = "its client cannot be asked what it asks";
/// Who decides where nobody is asked for a token.
const NOBODY: &str = "mcp client";

/// A call that is to be made, or gone on with.
#[derive(Debug)]
pub(super) struct CallExchange {
    pub(super) desk: Arc<CallDesk>,
    /// Of the request.
    pub(super) id: RpcId,
    pub(super) telling: Telling,
    pub(super) tenant: Label,
    pub(super) tool: ToolName,
    /// Who asks, by name.
    pub(super) principal: Option<String>,
    /// As the tool gets them.
    pub(super) arguments: Bytes,
    /// As they were sent; their room is taken until the end.
    pub(super) requested: RequestedCall,
    /// What its client can be asked.
    pub(super) askable: Askable,
    /// What its client has answered.
    pub(super) responses: Option<RawMembers>,
    pub(super) start: CallStart,
    /// What becomes of the call when its client goes away.
    pub(super) when_left: WhenLeft,
    /// As what it goes on where it is not over; `None`: its client takes no tasks.
    pub(super) task: Option<CallAsTask>,
}

/// How it begins.
#[derive(Debug)]
pub(super) enum CallStart {
    /// The call is made, by this key.
    Submit(Box<Submitted>, CallKey),
    /// It was made, and its client was asked this.
    Resume(RequestState),
    /// It has begun.
    Begun,
}

/// What a request is, as it may be sent again with answers.
#[derive(Debug, Clone)]
pub(super) struct RequestedCall {
    pub(super) arguments: Bytes,
    /// The header that names its files.
    pub(super) files: String,
}

/// Where a call stands.
#[derive(Debug)]
pub(super) enum CallStanding {
    /// Its request is answered.
    Told(AnsweredCall),
    /// Its client is asked.
    Asks(Box<AskingCall>),
}

/// A call that asks its client.
#[derive(Debug)]
pub(super) struct AskingCall {
    pub(super) question: CallQuestion,
    /// By name.
    pub(super) requests: Vec<(String, Box<RawValue>)>,
    answer: Answer,
}

/// The end of a call, or of the wait for it.
#[derive(Debug)]
pub(super) struct AnsweredCall {
    pub(super) reply: RpcReply,
    /// Whether it was made by this request and is over: its events have been told.
    pub(super) is_made_and_over: bool,
}

impl CallExchange {
    /// Makes the call, or goes on with it, up to the answer: its result, or what its client is asked. Dropping the future leaves
    /// the call as `when_left` says.
    pub(super) async fn answer(mut self) -> AnsweredCall {
        match self.begin().await {
            CallStanding::Told(told) => told,
            CallStanding::Asks(asking) => self.asked_by_result(&asking).await,
        }
    }

    /// The same up to the first question. Once.
    pub(super) async fn begin(&mut self) -> CallStanding {
        let started = std::mem::replace(&mut self.start, CallStart::Begun);
        match started {
            CallStart::Submit(call, key) => {
                let body = self.requested.arguments.clone();
                let (desk, left) = (Arc::clone(&self.desk), self.when_left.clone());
                let answered = attempts::answer(desk, *call, key, body, left).await;
                self.telling.is_earlier = answered
                    .as_ref()
                    .is_ok_and(|answer| Glimpse::of(answer.bytes()).replayed);
                let stands = self.stands(answered).await;
                match (stands, self.responses.take()) {
                    // Who knows what is asked may answer with the request. A yes is for what was shown.
                    (CallStanding::Asks(asking), Some(responses))
                        if asking.question.is_of_protocol()
                            && self.is_answered(&asking.question, &responses) =>
                    {
                        self.go_on(*asking, &responses).await
                    }
                    (stands, _) => stands,
                }
            }
            CallStart::Resume(state) => self.resume(&state).await,
            CallStart::Begun => {
                self.stands(Err(Refused::no_answer(Repeatable::Always)))
                    .await
            }
        }
    }

    /// Whether these are answers to all that is asked.
    pub(super) fn is_answered(&self, question: &CallQuestion, responses: &RawMembers) -> bool {
        question.answered(responses, self.askable) != GivenAnswer::Missing
    }

    /// Goes on behind the question that a client was asked, or where that was answered already, waits for what comes of the call.
    async fn resume(&mut self, state: &RequestState) -> CallStanding {
        self.telling.is_earlier = state.is_earlier;
        let (desk, now) = (&self.desk, Instant::now());
        let looked = wait(
            desk,
            &self.tenant,
            state.call,
            now,
            WaitUntil::DecidedOrAwaiting,
        )
        .await;
        let stands = self.stands(looked).await;
        match stands {
            CallStanding::Asks(asking) if asking.question.round() == state.round => {
                match self.responses.take() {
                    Some(responses) => self.go_on(*asking, &responses).await,
                    None => CallStanding::Asks(asking),
                }
            }
            CallStanding::Asks(asking) => CallStanding::Asks(asking),
            CallStanding::Told(_) => self.attend(state.call).await,
        }
    }

    /// Hands in what a client has answered, and waits for what comes of the call. Dropping the future leaves the call as `when_left` says.
    pub(super) async fn go_on(
        &mut self,
        asking: AskingCall,
        responses: &RawMembers,
    ) -> CallStanding {
        let question = &asking.question;
        let call = question.call;
        let subjects = self.desk.dispatchers.subjects();
        let is_decided;
        let (subject, body) = match question.answered(responses, self.askable) {
            GivenAnswer::Missing => return CallStanding::Asks(Box::new(asking)),
            GivenAnswer::Dismissed => return CallStanding::Told(self.told_as_text(asking)),
            GivenAnswer::Declined => {
                let principal = self.principal.as_deref();
                cancel(&self.desk, &self.tenant, call, DECLINED, principal).await;
                return self.attend(call).await;
            }
            GivenAnswer::Decided {
                is_yes,
                args_hash,
                note,
            } => {
                is_decided = true;
                let decision = json!({
                    "call_id": call,
                    "token": question.token,
                    "decision": if is_yes { "approve" } else { "deny" },
                    "args_hash": args_hash,
                    "actor": self.principal.as_deref().unwrap_or(NOBODY),
                    "note": note,
                });
                (subjects.approve(&self.tenant), decision.to_string())
            }
            GivenAnswer::Input(input) => {
                is_decided = false;
                let (call, token) = (json!(call), json!(question.token));
                let body = format!(r#"{{"call_id":{call},"token":{token},"input":{input}}}"#);
                (subjects.output(&self.tenant), body)
            }
        };
        let handed_in = Question::new(subject, body);
        let answered = self
            .desk
            .dispatchers
            .ask(handed_in, Repeatable::Always)
            .await;
        let refused = match &answered {
            Ok(answer) => Glimpse::of(answer.bytes()).refusal(),
            Err(_no_answer) => None,
        };
        match refused {
            // Somebody else was first: what comes of the call is the answer.
            None | Some(Code::Conflict | Code::AlreadyTerminal) => {}
            Some(_) => return CallStanding::Told(self.told(&answered)),
        }
        let stands = self.attend(call).await;
        match stands {
            // It waits for another person's yes.
            CallStanding::Asks(next) if is_decided && next.question.round() == question.round() => {
                CallStanding::Told(self.told_as_text(*next))
            }
            stands => stands,
        }
    }

    /// Waits for a call. Dropping the future leaves it as `when_left` says.
    async fn attend(&self, call: CallId) -> CallStanding {
        let waits = match &self.task {
            None => get::WAIT_MAX_S,
            Some(_) => task::WAIT_S,
        };
        let attended = Attended {
            tenant: self.tenant.clone(),
            call,
            principal: self.principal.clone(),
            when_left: self.when_left.clone(),
        };
        let longest = Duration::from_secs(waits);
        let answered = attend(Arc::clone(&self.desk), attended, longest).await;
        self.stands(answered).await
    }

    /// Leaves the call whose client is gone while it was asked.
    pub(super) async fn left(&self, call: CallId) {
        if !self.when_left.cancels(&self.tenant, call) {
            return;
        }
        let principal = self.principal.as_deref();
        cancel(
            &self.desk,
            &self.tenant,
            call,
            crate::submit::GONE,
            principal,
        )
        .await;
    }

    /// Where the call stands by this answer.
    async fn stands(&self, answered: Result<Answer, Refused>) -> CallStanding {
        let language = self.telling.language;
        let asking = answered
            .as_ref()
            .ok()
            .filter(|answer| Glimpse::of(answer.bytes()).awaits())
            // A task is asked as one.
            .filter(|_| !self.task.as_ref().is_some_and(|task| task.is_at_once))
            .and_then(|answer| CallQuestion::of(answer.bytes(), Some(&self.arguments), language))
            // With a key that another principal has given, too.
            .filter(|question| question.is_asked_of(self.principal.as_deref()));
        let Some(question) = asking else {
            return CallStanding::Told(self.told(&answered));
        };
        match question.asks(self.askable, language) {
            ClientAsked::Requests(requests) => {
                let answer = answered.expect("a question is of an answer");
                CallStanding::Asks(Box::new(AskingCall {
                    question,
                    requests,
                    answer,
                }))
            }
            // Another client may be asked about the call of an earlier request.
            ClientAsked::Lacks(lacked)
                if self.telling.revision == Revision::Modern && !self.telling.is_earlier =>
            {
                // A tool that asks has done nothing, so the call can be one that never was.
                let principal = self.principal.as_deref();
                let taken_back = cancel(
                    &self.desk,
                    &self.tenant,
                    question.call,
                    UNASKABLE,
                    principal,
                )
                .await;
                match taken_back.is_some_and(|state| state == "cancelled") {
                    true => CallStanding::Told(AnsweredCall {
                        reply: RpcError::lacks(&lacked, &words::lacks(&lacked))
                            .told(Some(&self.id), language),
                        is_made_and_over: true,
                    }),
                    false => CallStanding::Told(self.told(&answered)),
                }
            }
            ClientAsked::Lacks(lacked) => {
                let lacks = words::lacks(&lacked);
                CallStanding::Told(self.told_beside(&answered, Some(&lacks)))
            }
            ClientAsked::Nothing => CallStanding::Told(self.told(&answered)),
        }
    }

    /// What a call that asks is told as where nobody is asked.
    pub(super) fn told_as_text(&self, asking: AskingCall) -> AnsweredCall {
        self.told(&Ok(asking.answer))
    }

    fn told(&self, answered: &Result<Answer, Refused>) -> AnsweredCall {
        self.told_beside(answered, None)
    }

    /// The same, and these words beside it.
    fn told_beside(
        &self,
        answered: &Result<Answer, Refused>,
        words: Option<&Message>,
    ) -> AnsweredCall {
        let glimpse = answered
            .as_ref()
            .map(|answer| Glimpse::of(answer.bytes()))
            .unwrap_or_default();
        let of_tool = match answered {
            Ok(answer) => Ok(answer.clone()),
            Err(refused) => Err(refused.clone().of_tool(self.tool.as_str())),
        };
        let is_over = glimpse.call_id.is_some() && !glimpse.is_open();
        let created = match (answered, &self.task) {
            (Ok(answer), Some(task)) => {
                let names = &self.desk.question_names;
                task.created(&self.id, answer, self.telling, names)
            }
            _ => None,
        };
        AnsweredCall {
            reply: created.unwrap_or_else(|| told(&self.id, &of_tool, self.telling, words)),
            is_made_and_over: is_over && !glimpse.replayed && !self.telling.is_earlier,
        }
    }

    /// The result that asks its client, which sends the request again with its answers.
    pub(super) async fn asked_by_result(&self, asking: &AskingCall) -> AnsweredCall {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct InputRequiredResult<'a> {
            result_type: &'static str,
            input_requests: BTreeMap<&'a str, &'a RawValue>,
            request_state: String,
            #[serde(rename = "_meta")]
            meta: ResultMeta<'a>,
        }

        let sealed = match self.telling.revision {
            Revision::Modern => self.seal(&asking.question).await,
            Revision::Legacy => None,
        };
        let Some(request_state) = sealed else {
            return self.told(&Ok(asking.answer.clone()));
        };
        let envelope = McpEnvelope::of(asking.answer.bytes());
        let requests = asking.requests.iter();
        let result = InputRequiredResult {
            result_type: "input_required",
            input_requests: requests
                .map(|(name, request)| (name.as_str(), &**request))
                .collect(),
            request_state,
            meta: self.telling.meta(&envelope),
        };
        AnsweredCall {
            reply: completed(&self.id, &result, Speaker::Call),
            is_made_and_over: false,
        }
    }

    /// What a client sends back with its answers; `None`: it cannot be signed at the moment.
    async fn seal(&self, question: &CallQuestion) -> Option<String> {
        let about = self
            .requested
            .about(&self.tenant, self.principal.as_deref(), &self.tool);
        let about = about.await.ok()?;
        let (keys, now) = self.desk.state_keys.get(false).await?;
        let (call, round) = (question.call, question.round());
        let state = RequestState::new(call, round, self.telling.is_earlier, &about, now);
        Some(state.seal(&keys))
    }
}

impl RequestedCall {
    /// What a state of this request is about.
    ///
    /// # Errors
    ///
    /// There is no room to look at the arguments.
    pub(super) async fn about(
        &self,
        tenant: &Label,
        principal: Option<&str>,
        tool: &ToolName,
    ) -> Result<StateAbout, Refused> {
        let Self { arguments, files } = self.clone();
        let (principal, tool) = (principal.unwrap_or_default().to_owned(), tool.clone());
        let bytes = arguments.len();
        let deriving = move || DerivedKey::of(&principal, &tool, &arguments, &files);
        Ok(StateAbout::of(tenant, aside(bytes, deriving).await?))
    }
}

/// What became of a call, as the answer to its request.
/// `words`: what a model reads beside it.
pub(super) fn told(
    id: &RpcId,
    answered: &Result<Answer, Refused>,
    telling: Telling,
    words: Option<&Message>,
) -> RpcReply {
    let refusal;
    let (bytes, speaker): (&[u8], Speaker) = match answered {
        Ok(answer) if Glimpse::of(answer.bytes()).is_refused() => (answer.bytes(), Speaker::Door),
        Ok(answer) => (answer.bytes(), Speaker::Call),
        Err(refused) => {
            refusal = refused.envelope(telling.language).to_bytes();
            (&refusal, Speaker::Gateway)
        }
    };
    let envelope = McpEnvelope::of(bytes);
    if envelope.is_of_unknown_tool() {
        return RpcError::unknown_tool(&envelope.tool).told(Some(id), telling.language);
    }
    let mut result = telling.result(&envelope);
    if let Some(words) = words {
        result.say(words, telling.language);
    }
    completed(id, &result, speaker).coded(AnswerCode::of_call(&envelope))
}

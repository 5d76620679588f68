//! One request of a client, from its method to its answer, whatever carries it.

use std::sync::Arc;

use bytes::Bytes;
use fleet::{
    ids::ToolName,
    manifest::TaskUse,
    mcp,
    tokens::Scope,
    wire::{code::Code, message::Message},
};
use serde_json::json;

use super::{
    askable::Askable,
    attempts::CallKey,
    called::{self, CalledTool, ClientAnswers},
    catalogue::ToolFacts,
    client::McpClient,
    derived_key::DerivedKey,
    exchange::{CallExchange, CallStart, RequestedCall, told},
    get, handshake, key_argument,
    listing::{self, NoPage},
    look::LookedCall,
    message::RpcRequest,
    methods::ServedMethod,
    request_state::{RequestState, StateAbout},
    result::Telling,
    revision::Revision,
    rpc::{RpcError, RpcReply, completed},
    task::{self, CallAsTask},
    wishes,
    words::FoundBy,
};
use crate::{
    body::aside, desk::CallDesk, forward::Preference, headers::Speaker, referents::may_stand,
    refusal::Refused, submit::Submitted, when_left::WhenLeft,
};

/// Who may look at a call.
pub(super) const LOOKERS_AT_CALLS: [Scope; 2] = [Scope::Call, Scope::Read];

/// A request that is being answered.
pub(super) struct ServedRequest<'a> {
    pub(super) desk: Arc<CallDesk>,
    pub(super) client: &'a McpClient,
    pub(super) revision: Revision,
    /// What becomes of its call when its client goes away.
    pub(super) when_left: WhenLeft,
}

/// Why a request has no result.
pub(super) enum NoResult {
    /// It is answered with an error of the protocol.
    Rpc(RpcError),
    /// It is refused as at every endpoint.
    Refused(Refused),
}

impl From<Refused> for NoResult {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

impl From<RpcError> for NoResult {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

/// A call of the fleet's that is asked for.
pub(super) enum BegunCall {
    /// It can be submitted.
    Exchange(Box<CallExchange>),
    /// It was refused before.
    Over(RpcReply),
}

/// A call that is about to be submitted.
struct Prepared {
    call: Submitted,
    key: CallKey,
    telling: Telling,
    /// As what it goes on where it is not over; `None`: its client takes no tasks.
    task: Option<CallAsTask>,
}

/// A call that is about to be made, or gone on with.
struct Begin {
    /// As the tool gets them.
    arguments: Bytes,
    telling: Telling,
    task: Option<CallAsTask>,
    start: CallStart,
}

impl ServedRequest<'_> {
    /// The answer. Dropping the future leaves the call that it made as `when_left` says.
    ///
    /// # Errors
    ///
    /// The request is not right, or the token is not for what it asks for.
    pub(super) async fn answer(self, request: &RpcRequest) -> Result<RpcReply, NoResult> {
        let own = |result| completed(&request.id, &result, Speaker::Gateway);
        let unknown = || RpcError::unknown_method(self.revision, &request.method);
        let method = ServedMethod::of(self.revision, &request.method).ok_or_else(unknown)?;
        match method {
            ServedMethod::Discover => {
                let listens = self.desk.serves_streams;
                Ok(own(handshake::discovered(self.client.language, listens)))
            }
            ServedMethod::Initialize => {
                Ok(own(handshake::initialized(request, self.client.language)?))
            }
            ServedMethod::Ping => Ok(own(json!({}))),
            ServedMethod::SetLogLevel => {
                wishes::level(request)?;
                Ok(own(json!({})))
            }
            ServedMethod::ListTools => self.list(request).await,
            ServedMethod::CallTool => self.call(request).await,
            ServedMethod::Task(of) => self.task(request, of).await,
            // Its answer is a stream, which is made where there are some.
            ServedMethod::Listen => Err(unknown().into()),
            ServedMethod::ListResources => Ok(self.resources(request)),
            ServedMethod::ListTemplates => Ok(self.resource_templates(request)),
            ServedMethod::ReadResource => self.resource(request).await,
            ServedMethod::SubscribeResource => self.subscription(request),
            ServedMethod::ListPrompts => Ok(self.prompts(request)),
            ServedMethod::GetPrompt => self.prompt(request),
            ServedMethod::Complete => self.completion(request),
        }
    }

    async fn list(&self, request: &RpcRequest) -> Result<RpcReply, NoResult> {
        let page = listing::page(
            &self.desk,
            &self.client.tenant,
            &self.client.principal,
            self.revision,
            request,
        );
        match page.await {
            Ok(page) => Ok(completed(&request.id, &page, Speaker::Door)),
            Err(NoPage::Wrong(error)) => Err(error.into()),
            Err(NoPage::Refused(refused)) => {
                Err(RpcError::refused(&refused, self.client.language).into())
            }
        }
    }

    async fn call(self, request: &RpcRequest) -> Result<RpcReply, NoResult> {
        let called = CalledTool::read(request)?;
        if called.name == get::NAME {
            return self.get(request, &called).await;
        }
        match self.begin(request, called).await? {
            BegunCall::Exchange(exchange) => Ok(exchange.answer().await.reply),
            BegunCall::Over(reply) => Ok(reply),
        }
    }

    /// What is to be submitted for a call of the fleet's.
    ///
    /// # Errors
    ///
    /// There is no such tool for who asks.
    pub(super) async fn begin(
        &self,
        request: &RpcRequest,
        called: CalledTool,
    ) -> Result<BegunCall, NoResult> {
        self.may(&[Scope::Call])?;
        let tool: Option<ToolName> = called.name.parse().ok();
        // A tool that the token is not for is one that there is not, and so is what looks at MCP servers.
        let tool = tool.filter(|tool| {
            let tool = tool.as_str();
            self.client.principal.may_use(tool) && !mcp::is_for_operators(tool)
        });
        let Some(tool) = tool else {
            return Err(RpcError::unknown_tool(&called.name).into());
        };
        let requested = RequestedCall {
            arguments: called.arguments.clone(),
            files: called::files(&self.client.headers),
        };
        let answers = match self.revision {
            Revision::Modern => ClientAnswers::read(request)?,
            Revision::Legacy => ClientAnswers::default(),
        };
        let principal = self.client.principal.name();
        let begun = match answers.state {
            Some(sealed) => {
                let about = requested.about(&self.client.tenant, principal, &tool);
                let about = about.await.map_err(NoResult::Refused)?;
                let state = self.opened(&sealed, &about).await?;
                let resumed = self.resumed(request, called, &tool).await;
                resumed.map(|(arguments, telling, task)| Begin {
                    arguments,
                    telling,
                    task,
                    start: CallStart::Resume(state),
                })
            }
            None => {
                let submitted = self.submission(request, called, tool.clone()).await;
                submitted.map(|prepared| Begin {
                    arguments: prepared.call.body.clone(),
                    telling: prepared.telling,
                    task: prepared.task,
                    start: CallStart::Submit(Box::new(prepared.call), prepared.key),
                })
            }
        };
        match begun {
            Ok(Begin {
                arguments,
                telling,
                task,
                start,
            }) => Ok(BegunCall::Exchange(Box::new(CallExchange {
                desk: Arc::clone(&self.desk),
                id: request.id.clone(),
                telling,
                tenant: self.client.tenant.clone(),
                tool,
                principal: principal.map(ToOwned::to_owned),
                arguments,
                requested,
                askable: match self.revision {
                    Revision::Modern => Askable::of_request(request),
                    Revision::Legacy => Askable::default(),
                },
                responses: answers.responses,
                start,
                when_left: self.when_left.clone(),
                task,
            }))),
            Err(error @ NoResult::Rpc(_)) => Err(error),
            Err(NoResult::Refused(refused)) => {
                let answered = Err(refused.of_tool(tool.as_str()));
                Ok(BegunCall::Over(told(
                    &request.id,
                    &answered,
                    self.telling(),
                    None,
                )))
            }
        }
    }

    /// What a client sends back with its answers about this.
    async fn opened(&self, sealed: &str, about: &StateAbout) -> Result<RequestState, NoResult> {
        for newest in [false, true] {
            let Some((keys, now)) = self.desk.state_keys.get(newest).await else {
                let what = Message::fixed(
                    "requestState cannot be looked at at the moment",
                    "目前无法核对 requestState",
                );
                let refused = Refused::later(Code::StoreUnavailable, what);
                return Err(RpcError::refused(&refused, self.client.language).into());
            };
            if let Some(state) = RequestState::open(sealed, &keys, about, now) {
                return Ok(state);
            }
        }
        Err(RpcError::wrong_state().into())
    }

    /// The arguments as the tool got them, and how the answer is told, of a call that was made before.
    async fn resumed(
        &self,
        request: &RpcRequest,
        called: CalledTool,
        tool: &ToolName,
    ) -> Result<(Bytes, Telling, Option<CallAsTask>), NoResult> {
        let catalogue = &self.desk.catalogue;
        let facts = catalogue.facts(&self.desk.dispatchers, &self.client.tenant, tool);
        let facts = facts.await?;
        let (argument, arguments) = match facts.as_ref().filter(|facts| facts.writes) {
            Some(facts) => key_argument::take(&called.arguments, &facts.key_argument)?,
            None => (None, called.arguments),
        };
        let is_keyed = called.key.or(argument).is_some();
        let telling = Telling {
            is_content: facts.as_ref().is_some_and(|facts| facts.is_content),
            has_probe: facts.as_ref().is_some_and(|facts| facts.has_probe),
            found_by: Some(match is_keyed {
                true => FoundBy::ItsKey,
                false => FoundBy::ItsArguments,
            }),
            ..self.telling()
        };
        Ok((arguments, telling, self.as_task(request, facts)))
    }

    /// Whether the client of a request takes a task in the place of a result.
    fn takes_tasks(&self, request: &RpcRequest) -> bool {
        self.revision == Revision::Modern && task::are_taken(request)
    }

    /// As what a call goes on; `None`: its client takes no tasks.
    fn as_task(&self, request: &RpcRequest, facts: Option<Arc<ToolFacts>>) -> Option<CallAsTask> {
        self.takes_tasks(request).then(|| CallAsTask {
            askable: Askable::of_request(request),
            principal: self.client.principal.name().map(ToOwned::to_owned),
            is_at_once: facts
                .as_ref()
                .is_some_and(|facts| facts.task != TaskUse::Optional),
            facts,
        })
    }

    /// The call as it is submitted, by which key, and how its answer is told.
    async fn submission(
        &self,
        request: &RpcRequest,
        called: CalledTool,
        tool: ToolName,
    ) -> Result<Prepared, NoResult> {
        let McpClient {
            principal,
            tenant,
            headers: given,
            ..
        } = self.client;
        let takes_tasks = self.takes_tasks(request);
        let dispatchers = &self.desk.dispatchers;
        let facts = self
            .desk
            .catalogue
            .facts(dispatchers, tenant, &tool)
            .await?;
        let becomes = facts.as_ref().map(|facts| facts.task).unwrap_or_default();
        if becomes == TaskUse::Required && self.revision == Revision::Modern && !takes_tasks {
            return Err(task::no_tasks().into());
        }
        let (argument, body) = match facts.as_ref().filter(|facts| facts.writes) {
            Some(facts) => key_argument::take(&called.arguments, &facts.key_argument)?,
            None => (None, called.arguments),
        };
        if let Some(key) = called.key.as_ref().or(argument.as_ref()) {
            called::own_key(key)?;
        }
        let name = principal.name();
        let headers = called::headers(given, request, name)?;
        may_stand(dispatchers, principal, tenant, [&body[..]]).await?;
        // A tool that is not known may write.
        let derives = facts
            .as_ref()
            .is_none_or(|facts| facts.writes && !facts.has_own_keys);
        let key = match called.key.or(argument) {
            Some(key) => CallKey::Given(key),
            None if derives => {
                let (principal, tool) = (name.unwrap_or_default().to_owned(), tool.clone());
                let (body, bytes) = (body.clone(), body.len());
                let files = called::files(given);
                let deriving = move || DerivedKey::of(&principal, &tool, &body, &files);
                CallKey::Derived(aside(bytes, deriving).await?)
            }
            None => CallKey::None,
        };
        let call = Submitted {
            tenant: tenant.clone(),
            tool,
            headers,
            body,
            preference: match (takes_tasks, becomes) {
                (false, _) => Preference::waiting(get::WAIT_MAX_S),
                (true, TaskUse::Optional) => Preference::waiting(task::WAIT_S),
                (true, TaskUse::Preferred | TaskUse::Required) => Preference::at_once(),
            },
            principal: name.map(ToOwned::to_owned),
            known: None,
        };
        let telling = Telling {
            is_content: facts.as_ref().is_some_and(|facts| facts.is_content),
            has_probe: facts.as_ref().is_some_and(|facts| facts.has_probe),
            found_by: Some(key.found_by()),
            ..self.telling()
        };
        Ok(Prepared {
            call,
            key,
            telling,
            task: self.as_task(request, facts),
        })
    }

    /// Answers the gateway's own tool.
    async fn get(&self, request: &RpcRequest, called: &CalledTool) -> Result<RpcReply, NoResult> {
        self.may(&LOOKERS_AT_CALLS)?;
        let looked = match get::WantedCall::read(&called.arguments) {
            Ok(wanted) => wanted.answer(&self.desk, self.client).await,
            Err(refused) => Err(refused),
        };
        let telling = Telling {
            is_content: looked.as_ref().is_ok_and(LookedCall::is_content),
            has_probe: looked.as_ref().is_ok_and(LookedCall::has_probe),
            ..self.telling()
        };
        let answered = looked.map(|looked| looked.answer);
        let answered = answered.map_err(|refused| refused.of_tool(get::NAME));
        Ok(told(&request.id, &answered, telling, None))
    }

    pub(super) fn may(&self, one_of: &[Scope]) -> Result<(), NoResult> {
        let may = self.client.principal.may(one_of);
        may.map_err(NoResult::Refused)
    }

    pub(super) const fn telling(&self) -> Telling {
        Telling {
            revision: self.revision,
            language: self.client.language,
            is_content: false,
            has_probe: false,
            found_by: None,
            is_earlier: false,
        }
    }
}

//! One request of a client, from its method to its answer, whatever carries it.

use std::sync::Arc;

use bytes::Bytes;
use fleet::{
    ids::ToolName,
    tokens::Scope,
    wire::{code::Code, message::Message},
};
use serde_json::json;

use super::{
    askable::Askable,
    attempts::CallKey,
    called::{self, CalledTool, ClientAnswers},
    client::McpClient,
    derived_key::DerivedKey,
    exchange::{CallExchange, CallStart, RequestedCall, told},
    get, handshake, key_argument,
    listing::{self, NoPage},
    message::RpcRequest,
    request_state::{RequestState, StateAbout},
    result::Telling,
    revision::Revision,
    rpc::{RpcError, RpcReply, completed},
    wishes,
};
use crate::{
    answer::Glimpse, body::aside, desk::CallDesk, forward::Preference, headers::Speaker,
    referents::may_stand, refusal::Refused, submit::Submitted,
};

/// Who may look at a call.
const LOOKERS_AT_CALLS: [Scope; 2] = [Scope::Call, Scope::Read];

/// A request that is being answered.
pub(super) struct ServedRequest<'a> {
    pub(super) desk: Arc<CallDesk>,
    pub(super) client: &'a McpClient,
    pub(super) revision: Revision,
}

/// Why a request has no result.
pub(super) enum NoResult {
    /// It is answered with an error of the protocol.
    Rpc(RpcError),
    /// It is refused as at every endpoint.
    Refused(Refused),
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

impl ServedRequest<'_> {
    /// The answer. Dropping the future cancels the call that it made.
    ///
    /// # Errors
    ///
    /// The request is not right, or the token is not for what it asks for.
    pub(super) async fn answer(self, request: &RpcRequest) -> Result<RpcReply, NoResult> {
        let own = |result| completed(&request.id, &result, Speaker::Gateway);
        match (self.revision, request.method.as_str()) {
            (Revision::Modern, "server/discover") => {
                let listens = self.desk.serves_streams;
                Ok(own(handshake::discovered(self.client.language, listens)))
            }
            (Revision::Legacy, "initialize") => {
                Ok(own(handshake::initialized(request, self.client.language)?))
            }
            (Revision::Legacy, "ping") => Ok(own(json!({}))),
            (Revision::Legacy, "logging/setLevel") => {
                wishes::level(request)?;
                Ok(own(json!({})))
            }
            (_, "tools/list") => self.list(request).await,
            (_, "tools/call") => self.call(request).await,
            (revision, method) => Err(RpcError::unknown_method(revision, method).into()),
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
        // A tool that the token is not for is one that there is not.
        let tool = tool.filter(|tool| self.client.principal.may_use(tool.as_str()));
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
                let resumed = self.resumed(called, &tool).await;
                resumed.map(|(arguments, telling)| (arguments, telling, CallStart::Resume(state)))
            }
            None => {
                let submitted = self.submission(request, called, tool.clone()).await;
                submitted.map(|(call, key, mut telling)| {
                    telling.found_by = Some(key.found_by());
                    let arguments = call.body.clone();
                    let start = CallStart::Submit(Box::new(call), key);
                    (arguments, telling, start)
                })
            }
        };
        match begun {
            Ok((arguments, telling, start)) => Ok(BegunCall::Exchange(Box::new(CallExchange {
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
            }))),
            Err(refused) => {
                let answered = Err(refused.of_tool(tool.as_str()));
                Ok(BegunCall::Over(told(
                    &request.id,
                    &answered,
                    self.telling(),
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
        called: CalledTool,
        tool: &ToolName,
    ) -> Result<(Bytes, Telling), Refused> {
        let catalogue = &self.desk.catalogue;
        let facts = catalogue.facts(&self.desk.dispatchers, &self.client.tenant, tool);
        let facts = facts.await?;
        let arguments = match facts.as_ref().filter(|facts| facts.writes) {
            Some(facts) => key_argument::take(&called.arguments, &facts.key_argument)?.1,
            None => called.arguments,
        };
        let telling = Telling {
            is_content: facts.is_some_and(|facts| facts.is_content),
            ..self.telling()
        };
        Ok((arguments, telling))
    }

    /// The call as it is submitted, by which key, and how its answer is told.
    async fn submission(
        &self,
        request: &RpcRequest,
        called: CalledTool,
        tool: ToolName,
    ) -> Result<(Submitted, CallKey, Telling), Refused> {
        let catalogue = &self.desk.catalogue;
        let facts = catalogue
            .facts(&self.desk.dispatchers, &self.client.tenant, &tool)
            .await?;
        let (argument, body) = match facts.as_ref().filter(|facts| facts.writes) {
            Some(facts) => key_argument::take(&called.arguments, &facts.key_argument)?,
            None => (None, called.arguments),
        };
        if let Some(key) = called.key.as_ref().or(argument.as_ref()) {
            called::own_key(key)?;
        }
        let name = self.client.principal.name();
        let headers = called::headers(&self.client.headers, request, name)?;
        let referring = [&body[..]];
        may_stand(
            &self.desk.dispatchers,
            &self.client.principal,
            &self.client.tenant,
            referring,
        )
        .await?;
        // A tool that is not known may write.
        let derives = facts
            .as_ref()
            .is_none_or(|facts| facts.writes && !facts.has_own_keys);
        let key = match called.key.or(argument) {
            Some(key) => CallKey::Given(key),
            None if derives => {
                let (principal, tool) = (name.unwrap_or_default().to_owned(), tool.clone());
                let (body, bytes) = (body.clone(), body.len());
                let files = called::files(&self.client.headers);
                let deriving = move || DerivedKey::of(&principal, &tool, &body, &files);
                CallKey::Derived(aside(bytes, deriving).await?)
            }
            None => CallKey::None,
        };
        let call = Submitted {
            tenant: self.client.tenant.clone(),
            tool,
            headers,
            body,
            preference: Preference::waiting(get::WAIT_MAX_S),
            principal: name.map(ToOwned::to_owned),
            known: None,
        };
        let telling = Telling {
            is_content: facts.is_some_and(|facts| facts.is_content),
            ..self.telling()
        };
        Ok((call, key, telling))
    }

    /// Answers the gateway's own tool.
    async fn get(&self, request: &RpcRequest, called: &CalledTool) -> Result<RpcReply, NoResult> {
        self.may(&LOOKERS_AT_CALLS)?;
        let answered = match get::WantedCall::read(&called.arguments) {
            Ok(wanted) => {
                wanted
                    .answer(&self.desk, &self.client.principal, &self.client.tenant)
                    .await
            }
            Err(refused) => Err(refused),
        };
        let mut telling = self.telling();
        if let Ok(answer) = &answered {
            let tool: Option<ToolName> = Glimpse::of(answer.bytes()).tool.parse().ok();
            if let Some(tool) = tool {
                let facts =
                    self.desk
                        .catalogue
                        .facts(&self.desk.dispatchers, &self.client.tenant, &tool);
                let facts = facts.await.ok().flatten();
                telling.is_content = facts.is_some_and(|facts| facts.is_content);
            }
        }
        let answered = answered.map_err(|refused| refused.of_tool(get::NAME));
        Ok(told(&request.id, &answered, telling))
    }

    fn may(&self, one_of: &[Scope]) -> Result<(), NoResult> {
        let may = self.client.principal.may(one_of);
        may.map_err(NoResult::Refused)
    }

    const fn telling(&self) -> Telling {
        Telling {
            revision: self.revision,
            language: self.client.language,
            is_content: false,
            found_by: None,
        }
    }
}

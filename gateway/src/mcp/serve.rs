//! One message from its body to its answer.

use std::sync::Arc;

use axum::{http::HeaderMap, response::Response};
use bytes::Bytes;
use fleet::{
    call::Language,
    ids::{Label, ToolName},
    tokens::Scope,
};
use fleet_client::Answer;
use serde_json::json;

use super::{
    attempts::{self, CallKey},
    called::{self, CalledTool},
    derived_key::DerivedKey,
    envelope::McpEnvelope,
    forms, get, handshake, key_argument,
    listing::{self, NoPage},
    message::{RpcMessage, RpcRequest},
    negotiate::{of_notification, revision_of},
    result::Telling,
    revision::Revision,
    rpc::{RpcError, completed, taken},
};
use crate::{
    answer::Glimpse, asked::Asked, auth::principal::Principal, body::aside, forward::Preference,
    headers::Speaker, referents::may_stand, refusal::Refused, state::Gateway, submit::Submitted,
};

/// Who may look at a call.
const LOOKERS_AT_CALLS: [Scope; 2] = [Scope::Call, Scope::Read];

/// A request that is being answered.
struct ServedRequest<'a> {
    gateway: Arc<Gateway>,
    asked: &'a Asked,
    principal: &'a Principal,
    tenant: Label,
    revision: Revision,
    language: Language,
}

/// Why a request has no result.
enum NoResult {
    /// It is answered with an error of the protocol.
    Rpc(RpcError),
    /// It is refused as at every endpoint.
    Http(Refused),
}

impl From<RpcError> for NoResult {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

/// Whether a message with these headers is taken; else the answer to it.
pub(crate) fn takes(headers: &HeaderMap, language: Language) -> Result<(), Box<Response>> {
    forms::check(headers).map_err(|error| Box::new(error.told(None, language)))
}

/// The answer to the message in this body, of who may look at tools at least. Dropping the future cancels the call that it made.
///
/// # Errors
///
/// The token is not for what the message asks for.
pub(crate) async fn serve(
    gateway: Arc<Gateway>,
    asked: &Asked,
    tenant: Label,
    body: Bytes,
    language: Language,
) -> Result<Response, Refused> {
    let read = aside(body.len(), move || RpcMessage::read(&body)).await?;
    let request = match read {
        Ok(RpcMessage::Request(request)) => request,
        Ok(RpcMessage::Notification) => {
            let version = of_notification(&asked.headers);
            return Ok(version.map_or_else(|error| error.told(None, language), |()| taken()));
        }
        Err(none) => return Ok(none.error.told(none.id.as_ref(), language)),
    };
    let revision = match revision_of(&asked.headers, &request) {
        Ok(revision) => revision,
        Err(error) => return Ok(error.told(Some(&request.id), language)),
    };
    let serving = ServedRequest {
        gateway,
        asked,
        principal: asked.by(&LOOKERS_AT_CALLS)?,
        tenant,
        revision,
        language,
    };
    match Box::pin(serving.answer(&request)).await {
        Ok(response) => Ok(response),
        Err(NoResult::Rpc(error)) => Ok(error.told(Some(&request.id), language)),
        Err(NoResult::Http(refused)) => Err(refused),
    }
}

impl ServedRequest<'_> {
    async fn answer(self, request: &RpcRequest) -> Result<Response, NoResult> {
        let own = |result| completed(&request.id, &result, Speaker::Gateway);
        match (self.revision, request.method.as_str()) {
            (Revision::Modern, "server/discover") => Ok(own(handshake::discovered(self.language))),
            (Revision::Legacy, "initialize") => {
                Ok(own(handshake::initialized(request, self.language)?))
            }
            (Revision::Legacy, "ping") => Ok(own(json!({}))),
            (_, "tools/list") => self.list(request).await,
            (_, "tools/call") => self.call(request).await,
            (revision, method) => Err(RpcError::unknown_method(revision, method).into()),
        }
    }

    async fn list(&self, request: &RpcRequest) -> Result<Response, NoResult> {
        let page = listing::page(
            &self.gateway,
            &self.tenant,
            self.principal,
            self.revision,
            request,
        );
        match page.await {
            Ok(page) => Ok(completed(&request.id, &page, Speaker::Door)),
            Err(NoPage::Wrong(error)) => Err(error.into()),
            Err(NoPage::Refused(refused)) => Err(RpcError::refused(&refused, self.language).into()),
        }
    }

    async fn call(self, request: &RpcRequest) -> Result<Response, NoResult> {
        let called = CalledTool::read(request)?;
        if called.name == get::NAME {
            return self.get(request, &called).await;
        }
        self.asked.by(&[Scope::Call]).map_err(NoResult::Http)?;
        let tool: Option<ToolName> = called.name.parse().ok();
        // A tool that the token is not for is one that there is not.
        let tool = tool.filter(|tool| self.principal.may_use(tool.as_str()));
        let Some(tool) = tool else {
            return Err(RpcError::unknown_tool(&called.name).into());
        };
        let body = called.arguments.clone();
        let submitted = self.submission(request, called, tool.clone()).await;
        let (answered, telling) = match submitted {
            Ok((call, key, mut telling)) => {
                telling.found_by = Some(key.found_by());
                let gateway = Arc::clone(&self.gateway);
                (attempts::answer(gateway, call, key, body).await, telling)
            }
            Err(refused) => (Err(refused), self.telling()),
        };
        let answered = answered.map_err(|refused| refused.of_tool(tool.as_str()));
        self.told(request, &answered, telling)
    }

    /// The call as it is submitted, by which key, and how its answer is told.
    async fn submission(
        &self,
        request: &RpcRequest,
        called: CalledTool,
        tool: ToolName,
    ) -> Result<(Submitted, CallKey, Telling), Refused> {
        let catalogue = &self.gateway.catalogue;
        let facts = catalogue
            .facts(&self.gateway.dispatchers, &self.tenant, &tool)
            .await?;
        let (argument, body) = match facts.as_ref().filter(|facts| facts.writes) {
            Some(facts) => key_argument::take(&called.arguments, &facts.key_argument)?,
            None => (None, called.arguments),
        };
        if let Some(key) = called.key.as_ref().or(argument.as_ref()) {
            called::own_key(key)?;
        }
        let name = self.principal.name();
        let headers = called::headers(&self.asked.headers, request, name)?;
        let referring = [&body[..]];
        may_stand(
            &self.gateway.dispatchers,
            self.principal,
            &self.tenant,
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
                let files = called::files(&self.asked.headers);
                let deriving = move || DerivedKey::of(&principal, &tool, &body, &files);
                CallKey::Derived(aside(bytes, deriving).await?)
            }
            None => CallKey::None,
        };
        let call = Submitted {
            tenant: self.tenant.clone(),
            tool,
            headers,
            body,
            preference: Preference::waiting(get::WAIT_MAX_S),
            principal: name.map(ToOwned::to_owned),
        };
        let telling = Telling {
            is_content: facts.is_some_and(|facts| facts.is_content),
            ..self.telling()
        };
        Ok((call, key, telling))
    }

    /// Answers the gateway's own tool.
    async fn get(&self, request: &RpcRequest, called: &CalledTool) -> Result<Response, NoResult> {
        self.asked.by(&LOOKERS_AT_CALLS).map_err(NoResult::Http)?;
        let answered = match get::WantedCall::read(&called.arguments) {
            Ok(wanted) => {
                wanted
                    .answer(&self.gateway, self.principal, &self.tenant)
                    .await
            }
            Err(refused) => Err(refused),
        };
        let mut telling = self.telling();
        if let Ok(answer) = &answered {
            let tool: Option<ToolName> = Glimpse::of(answer.bytes()).tool.parse().ok();
            if let Some(tool) = tool {
                let facts =
                    self.gateway
                        .catalogue
                        .facts(&self.gateway.dispatchers, &self.tenant, &tool);
                let facts = facts.await.ok().flatten();
                telling.is_content = facts.is_some_and(|facts| facts.is_content);
            }
        }
        let answered = answered.map_err(|refused| refused.of_tool(get::NAME));
        self.told(request, &answered, telling)
    }

    const fn telling(&self) -> Telling {
        Telling {
            revision: self.revision,
            language: self.language,
            is_content: false,
            found_by: None,
        }
    }

    /// What became of a call, as its result.
    fn told(
        &self,
        request: &RpcRequest,
        answered: &Result<Answer, Refused>,
        telling: Telling,
    ) -> Result<Response, NoResult> {
        let refusal;
        let (bytes, speaker): (&[u8], Speaker) = match answered {
            Ok(answer) if Glimpse::of(answer.bytes()).is_refused() => {
                (answer.bytes(), Speaker::Door)
            }
            Ok(answer) => (answer.bytes(), Speaker::Call),
            Err(refused) => {
                refusal = refused.envelope(self.language).to_bytes();
                (&refusal, Speaker::Gateway)
            }
        };
        let envelope = McpEnvelope::of(bytes);
        if envelope.is_of_unknown_tool() {
            return Err(RpcError::unknown_tool(&envelope.tool).into());
        }
        Ok(completed(&request.id, &telling.result(&envelope), speaker))
    }
}

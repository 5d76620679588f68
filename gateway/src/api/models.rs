//! `POST /v1/chat/completions`, `/v1/responses` and `/v1/messages`: requests of the vendors' own packages, each a call of the chat
//! tool that `model` names.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use fleet::{manifest::ChatProtocol, said, tokens::Scope, wire::code::Code};
use tokio::sync::oneshot;

use crate::{
    asked::Asked,
    body::{self, MODEL_MAX},
    edge::guard::language,
    follower::stream_for,
    forward::{self, OnDisconnect},
    models::{
        ask::{answered, patient},
        protocol::parameters,
        request::ModelRequest,
        streamed::{self, StreamWanted},
    },
    referents::may_stand,
    refusal::{Refused, Repeatable},
    state::Gateway,
    submit::Submitted,
};

/// A request in OpenAI's Chat Completions.
pub(super) async fn chat_completions(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    Box::pin(reply(gateway, ChatProtocol::OpenaiChat, asked, body)).await
}

/// A request in OpenAI's Responses.
pub(super) async fn responses(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    Box::pin(reply(gateway, ChatProtocol::OpenaiResponses, asked, body)).await
}

/// A request in Anthropic's Messages.
pub(super) async fn messages(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    Box::pin(reply(gateway, ChatProtocol::Anthropic, asked, body)).await
}

async fn reply(
    gateway: Arc<Gateway>,
    protocol: ChatProtocol,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Call])?;
    let tenant = asked.tenant(principal)?;
    asked.query(parameters(protocol))?;
    let on_disconnect = OnDisconnect::read(&asked.headers)?;
    let headers = forward::headers(&asked.headers, principal.name())?;
    forward::own_names(&asked.headers)?;
    let language = language(&asked.headers);
    let body = body::read(&gateway.bodies, &asked, body, MODEL_MAX).await?;
    let sent = body.clone();
    let request = body::aside(body.len(), move || ModelRequest::read(&sent)).await??;
    let tool = request.tool.ok_or_else(|| no_model(protocol))?;
    // Before the dispatchers are asked: a token learns nothing of tools that it is not for.
    if !principal.may_use(tool.as_str()) {
        return Err(no_model(protocol));
    }
    let known = gateway
        .desk
        .catalogue
        .facts(&gateway.dispatchers, &tenant, &tool);
    let spoken = known.await?.and_then(|facts| facts.protocol);
    if spoken != Some(protocol) {
        return Err(no_model(protocol));
    }
    may_stand(
        &gateway.dispatchers,
        principal,
        &tenant,
        [&request.arguments[..]],
    )
    .await?;
    let call = Submitted {
        body: request.arguments,
        principal: principal.name().map(ToOwned::to_owned),
        tenant,
        tool,
        headers,
        preference: patient(),
        known: None,
    };
    let task = Arc::clone(&gateway);
    if request.is_stream {
        let wanted = StreamWanted {
            protocol,
            wants_usage: request.wants_usage,
            on_disconnect,
            language,
            whom: stream_for(&gateway, &asked, principal)?,
        };
        let (caller, hears) = oneshot::channel();
        let streaming = Box::pin(streamed::answered(task, call, wanted, caller));
        gateway.tasks.spawn(async move {
            streaming.await;
            drop(body);
        });
        let begun = hears.await;
        return begun.map_err(|_ended| Refused::no_answer(Repeatable::Never));
    }
    let (caller, hears) = oneshot::channel();
    gateway.tasks.spawn(async move {
        answered(&task, call, on_disconnect, language, caller).await;
        // Until here its room is taken, also by the arguments, which are a copy.
        drop(body);
    });
    match hears.await {
        Ok(Ok(reply)) => Ok(reply.response(protocol)),
        Ok(Err(error)) => Ok(error.response(protocol)),
        Err(_ended) => Err(Refused::no_answer(Repeatable::Never)),
    }
}

/// There is no such model for who asks: no tool of this name, none that the token is for, or one that speaks something else.
fn no_model(protocol: ChatProtocol) -> Refused {
    let what = said!(
        "model names no chat tool of protocol {protocol} that this token may call",
        "model 没有指向这个 token 可以调用的、协议为 {protocol} 的 chat 工具"
    );
    Refused::new(Code::UnknownTool, what).at("/model")
}

//! One message from a body over HTTP to its answer.

use std::sync::Arc;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode},
    response::Response,
};
use bytes::Bytes;
use fleet::{
    call::Language,
    wire::{code::Code, message::Message},
};

use super::{
    answer_code::AnswerCode,
    answered::note_response,
    askable::Askable,
    client::McpClient,
    client_sessions::{ClientAnswer, ClientSession},
    forms,
    message::{CANCELLED, NoMessage, RpcMessage, RpcNotification, RpcRequest, RpcResponse},
    methods::{OTHER, ServedMethod},
    negotiate::{VERSION, of_notification, one, revision_of},
    revision::{MODERN, Revision},
    rpc::{RpcError, RpcId, taken},
    serve::{NoResult, ServedRequest},
    streamed_call, subscription, wishes,
};
use crate::{
    auth::principal::Principal,
    body::aside,
    edge::peers::Peer,
    headers::{ANSWER, Speaker},
    refusal::Refused,
    state::Gateway,
    submit::cancel,
    when_left::{OpenCall, WhenLeft},
};

/// The header that names the session of an older revision.
const SESSION: &str = "mcp-session-id";
/// Why its call is taken back, in the history.
const GIVEN_UP: &str = "its client cancelled the request";

/// Whether a message with these headers is taken; else the answer to it.
pub(crate) fn takes(headers: &HeaderMap, language: Language) -> Result<(), Box<Response>> {
    let checked = forms::check(headers);
    checked.map_err(|error| Box::new(error.told(None, language).over_http()))
}

/// The answer to a request that is refused before its message is read, with the status and the headers of its refusal.
pub(crate) fn refusal(refused: &Refused, language: Language) -> Response {
    refused_message(refused, None, language)
}

/// The same. `id`: of its message, where that was read.
fn refused_message(refused: &Refused, id: Option<&RpcId>, language: Language) -> Response {
    let error = RpcError::refused(refused, language).told(id, language);
    let mut response = refused.carrying(error.body);
    let code = AnswerCode::Failed(refused.code());
    response.extensions_mut().insert(code);
    response
}

/// The answer to the message in this body, of who may look at tools at least. Dropping the future cancels the call that it made in
/// the newest revision, and leaves it alone in older ones.
///
/// # Errors
///
/// The gateway stops.
pub(crate) async fn serve(
    gateway: &Arc<Gateway>,
    peer: Peer,
    client: &McpClient,
    body: Bytes,
) -> Result<Response, Refused> {
    let read = aside(body.len(), move || RpcMessage::read(&body)).await;
    let method = match &read {
        Ok(Ok(RpcMessage::Request(request))) => ServedMethod::counted_as(&request.method),
        Ok(_) | Err(_) => OTHER,
    };
    let answered = match read {
        Ok(Ok(RpcMessage::Request(request))) => {
            Ok(of_request(gateway, peer, client, &request).await)
        }
        Ok(Ok(RpcMessage::Notification(said))) => Ok(of_notice(gateway, client, &said)),
        Ok(Err(none)) => Ok(of_none(gateway, client, none)),
        Err(refused) => Err(refused),
    };
    note_response(method, client, &answered);
    answered
}

/// The answer to a notification.
fn of_notice(gateway: &Gateway, client: &McpClient, said: &RpcNotification) -> Response {
    let session = of_notification(&client.headers).and_then(|()| session(gateway, client));
    let answered = session.map(|session| {
        if let Some(session) = session {
            cancelled(gateway, client, &session, said);
        }
        taken()
    });
    answered.unwrap_or_else(|error| error.told(None, client.language).over_http())
}

/// The answer to what is no request and no notification: it may be what a client of a session was asked for.
fn of_none(gateway: &Gateway, client: &McpClient, none: NoMessage) -> Response {
    let language = client.language;
    let answered = match (none.response, session(gateway, client)) {
        (Some(_response), Err(error)) => Err(error),
        (Some(response), Ok(Some(session))) => {
            let RpcResponse { id, result } = *response;
            let answer = result.map_or(ClientAnswer::Error, ClientAnswer::Result);
            session.answered(id.as_deref().unwrap_or_default(), answer);
            Ok(taken())
        }
        (_, _) => return none.error.told(none.id.as_ref(), language).over_http(),
    };
    answered.unwrap_or_else(|error| error.told(None, language).over_http())
}

/// The session of an older revision that a message belongs to, where it names one. 2026-07-28 has none.
fn session(gateway: &Gateway, client: &McpClient) -> Result<Option<Arc<ClientSession>>, RpcError> {
    let named = one(&client.headers, SESSION)?;
    let version = one(&client.headers, VERSION)?;
    match named.filter(|_| version != Some(MODERN)) {
        None => Ok(None),
        Some(id) => {
            let found = gateway.client_sessions.find(id, &client.principal);
            found.map(Some).ok_or_else(RpcError::no_session)
        }
    }
}

/// Cancels the call of the request of this session that a notification names, if it is one that does so.
fn cancelled(
    gateway: &Gateway,
    client: &McpClient,
    session: &ClientSession,
    said: &RpcNotification,
) {
    let id = said.params.get("requestId");
    let is_meant = said.method == CANCELLED;
    let request = id
        .filter(|_| is_meant)
        .and_then(|id| session.requests.take(id));
    let Some(OpenCall { tenant, call }) = request.and_then(|request| request.pull()) else {
        return;
    };
    let (desk, principal) = (Arc::clone(&gateway.desk), client.principal.clone());
    gateway.desk.tasks.spawn(async move {
        cancel(&desk, &tenant, call, GIVEN_UP, principal.name()).await;
    });
}

/// Ends the session of an older revision that a request names.
///
/// # Errors
///
/// It names none, or there is no such session.
pub(crate) fn end_session(
    gateway: &Gateway,
    principal: &Principal,
    headers: &HeaderMap,
) -> Result<Response, Refused> {
    let named = headers.get(SESSION).and_then(|id| id.to_str().ok());
    let is_ended = named.is_some_and(|id| gateway.client_sessions.end(id.trim(), principal));
    if !is_ended {
        let what = Message::fixed(
            "there is no such session; Mcp-Session-Id names one of an older revision",
            "没有该会话；Mcp-Session-Id 指明旧版本的会话",
        );
        return Err(Refused::new(Code::NotFound, what));
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ANSWER, Speaker::Gateway.value());
    Ok(response)
}

async fn of_request(
    gateway: &Arc<Gateway>,
    peer: Peer,
    client: &McpClient,
    request: &RpcRequest,
) -> Response {
    let revision = revision_of(&client.headers, request);
    let read = revision.and_then(|revision| {
        // Who begins anew may still name the one that is lost.
        let is_new = request.method == "initialize";
        let session = match is_new {
            true => None,
            false => session(gateway, client)?,
        };
        Ok((revision, session))
    });
    let (revision, session) = match read {
        Ok(read) => read,
        Err(error) => return error.told(Some(&request.id), client.language).over_http(),
    };
    let serving = ServedRequest {
        desk: Arc::clone(&gateway.desk),
        client,
        revision,
        when_left: match revision {
            Revision::Modern => WhenLeft::Cancelled,
            // There a broken connection says nothing of what its client wants.
            Revision::Legacy => WhenLeft::GoesOn(None),
        },
    };
    let served = async {
        match ServedMethod::of(revision, &request.method) {
            Some(ServedMethod::Listen) => {
                subscription::listen(gateway, peer, &client.principal, request)
            }
            Some(ServedMethod::Initialize) => {
                let mut response = serving.answer(request).await?.over_http();
                let askable = Askable::of_handshake(request);
                if askable.is_any() {
                    let id = gateway.client_sessions.begin(&client.principal, askable);
                    let id = HeaderValue::try_from(id).expect("letters, digits and -");
                    response.headers_mut().insert(SESSION, id);
                }
                Ok(response)
            }
            Some(ServedMethod::SetLogLevel) => {
                let level = wishes::level(request)?;
                if let Some(session) = session {
                    session.set_log(level);
                }
                Ok(serving.answer(request).await?.over_http())
            }
            Some(ServedMethod::CallTool) => {
                streamed_call::answer(gateway, peer, session, serving, request).await
            }
            Some(_) | None => Ok(serving.answer(request).await?.over_http()),
        }
    };
    match Box::pin(served).await {
        Ok(response) => response,
        Err(NoResult::Rpc(error)) => error.told(Some(&request.id), client.language).over_http(),
        Err(NoResult::Refused(refused)) => {
            refused_message(&refused, Some(&request.id), client.language)
        }
    }
}

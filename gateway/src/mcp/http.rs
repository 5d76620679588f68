//! One message from a body over HTTP to its answer.

use std::sync::Arc;

use axum::{http::HeaderMap, response::Response};
use bytes::Bytes;
use fleet::call::Language;

use super::{
    client::McpClient,
    forms,
    message::RpcMessage,
    negotiate::{of_notification, revision_of},
    rpc::taken,
    serve::{NoResult, ServedRequest},
    streamed_call,
};
use crate::{body::aside, edge::peers::Peer, refusal::Refused, state::Gateway};

/// Whether a message with these headers is taken; else the answer to it.
pub(crate) fn takes(headers: &HeaderMap, language: Language) -> Result<(), Box<Response>> {
    let checked = forms::check(headers);
    checked.map_err(|error| Box::new(error.told(None, language).over_http()))
}

/// The answer to the message in this body, of who may look at tools at least. Dropping the future cancels the call that it made.
///
/// # Errors
///
/// The token is not for what the message asks for.
pub(crate) async fn serve(
    gateway: &Arc<Gateway>,
    peer: Peer,
    client: &McpClient,
    body: Bytes,
) -> Result<Response, Refused> {
    let language = client.language;
    let read = aside(body.len(), move || RpcMessage::read(&body)).await?;
    let request = match read {
        Ok(RpcMessage::Request(request)) => request,
        Ok(RpcMessage::Notification) => {
            let version = of_notification(&client.headers);
            return Ok(
                version.map_or_else(|error| error.told(None, language).over_http(), |()| taken())
            );
        }
        Err(none) => return Ok(none.error.told(none.id.as_ref(), language).over_http()),
    };
    let revision = match revision_of(&client.headers, &request) {
        Ok(revision) => revision,
        Err(error) => return Ok(error.told(Some(&request.id), language).over_http()),
    };
    let serving = ServedRequest {
        desk: Arc::clone(&gateway.desk),
        client,
        revision,
    };
    let served = async {
        match request.method.as_str() {
            "tools/call" => streamed_call::answer(gateway, peer, serving, &request).await,
            _ => Ok(serving.answer(&request).await?.over_http()),
        }
    };
    match Box::pin(served).await {
        Ok(response) => Ok(response),
        Err(NoResult::Rpc(error)) => Ok(error.told(Some(&request.id), language).over_http()),
        Err(NoResult::Refused(refused)) => Err(refused),
    }
}

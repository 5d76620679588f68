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
};
use crate::{body::aside, desk::CallDesk, refusal::Refused};

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
    desk: Arc<CallDesk>,
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
        desk,
        client,
        revision,
    };
    match Box::pin(serving.answer(&request)).await {
        Ok(reply) => Ok(reply.over_http()),
        Err(NoResult::Rpc(error)) => Ok(error.told(Some(&request.id), language).over_http()),
        Err(NoResult::Refused(refused)) => Err(refused),
    }
}

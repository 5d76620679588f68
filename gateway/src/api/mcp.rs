//! `POST /mcp`: one message of the Model Context Protocol, and `DELETE /mcp`: the end of a session of its older revisions.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use bytes::Bytes;

use super::LOOKERS_AT_TOOLS;
use crate::{
    asked::Asked,
    body::{self, MESSAGE_MAX},
    edge::guard::language,
    mcp::{self, McpClient},
    refusal::Refused,
    state::Gateway,
};

/// Answers a message.
pub(super) async fn message(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    let (peer, who) = (asked.peer(), asked.who().cloned());
    match read(&gateway, asked, body).await {
        Ok((client, body)) => mcp::serve(&gateway, peer, &client, body).await,
        Err(answered) => {
            mcp::note_unread(who.as_ref(), &answered);
            answered.map(|response| *response)
        }
    }
}

/// Who sends a message, and its bytes; else the answer to it.
async fn read(
    gateway: &Gateway,
    asked: Asked,
    body: Body,
) -> Result<(McpClient, Bytes), Result<Box<Response>, Refused>> {
    let principal = asked.by(&LOOKERS_AT_TOOLS).map_err(Err)?.clone();
    let tenant = asked.tenant(&principal).map_err(Err)?;
    asked.query(&[]).map_err(Err)?;
    let language = language(&asked.headers);
    mcp::takes(&asked.headers, language).map_err(Ok)?;
    let body = body::read(&gateway.bodies, &asked, body, MESSAGE_MAX).await;
    let client = McpClient {
        principal,
        tenant,
        headers: asked.headers,
        language,
    };
    body.map(|body| (client, body)).map_err(Err)
}

/// Ends a session.
pub(super) async fn end(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&LOOKERS_AT_TOOLS)?;
    asked.tenant(principal)?;
    asked.query(&[])?;
    mcp::end_session(&gateway, principal, &asked.headers)
}

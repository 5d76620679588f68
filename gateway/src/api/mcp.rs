//! `POST /mcp`: one message of the Model Context Protocol, and `DELETE /mcp`: the end of a session of its older revisions.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};

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
    let principal = asked.by(&LOOKERS_AT_TOOLS)?.clone();
    let tenant = asked.tenant(&principal)?;
    asked.query(&[])?;
    let language = language(&asked.headers);
    if let Err(response) = mcp::takes(&asked.headers, language) {
        return Ok(*response);
    }
    let body = body::read(&gateway.bodies, &asked, body, MESSAGE_MAX).await?;
    let peer = asked.peer();
    let client = McpClient {
        principal,
        tenant,
        headers: asked.headers,
        language,
    };
    mcp::serve(&gateway, peer, &client, body).await
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

//! `POST /v1/tools/{tool}/check`: what the door would say of these arguments. The body is the arguments and nothing around them; nothing
//! is stored.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};
use fleet::{ids::ToolName, wire::code::Code};
use fleet_client::Question;

use super::{LOOKERS_AT_TOOLS, named};
use crate::{
    answer,
    asked::Asked,
    body::{self, CALL_MAX},
    forward,
    referents::may_stand,
    refusal::{Refused, Repeatable},
    state::Gateway,
};

/// Has a dispatcher look at arguments.
pub(super) async fn check(
    State(gateway): State<Arc<Gateway>>,
    tool: Result<Path<String>, PathRejection>,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    let principal = asked.by(&LOOKERS_AT_TOOLS)?;
    let tool: ToolName = named(tool)
        .parse()
        .map_err(|bad| Refused::name(Code::InvalidToolName, &bad))?;
    principal.may_call(&tool)?;
    let tenant = asked.tenant(principal)?;
    asked.query_of_call(&[])?;
    let headers = forward::headers(&asked.headers, principal.name())?;
    let body = body::read(&gateway.bodies, &asked, body, CALL_MAX).await?;
    may_stand(&gateway.dispatchers, principal, &tenant, [&body[..]]).await?;
    let subject = gateway.dispatchers.subjects().check(&tenant, tool.as_str());
    let question = Question {
        headers,
        ..Question::new(subject, body)
    };
    let answered = gateway
        .dispatchers
        .ask(question, Repeatable::Always)
        .await?;
    Ok(answer::of_door(&answered))
}

//! `POST /v1/calls/{call}/output`: hands in what came of a call that its caller's program runs, or what its tool has asked for. The body
//! is `{"token", "result"|"error"|"input"}`.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};
use fleet::tokens::Scope;
use fleet_client::Question;

use super::{named, shown::shown};
use crate::{
    asked::{Asked, call_id, meant},
    body::{self, OUTPUT_MAX},
    decision::Decision,
    refusal::{Refused, Repeatable},
    state::Gateway,
};

/// Hands in an answer.
pub(super) async fn output(
    State(gateway): State<Arc<Gateway>>,
    call: Result<Path<String>, PathRejection>,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Call])?;
    let call = call_id(&named(call))?;
    let tenant = asked.tenant(principal)?;
    asked.query(&[])?;
    let column = asked.preference()?.column;
    let body = body::read(&gateway.bodies, &asked, body, OUTPUT_MAX).await?;
    let call = meant(&gateway.dispatchers, principal, &tenant, call).await?;
    let decision = body::aside(body.len(), move || Decision::read(&body, call)).await??;
    let subject = gateway.dispatchers.subjects().output(&tenant);
    let question = Question::new(subject, decision.to_body());
    let answered = gateway
        .dispatchers
        .ask(question, Repeatable::Always)
        .await?;
    Ok(shown(&answered, principal, column))
}

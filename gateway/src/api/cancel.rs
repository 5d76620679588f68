//! `POST /v1/calls/{call}/cancel`: takes a call back. The body is empty, or `{"reason"}`.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};
use fleet::tokens::Scope;
use fleet_client::Question;

use super::named;
use crate::{
    answer,
    asked::{Asked, call_id, meant},
    body::{self, FORM_MAX},
    decision::Decision,
    refusal::{Refused, Repeatable},
    state::Gateway,
};

/// Cancels a call, as far as its state allows.
pub(super) async fn cancel(
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
    let body = body::read(&gateway.bodies, &asked, body, FORM_MAX).await?;
    let call = meant(&gateway.dispatchers, principal, &tenant, call).await?;
    let mut decision = Decision::read(&body, call)?;
    decision.by(principal)?;
    let subject = gateway.dispatchers.subjects().cancel(&tenant);
    let question = Question::new(subject, decision.to_body());
    let answered = gateway
        .dispatchers
        .ask(question, Repeatable::Always)
        .await?;
    Ok(answer::of_call(&answered, column))
}

//! `POST /v1/calls/{call}/settle`: records what a call in doubt turned out to be. The body is
//! `{"outcome": "applied"|"not_applied"|"abandoned", "note", "result"?, "by_time_only"?}`.

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
    body::{self, OUTPUT_MAX},
    decision::Decision,
    refusal::{Refused, Repeatable},
    state::Gateway,
};

/// Settles a call in doubt, in the name of who asks.
pub(super) async fn settle(
    State(gateway): State<Arc<Gateway>>,
    call: Result<Path<String>, PathRejection>,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Settle])?;
    let call = call_id(&named(call))?;
    let tenant = asked.tenant(principal)?;
    asked.query(&[])?;
    let column = asked.preference()?.column;
    let body = body::read(&gateway.bodies, &asked, body, OUTPUT_MAX).await?;
    let call = meant(&gateway.dispatchers, principal, &tenant, call).await?;
    let mut decision = body::aside(body.len(), move || Decision::read(&body, call)).await??;
    decision.by(principal)?;
    let subject = gateway.dispatchers.subjects().settle(&tenant);
    let question = Question::new(subject, decision.to_body());
    let answered = gateway
        .dispatchers
        .ask(question, Repeatable::Always)
        .await?;
    Ok(answer::of_call(&answered, column))
}

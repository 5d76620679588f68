//! `POST /v1/calls/{call}/approve` and `/deny`: says yes or no to a call that waits for it. The body is `{"args_hash", "note"}`, with the
//! call's `token` where its caller's program decides.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};
use fleet::{
    store::approvals::Ruling,
    tokens::Scope,
    wire::{code::Code, message::Message},
};
use fleet_client::Question;

use super::{named, shown::shown};
use crate::{
    asked::{Asked, call_id, meant},
    body::{self, FORM_MAX},
    decision::Decision,
    refusal::{Refused, Repeatable},
    state::Gateway,
};

type Called = Result<Path<String>, PathRejection>;

/// Says yes.
pub(super) async fn approve(
    State(gateway): State<Arc<Gateway>>,
    call: Called,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    decide(&gateway, call, asked, body, Ruling::Approve).await
}

/// Says no.
pub(super) async fn deny(
    State(gateway): State<Arc<Gateway>>,
    call: Called,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    decide(&gateway, call, asked, body, Ruling::Deny).await
}

async fn decide(
    gateway: &Gateway,
    call: Called,
    asked: Asked,
    body: Body,
    ruling: Ruling,
) -> Result<Response, Refused> {
    // With the token of the call it is its caller who decides, and that is known only with the body.
    let principal = asked.by(&[Scope::Call, Scope::Approve])?;
    let call = call_id(&named(call))?;
    let tenant = asked.tenant(principal)?;
    asked.query(&[])?;
    let column = asked.preference()?.column;
    let body = body::read(&gateway.bodies, &asked, body, FORM_MAX).await?;
    let call = meant(&gateway.dispatchers, principal, &tenant, call).await?;
    let mut decision = Decision::read(&body, call)?;
    let is_callers = decision.has("token");
    asked.by(if is_callers {
        &[Scope::Call]
    } else {
        &[Scope::Approve]
    })?;
    if decision.has("decision") {
        let what = Message::fixed(
            "the path says what is decided: leave decision out",
            "路径已说明决定的内容：请去掉 decision",
        );
        return Err(Refused::new(Code::InvalidArguments, what));
    }
    decision.set("decision", &ruling);
    decision.by(principal)?;
    let subjects = gateway.dispatchers.subjects();
    let subject = if is_callers {
        subjects.approve(&tenant)
    } else {
        subjects.admin_approve(&tenant)
    };
    let question = Question::new(subject, decision.to_body());
    let answered = gateway
        .dispatchers
        .ask(question, Repeatable::Always)
        .await?;
    Ok(shown(&answered, principal, column))
}

//! `POST /v1/completions/{token}`: a tool that answers later hands in its answer. The token is the right and names its call, so nobody is
//! asked who it is; the body is `{"result"}` or `{"error", "not_done"?}`.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};
use fleet::{
    ids::{CallId, Label},
    wire::{code::Code, message::Message},
};
use fleet_client::Question;

use super::named;
use crate::{
    answer,
    asked::Asked,
    body::{self, OUTPUT_MAX},
    decision::Decision,
    refusal::{Refused, Repeatable},
    state::Gateway,
    views::looked,
};

/// The most characters of a token that is looked at: a call's id, a dot, and the proof.
const TOKEN_MAX: usize = 128;

/// Hands in what came of a call.
pub(super) async fn complete(
    State(gateway): State<Arc<Gateway>>,
    token: Result<Path<String>, PathRejection>,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    asked.query(&[])?;
    let column = asked.preference()?.column;
    let body = body::read(&gateway.bodies, &asked, body, OUTPUT_MAX).await?;
    let token = written(&named(token));
    let (call, tenant) = place(&gateway, &token).await?;
    let mut handed_in = body::aside(body.len(), move || Decision::read(&body, call)).await??;
    if handed_in.has("token") {
        let what = Message::fixed(
            "the path has the token: leave token out",
            "路径中已有 token：请去掉 token 字段",
        );
        return Err(Refused::new(Code::InvalidArguments, what));
    }
    handed_in.set("token", &token);
    let subject = gateway.dispatchers.subjects().output(&tenant);
    let question = Question::new(subject, handed_in.to_body());
    let answered = gateway
        .dispatchers
        .ask(question, Repeatable::Always)
        .await?;
    Ok(answer::of_call(&answered, column))
}

/// A token as it may stand in a question. What has other characters is none, and is asked about as one of no call.
fn written(token: &str) -> String {
    let fits = token.len() <= TOKEN_MAX && token.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { token } else { "-" }.to_owned()
}

/// The call that a token names, and its tenant. What names none is asked about all the same, as one that does not exist: so the answer is
/// the same for whatever is not a token of a call.
async fn place(gateway: &Gateway, token: &str) -> Result<(CallId, Label), Refused> {
    let named = token
        .split_once('.')
        .and_then(|(call, _)| call.parse().ok());
    let call = named.unwrap_or_else(CallId::generate);
    let tenant = looked(fleet_history::calls::tenant_of(&gateway.views, call)).await?;
    let tenant = tenant.and_then(|tenant| tenant.parse().ok());
    let nobody = || "default".parse().expect("a tenant's name");
    Ok((call, tenant.unwrap_or_else(nobody)))
}

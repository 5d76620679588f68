//! `POST /v1/call/{tool}`: makes a call. The body is the arguments and nothing around them.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};
use fleet::{ids::ToolName, tokens::Scope, wire::code::Code};
use tokio::sync::oneshot;

use super::{named, shown::shown};
use crate::{
    asked::Asked,
    body::{self, CALL_MAX},
    forward::{self, OnDisconnect},
    referents::may_stand,
    refusal::{Refused, Repeatable},
    state::Gateway,
    submit::{Submitted, submit, submit_for},
};

/// Makes a call, and answers as its caller prefers.
pub(super) async fn call(
    State(gateway): State<Arc<Gateway>>,
    tool: Result<Path<String>, PathRejection>,
    asked: Asked,
    body: Body,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Call])?;
    let tool: ToolName = named(tool)
        .parse()
        .map_err(|bad| Refused::name(Code::InvalidToolName, &bad))?;
    principal.may_call(&tool)?;
    let tenant = asked.tenant(principal)?;
    asked.query_of_call(&[])?;
    let preference = asked.preference()?;
    let on_disconnect = OnDisconnect::read(&asked.headers)?;
    let headers = forward::headers(&asked.headers, principal.name())?;
    forward::own_names(&asked.headers)?;
    let column = preference.column;
    let body = body::read(&gateway.bodies, &asked, body, CALL_MAX).await?;
    may_stand(&gateway.dispatchers, principal, &tenant, [&body[..]]).await?;
    let call = Submitted {
        body,
        principal: principal.name().map(ToOwned::to_owned),
        tenant,
        tool,
        headers,
        preference,
        known: None,
    };
    let answered = match on_disconnect {
        OnDisconnect::Keep => submit(&gateway.desk, &call).await,
        OnDisconnect::Cancel => cancelled_with_its_caller(gateway, call).await,
    };
    Ok(shown(&answered?, principal, column))
}

/// Has the call cancelled when this future is dropped: its caller is gone then.
async fn cancelled_with_its_caller(
    gateway: Arc<Gateway>,
    call: Submitted,
) -> Result<fleet_client::Answer, Refused> {
    let (told, hears) = oneshot::channel();
    let task = Arc::clone(&gateway);
    gateway
        .tasks
        .spawn(async move { submit_for(&task.desk, &call, told).await });
    let answered = hears.await;
    answered.unwrap_or_else(|_ended| Err(Refused::no_answer(Repeatable::Never)))
}

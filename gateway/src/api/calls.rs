//! `GET /v1/calls/{call}` and `GET /v1/calls?tool=&idempotency_key=`: how a call stands, now or when it is decided.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};
use fleet::{
    ids::{IdempotencyKey, ToolName},
    tokens::Scope,
    wire::{code::Code, message::Message},
};
use fleet_client::{Answer, Question};
use serde_json::json;
use tokio::time::Instant;

use super::{named, shown::shown};
use crate::{
    answer::Glimpse,
    asked::{Asked, call_id, meant},
    query::Query,
    refusal::{Refused, Repeatable},
    state::Gateway,
    wait::{WaitUntil, wait},
};

/// Who may look at calls.
const LOOKERS: [Scope; 2] = [Scope::Call, Scope::Read];
/// The longest wait, as over NATS.
const WAIT_MAX_MS: u64 = 300_000;

/// By its id.
pub(super) async fn by_id(
    State(gateway): State<Arc<Gateway>>,
    call: Result<Path<String>, PathRejection>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&LOOKERS)?;
    let call = call_id(&named(call))?;
    let tenant = asked.tenant(principal)?;
    let until = Instant::now() + wait_of(&asked.query(&["wait_ms"])?)?;
    let column = asked.preference()?.column;
    let call = meant(&gateway.dispatchers, principal, &tenant, call).await?;
    let looked = wait(&gateway.desk, &tenant, call, until, WaitUntil::Decided).await?;
    Ok(shown(&looked, principal, column))
}

/// By its key.
pub(super) async fn by_key(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&LOOKERS)?;
    let tenant = asked.tenant(principal)?;
    let query = asked.query(&["tool", "idempotency_key", "wait_ms"])?;
    let until = Instant::now() + wait_of(&query)?;
    let (Some(tool), Some(key)) = (query.text("tool"), query.text("idempotency_key")) else {
        let what = Message::fixed(
            "give tool and idempotency_key, or the call's id in the path",
            "请给出 tool 和 idempotency_key，或在路径中给出 call_id",
        );
        return Err(Refused::new(Code::InvalidArguments, what));
    };
    let tool: ToolName = tool
        .parse()
        .map_err(|bad| Refused::name(Code::InvalidToolName, &bad))?;
    let key: IdempotencyKey = key
        .parse()
        .map_err(|bad| Refused::name(Code::InvalidIdempotencyKey, &bad))?;
    principal.may_call(&tool)?;
    let column = asked.preference()?.column;
    let body = json!({ "tool": tool, "idempotency_key": key }).to_string();
    let question = Question::new(gateway.dispatchers.subjects().get(&tenant), body);
    let found: Answer = gateway
        .dispatchers
        .ask(question, Repeatable::Always)
        .await?;
    let glimpse = Glimpse::of(found.bytes());
    let found = match glimpse.call_id.filter(|_| glimpse.is_open()) {
        Some(call) if until > Instant::now() => {
            wait(&gateway.desk, &tenant, call, until, WaitUntil::Decided).await?
        }
        Some(_) | None => found,
    };
    Ok(shown(&found, principal, column))
}

fn wait_of(query: &Query) -> Result<Duration, Refused> {
    let rule = || Message::fixed("a whole number, at most 300000", "是不超过 300000 的整数");
    let wait_ms: u64 = query.value("wait_ms", rule())?.unwrap_or(0);
    if wait_ms > WAIT_MAX_MS {
        let what = Message::fixed("wait_ms must be at most 300000", "wait_ms 最多是 300000");
        return Err(Refused::new(Code::InvalidArguments, what));
    }
    Ok(Duration::from_millis(wait_ms))
}

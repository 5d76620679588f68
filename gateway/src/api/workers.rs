//! `GET /v1/workers`: the workers of the fleet, which all tenants share.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use fleet::wire::{code::Code, message::Message};
use fleet_history::{Row, workers as rows};

use super::LOOKERS_AT_CONTROLS;
use crate::{
    answer, asked::Asked, headers::Speaker, refusal::Refused, state::Gateway, views::looked,
};

/// Those that have not ended or may have left processes behind, or with `all` every one that is on record; the newest first.
pub(super) async fn workers(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&LOOKERS_AT_CONTROLS)?;
    let query = asked.query(&["all"])?;
    if asked.reach(principal)?.is_some() {
        let what = Message::fixed(
            "workers are of all tenants: this needs a token that is for every tenant, and no Toolfleet-Tenant",
            "worker 属于所有租户：需要一个适用于所有租户的 token，且不带 Toolfleet-Tenant",
        );
        return Err(Refused::new(Code::Forbidden, what));
    }
    let booleans = Message::fixed("true or false", "是 true 或 false");
    let all = query.value("all", booleans)?.unwrap_or(false);
    let found = looked(rows::workers(&gateway.views, all)).await?;
    let listed = format!("{{\"workers\":{}}}", Row::json_of_all(&found));
    Ok(answer::plain(listed, Speaker::Gateway, StatusCode::OK))
}

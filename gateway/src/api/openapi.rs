//! `GET /v1/openapi.json`: what this API is, as a document of `OpenAPI` 3.1. With `?tools=1` it has an operation for each tool that the
//! caller may call.
//!
//! Without the tools nobody is asked who it is: the document is the same in every copy of this program and says nothing of a fleet, and
//! who has no token yet has to learn from it how one is sent.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use fleet::wire::{code::Code, message::Message};

use super::{LOOKERS_AT_TOOLS, tools::visible};
use crate::{
    answer,
    asked::Asked,
    headers::Speaker,
    openapi::{bundle, per_tool},
    refusal::Refused,
    state::Gateway,
};

/// The document.
pub(super) async fn document(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let query = asked.query(&["tools"])?;
    let has_tools = match query.text("tools") {
        None | Some("0" | "false") => false,
        Some("1" | "true") => true,
        Some(_other) => {
            let what = Message::fixed("tools must be 1 or 0", "tools 必须是 1 或 0");
            return Err(Refused::new(Code::InvalidArguments, what));
        }
    };
    if !has_tools {
        let document = bundle::text();
        return Ok(answer::plain(document, Speaker::Gateway, StatusCode::OK));
    }
    let principal = asked.by(&LOOKERS_AT_TOOLS)?;
    let tenant = asked.tenant(principal)?;
    match visible(&gateway, &tenant, principal).await? {
        Ok(tools) => {
            let document = per_tool::document(&tools);
            Ok(answer::plain(document, Speaker::Gateway, StatusCode::OK))
        }
        Err(refusal) => Ok(answer::of_door(&refusal)),
    }
}

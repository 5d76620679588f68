//! `GET /v1/tools` and `GET /v1/tools/{tool}`: the tools that can be called, in the form that a model's API takes.

use std::sync::Arc;

use axum::{
    extract::{Path, State, rejection::PathRejection},
    http::StatusCode,
    response::Response,
};
use fleet::{
    definitions::Format,
    ids::{Label, ToolName},
    said,
    wire::{code::Code, message::Message},
};
use fleet_client::Answer;
use serde_json::value::RawValue;

use super::{LOOKERS_AT_TOOLS, named};
use crate::{
    answer::{self, Glimpse},
    asked::Asked,
    auth::principal::Principal,
    form::Fields,
    headers::Speaker,
    listed::{self, name_of, tools},
    query::Query,
    refusal::Refused,
    state::Gateway,
};

/// All that the caller may call.
pub(super) async fn list(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&LOOKERS_AT_TOOLS)?;
    let tenant = asked.tenant(principal)?;
    let query = asked.query(&["format", "strict"])?;
    let listing = listing(&gateway, &tenant, &query).await?;
    if principal.has_all_tools() || Glimpse::of(listing.bytes()).is_refused() {
        return Ok(answer::of_door(&listing));
    }
    let shown = shown(listing.bytes(), principal)?;
    Ok(answer::plain(shown, Speaker::Door, StatusCode::OK))
}

/// One of them.
pub(super) async fn one(
    State(gateway): State<Arc<Gateway>>,
    tool: Result<Path<String>, PathRejection>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&LOOKERS_AT_TOOLS)?;
    let tool: ToolName = named(tool)
        .parse()
        .map_err(|bad| Refused::name(Code::InvalidToolName, &bad))?;
    principal.may_call(&tool)?;
    let tenant = asked.tenant(principal)?;
    let query = asked.query(&["format", "strict"])?;
    let listing = listing(&gateway, &tenant, &query).await?;
    if Glimpse::of(listing.bytes()).is_refused() {
        return Ok(answer::of_door(&listing));
    }
    let tools = tools(listing.bytes())?;
    let found = tools
        .into_iter()
        .find(|definition| name_of(definition).as_deref() == Some(tool.as_str()));
    let Some(definition) = found else {
        let what = match query.text("format") {
            None | Some("full") => said!("there is no tool named {tool}", "没有名为 {tool} 的工具"),
            Some(_models) => said!(
                "no tool named {tool} is listed for models; format=full has unlisted tools, too",
                "没有名为 {tool} 的工具列给模型；format=full 也包含未列出的工具"
            ),
        };
        return Err(Refused::new(Code::UnknownTool, what).of_tool(tool.as_str()));
    };
    let definition = definition.get().to_owned();
    Ok(answer::plain(definition, Speaker::Door, StatusCode::OK))
}

/// The tools that a caller may call, in the format `full`; a dispatcher's refusal where it gives none.
pub(super) async fn visible(
    gateway: &Gateway,
    tenant: &Label,
    principal: &Principal,
) -> Result<Result<Vec<Box<RawValue>>, Answer>, Refused> {
    let listing = listing(gateway, tenant, &Query::default()).await?;
    if Glimpse::of(listing.bytes()).is_refused() {
        return Ok(Err(listing));
    }
    let tools = tools(listing.bytes())?;
    let is_for = |tool: &RawValue| name_of(tool).is_some_and(|name| principal.may_use(&name));
    Ok(Ok(tools.into_iter().filter(|tool| is_for(tool)).collect()))
}

async fn listing(gateway: &Gateway, tenant: &Label, query: &Query) -> Result<Answer, Refused> {
    let formats = Message::fixed(
        "openai, anthropic, mcp or full",
        "是 openai、anthropic、mcp 或 full",
    );
    let format: Option<Format> = query.value("format", formats)?;
    let booleans = Message::fixed("true or false", "是 true 或 false");
    let strict: Option<bool> = query.value("strict", booleans)?;
    let (format, is_strict) = (format.unwrap_or(Format::Full), strict.unwrap_or(false));
    listed::listing(&gateway.dispatchers, tenant, format, is_strict).await
}

/// The listing with those tools alone that the token is for.
fn shown(listing: &[u8], principal: &Principal) -> Result<String, Refused> {
    let mut fields = Fields::read(listing)?;
    let is_for =
        |definition: &RawValue| name_of(definition).is_some_and(|name| principal.may_use(&name));
    for list in ["tools", "not_strict"] {
        fields.change(list, |all| {
            let all: Vec<Box<RawValue>> = serde_json::from_str(all.get()).ok()?;
            let shown: Vec<Box<RawValue>> = all.into_iter().filter(|one| is_for(one)).collect();
            serde_json::value::to_raw_value(&shown).ok()
        });
    }
    Ok(fields.to_text())
}

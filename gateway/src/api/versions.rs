//! `GET /v1/tools/{tool}/versions`: how a tool is run, version by version, and what is to be said of it. `GET /v1/servers`: the MCP
//! servers, and which tools are theirs. Both are the operators': they say what no caller needs.

use std::sync::Arc;

use axum::{
    extract::{Path, State, rejection::PathRejection},
    http::StatusCode,
    response::Response,
};
use fleet::{
    ids::ToolName,
    manifest::{ManifestProblem, lint, lint_text, parse},
    said,
    wire::{code::Code, message::Message},
};
use fleet_history::{
    Row, mcp_servers,
    tools::{self, ListedVersion},
};
use serde_json::json;

use super::{LOOKERS_AT_CONTROLS, named};
use crate::{
    answer, asked::Asked, auth::principal::Principal, body, headers::Speaker, page,
    refusal::Refused, state::Gateway, views::looked,
};

/// The most versions of a page: each has its manifest, which may be 256 KiB.
const VERSIONS_MAX: i64 = 50;
const VERSION: Message = Message::fixed("a version", "是版本号");

/// The versions, the newest first.
pub(super) async fn versions(
    State(gateway): State<Arc<Gateway>>,
    tool: Result<Path<String>, PathRejection>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = of_operators(&asked)?;
    let tool: ToolName = named(tool)
        .parse()
        .map_err(|bad| Refused::name(Code::InvalidToolName, &bad))?;
    principal.may_call(&tool)?;
    let query = asked.query(&["before", "limit"])?;
    let limit = page::limit(&query)?.min(VERSIONS_MAX);
    let before: Option<i32> = query.value("before", VERSION)?;
    let found = looked(tools::versions(&gateway.views, &tool, before, limit)).await?;
    let newest = found.first().and_then(|row| row.read().ok());
    if newest.is_none() && before.is_none() {
        let what = said!("there is no tool named {tool}", "没有名为 {tool} 的工具");
        return Err(Refused::new(Code::UnknownTool, what).of_tool(tool.as_str()));
    }
    let last = found.last().and_then(|row| row.read().ok());
    let last = last.filter(|_| page::is_full(&found, limit));
    let before = last.map(|row| row.version);
    let warnings = warnings(newest.filter(|row| row.current)).await?;
    let told = format!(
        "{{\"tool\":\"{tool}\",\"versions\":{},\"before\":{},\"warnings\":{warnings}}}",
        Row::json_of_all(&found),
        json!(before),
    );
    Ok(answer::plain(told, Speaker::Gateway, StatusCode::OK))
}

/// What the lint says of the newest version.
async fn warnings(newest: Option<ListedVersion>) -> Result<String, Refused> {
    let Some(newest) = newest else {
        return Ok("[]".to_owned());
    };
    let text = newest.manifest.get().to_owned();
    let found = body::aside(text.len(), move || match parse(&text) {
        Ok(manifest) => lint(&manifest),
        // One that an older release has taken.
        Err(_problems) => lint_text(&text),
    });
    let told = found.await?;
    let told = told
        .iter()
        .map(|ManifestProblem { path, message }| json!({ "path": path, "message": message }));
    Ok(json!(told.collect::<Vec<_>>()).to_string())
}

/// The servers.
pub(super) async fn servers(
    State(gateway): State<Arc<Gateway>>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = of_operators(&asked)?;
    asked.query(&[])?;
    if !principal.has_all_tools() {
        let what = Message::fixed(
            "servers are shown to tokens that are for every tool",
            "只有适用于所有工具的 token 可以查看服务器",
        );
        return Err(Refused::new(Code::Forbidden, what));
    }
    let found = looked(mcp_servers::offering(&gateway.views)).await?;
    let told = format!("{{\"servers\":{}}}", Row::json_of_all(&found));
    Ok(answer::plain(told, Speaker::Gateway, StatusCode::OK))
}

/// Who asks: somebody who sees how things are run, whichever tenant is looked at.
fn of_operators(asked: &Asked) -> Result<&Principal, Refused> {
    let principal = asked.by(&LOOKERS_AT_CONTROLS)?;
    if principal.is_of_all_tenants() {
        return Ok(principal);
    }
    let what = Message::fixed(
        "how tools are run is for operators: this needs a token that is for every tenant",
        "工具的运行方式仅供运维人员查看：需要一个适用于所有租户的 token",
    );
    Err(Refused::new(Code::Forbidden, what))
}

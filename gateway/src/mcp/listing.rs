//! `tools/list`: the tools that who asks may call, by name, so many at a time.

use fleet::{
    definitions::Format,
    ids::{Label, ToolName},
    wire::message::Message,
};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use super::{
    definition::McpTool,
    get,
    message::RpcRequest,
    revision::Revision,
    rpc::{RpcError, SERVER_INFO, result_type, server_info},
};
use crate::{
    auth::principal::Principal,
    body::aside,
    desk::CallDesk,
    listed::{listed, name_of, tools},
    refusal::Refused,
};

/// The most tools of a page.
const PAGE: usize = 200;
/// How long a list holds, in milliseconds: a tool that is applied is called by its name before.
const HOLDS_MS: u64 = 5_000;

/// The result of `tools/list`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolPage {
    #[serde(skip_serializing_if = "Option::is_none")]
    result_type: Option<&'static str>,
    tools: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    cache: Option<CacheHints>,
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    meta: Option<Value>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CacheHints {
    ttl_ms: u64,
    cache_scope: &'static str,
}

/// Why there is no page.
#[derive(Debug)]
pub(super) enum NoPage {
    /// The request is not right.
    Wrong(RpcError),
    /// The dispatchers do not say which tools there are.
    Refused(Refused),
}

impl From<RpcError> for NoPage {
    fn from(error: RpcError) -> Self {
        Self::Wrong(error)
    }
}

impl From<Refused> for NoPage {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// The page that a request asks for.
///
/// # Errors
///
/// The cursor is none of ours, or the dispatchers do not answer.
pub(super) async fn page(
    desk: &CallDesk,
    tenant: &Label,
    principal: &Principal,
    revision: Revision,
    request: &RpcRequest,
) -> Result<ToolPage, NoPage> {
    let after = cursor(request)?;
    let bytes = listed(&desk.dispatchers, tenant, Format::Mcp).await?;
    let bytes_len = bytes.len();
    let principal = principal.clone();
    let page =
        move || named(&bytes, &principal).map(|named| paged(named, after.as_ref(), revision));
    Ok(aside(bytes_len, page).await??)
}

/// Behind which name the page begins.
fn cursor(request: &RpcRequest) -> Result<Option<ToolName>, RpcError> {
    let Some(cursor) = request.params.get("cursor") else {
        return Ok(None);
    };
    if &cursor[..] == b"null" {
        return Ok(None);
    }
    let name = request
        .params
        .text("cursor")
        .and_then(|text| text.parse().ok());
    name.map(Some).ok_or_else(|| {
        RpcError::invalid_params(Message::fixed(
            "this cursor is none that a list of tools has named",
            "这个 cursor 不是工具列表给出的",
        ))
    })
}

/// The definitions of a listing that who asks can call, by name; they are as they came, for only those of a page are read.
fn named(listing: &[u8], principal: &Principal) -> Result<Vec<(String, Box<RawValue>)>, Refused> {
    let own = tools(listing)?.into_iter().filter_map(|definition| {
        let name = name_of(&definition)?;
        (principal.makes_calls_of(&name) && name != get::NAME).then_some((name, definition))
    });
    let get = McpTool::get();
    let mut named: Vec<_> = own.chain([(get.name, get.definition)]).collect();
    named.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(named)
}

fn paged(
    named: Vec<(String, Box<RawValue>)>,
    after: Option<&ToolName>,
    revision: Revision,
) -> ToolPage {
    let first = after.map_or(0, |after| {
        named.partition_point(|(name, _)| name.as_str() <= after.as_str())
    });
    let mut rest = named.into_iter().skip(first);
    let mut tools = Vec::new();
    let mut last = None;
    while tools.len() < PAGE
        && let Some((name, definition)) = rest.next()
    {
        tools.extend(McpTool::of(&definition).map(|tool| tool.definition));
        last = Some(name);
    }
    let is_modern = revision == Revision::Modern;
    ToolPage {
        result_type: result_type(revision),
        next_cursor: last.filter(|_| rest.next().is_some()),
        tools,
        cache: is_modern.then_some(CacheHints {
            ttl_ms: HOLDS_MS,
            cache_scope: "private",
        }),
        meta: is_modern.then(|| json!({ SERVER_INFO: server_info() })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(names: impl Iterator<Item = String>) -> String {
        let tools: Vec<Value> = names
            .map(|name| json!({"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}}))
            .collect();
        json!({ "tools": tools }).to_string()
    }

    fn names(page: &ToolPage) -> Vec<String> {
        let name = |tool: &RawValue| {
            let tool: Value = serde_json::from_str(tool.get()).unwrap();
            tool["name"].as_str().unwrap().to_owned()
        };
        page.tools.iter().map(|tool| name(tool)).collect()
    }

    #[test]
    fn pages_have_every_tool_once_whatever_changes_between_them() {
        let all = listing((0..450).map(|number| format!("t{number:03}")));
        let of = |after: Option<&str>| {
            let after = after.map(|after| after.parse().unwrap());
            let named = named(all.as_bytes(), &Principal::Anyone).unwrap();
            paged(named, after.as_ref(), Revision::Modern)
        };
        let mut seen = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = of(cursor.as_deref());
            assert!(page.tools.len() <= PAGE);
            seen.extend(names(&page));
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        assert_eq!(seen.len(), 451);
        assert!(seen.is_sorted() && seen.contains(&get::NAME.to_owned()));
        // A tool that is gone meanwhile, and a cursor behind the last.
        assert_eq!(names(&of(Some("t449_gone"))), [get::NAME]);
        assert!(names(&of(Some("zzz"))).is_empty());
    }

    #[test]
    fn a_list_of_the_older_revision_has_no_marks_of_the_newer() {
        let named = || {
            named(
                listing(["a".to_owned()].into_iter()).as_bytes(),
                &Principal::Anyone,
            )
            .unwrap()
        };
        let old = serde_json::to_value(paged(named(), None, Revision::Legacy)).unwrap();
        assert_eq!(old.as_object().unwrap().len(), 1, "{old}");
        let new = serde_json::to_value(paged(named(), None, Revision::Modern)).unwrap();
        assert_eq!(
            (&new["ttlMs"], &new["cacheScope"]),
            (&json!(5_000), &json!("private"))
        );
        assert_eq!(new["resultType"], "complete");
    }
}

//! Pages of the views: how many rows, and of which tool.

use fleet::{
    ids::ToolName,
    wire::{code::Code, message::Message},
};

use crate::{auth::principal::Principal, query::Query, refusal::Refused};

/// Rows of a page that does not say how many, and the most.
const LIMIT: i64 = 100;
const LIMIT_MAX: i64 = 1_000;

const NAME: Message = Message::fixed("a tool's name", "是工具名");
const COUNT: Message = Message::fixed("a whole number", "是整数");

/// How many rows are wanted.
///
/// # Errors
///
/// So many are none, or too many.
pub(crate) fn limit(query: &Query) -> Result<i64, Refused> {
    let limit = query.value("limit", COUNT)?.unwrap_or(LIMIT);
    if (1..=LIMIT_MAX).contains(&limit) {
        return Ok(limit);
    }
    let what = Message::fixed("limit must be 1 to 1000", "limit 必须是 1 到 1000");
    Err(Refused::new(Code::InvalidArguments, what))
}

/// The tool that they are to be about; `None`: every tool, for who may use all of them.
///
/// # Errors
///
/// The token is not for that tool, or is for some tools only and none is named.
pub(crate) fn tool(query: &Query, principal: &Principal) -> Result<Option<ToolName>, Refused> {
    let tool: Option<ToolName> = query.value("tool", NAME)?;
    match &tool {
        Some(tool) => principal.may_call(tool)?,
        None if !principal.has_all_tools() => {
            let what = Message::fixed(
                "the token is for some tools only: name one of them as tool",
                "这个 token 只能用于部分工具：请用 tool 指明其中一个",
            );
            return Err(Refused::new(Code::Forbidden, what));
        }
        None => {}
    }
    Ok(tool)
}

/// Whether a page is full, so that another one may follow it.
pub(crate) fn is_full<T>(rows: &[T], limit: i64) -> bool {
    i64::try_from(rows.len()) == Ok(limit)
}

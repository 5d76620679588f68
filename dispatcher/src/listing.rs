//! `tools`: the tools that can be called, in the form that a model's API takes.

use fleet::{
    call::Language,
    definitions::{Format, definitions, instructions, shown_to, strict_definitions},
    said,
    wire::{code::Code, message::Message},
};
use serde::Deserialize;

use crate::{
    answer::{Answer, bytes_max},
    door::Door,
    form,
    refusal::Refusal,
    request::Request,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolsRequest {
    #[serde(default = "full")]
    format: Format,
    /// Only with `openai`.
    #[serde(default)]
    strict: bool,
}

const fn full() -> Format {
    Format::Full
}

/// The tools that take new calls, in the form that the caller asked for.
pub(crate) fn tools(door: &Door, request: &Request<'_>) -> Result<Answer, Refusal> {
    let tenant = request.tenant()?;
    let body = if request.body.is_empty() {
        b"{}"
    } else {
        request.body
    };
    let wanted = Message::fixed(
        "format: openai, anthropic, mcp or full, and perhaps strict",
        "format: openai、anthropic、mcp 或 full，也可有 strict",
    );
    let asked: ToolsRequest = form::short(body, &wanted)?;
    let tools = door.registry.all_offered();
    let manifests = shown_to(tools.iter().map(|tool| &tool.manifest), &tenant);
    let mut listing = match (asked.format, asked.strict) {
        (format, false) => serde_json::json!({"tools": definitions(manifests, format)}),
        (Format::Openai, true) => serde_json::json!(strict_definitions(manifests)),
        (Format::Anthropic | Format::Mcp | Format::Full, true) => {
            return Err(Refusal::new(
                Code::InvalidArguments,
                Message::fixed(
                    "`strict` is for the format openai alone; leave it out",
                    "`strict` 只用于 openai 格式；请去掉它",
                ),
            ));
        }
    };
    listing["instructions"] =
        serde_json::json!({"en": instructions(Language::En), "zh": instructions(Language::Zh)});
    let (bytes, bytes_max) = (listing.to_string(), bytes_max(&door.bus));
    if bytes.len() > bytes_max {
        let count = bytes.len();
        let what = said!(
            "the definitions have {count} bytes and {bytes_max} can be carried",
            "工具定义有 {count} 字节，最多能传送 {bytes_max} 字节"
        );
        return Err(Refusal::new(Code::PayloadTooLarge, what));
    }
    Ok(Answer::json(bytes))
}

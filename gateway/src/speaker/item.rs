//! How the items look, as JSON. The order of the fields is part of the bytes.

use std::borrow::Cow;

use fleet::{call::Language, wire::code::Code};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::{
    arguments::{ShownArguments, WebAction},
    header::TurnCall,
    result::{FoundText, ShownResult},
    shape::ItemStatus,
};

/// Where our tools run, for who asks by the words of MCP.
pub(super) const SERVER: &str = "toolfleet";

/// An item of a response's output.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ShownItem<'a> {
    McpCall {
        id: &'a str,
        approval_request_id: Option<&'a str>,
        arguments: &'a str,
        error: Option<McpFailure<'a>>,
        name: &'a str,
        output: Option<&'a str>,
        server_label: &'static str,
        status: ItemStatus,
    },
    McpApprovalRequest {
        id: &'a str,
        arguments: &'a str,
        name: &'a str,
        server_label: &'static str,
    },
    Message {
        id: &'a str,
        content: &'a [OutputText<'a>],
        role: &'static str,
        status: ItemStatus,
    },
    ImageGenerationCall {
        id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<ImageFailure<'a>>,
        result: Option<&'a str>,
        status: ItemStatus,
    },
    FileSearchCall {
        id: &'a str,
        queries: Vec<&'a str>,
        results: Option<Vec<FoundText<'a>>>,
        status: ItemStatus,
    },
    WebSearchCall {
        id: &'a str,
        action: ShownWebAction<'a>,
        status: ItemStatus,
    },
    CodeInterpreterCall {
        id: &'a str,
        code: Option<&'a str>,
        container_id: &'static str,
        outputs: Option<Vec<CodeOutput<'a>>>,
        status: ItemStatus,
    },
    ShellCall {
        id: &'a str,
        action: ShellAction,
        call_id: &'a str,
        environment: ShellPlace,
        status: ItemStatus,
    },
    ShellCallOutput {
        id: &'a str,
        call_id: &'a str,
        max_output_length: Option<()>,
        output: Vec<ShellOutput<'a>>,
        status: ItemStatus,
    },
    FunctionCall {
        id: &'a str,
        arguments: &'a str,
        call_id: &'a str,
        name: &'a str,
        status: ItemStatus,
    },
    CustomToolCall {
        id: &'a str,
        call_id: &'a str,
        input: &'a str,
        name: &'a str,
    },
}

/// A text of a message.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct OutputText<'a> {
    r#type: &'static str,
    annotations: [(); 0],
    logprobs: [(); 0],
    text: &'a str,
}

#[derive(Debug, Serialize)]
pub(super) struct McpFailure<'a> {
    r#type: &'static str,
    content: [McpText<'a>; 1],
}

#[derive(Debug, Serialize)]
pub(super) struct McpText<'a> {
    r#type: &'static str,
    text: &'a str,
    #[serde(rename = "_meta")]
    meta: McpMeta,
}

#[derive(Debug, Serialize)]
pub(super) struct McpMeta {
    #[serde(rename = "io.toolfleet/code")]
    code: Code,
}

#[derive(Debug, Serialize)]
pub(super) struct ImageFailure<'a> {
    code: &'static str,
    message: &'a str,
    param: Option<()>,
    r#type: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum CodeOutput<'a> {
    Logs { logs: Cow<'a, str> },
    Image { url: &'a str },
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ShownWebAction<'a> {
    Search {
        #[serde(skip_serializing_if = "Option::is_none")]
        query: Option<&'a str>,
        queries: Vec<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        sources: Option<Vec<WebSource<'a>>>,
    },
    OpenPage {
        url: &'a str,
    },
    FindInPage {
        pattern: &'a str,
        url: &'a str,
    },
}

#[derive(Debug, Serialize)]
pub(super) struct WebSource<'a> {
    r#type: &'static str,
    url: &'a str,
}

#[derive(Debug, Serialize)]
pub(super) struct ShellAction {
    commands: Vec<String>,
    max_output_length: Option<()>,
    timeout_ms: Option<()>,
}

/// What a shell has put out.
#[derive(Debug, Serialize)]
pub(super) struct ShellOutput<'a> {
    outcome: ShellExit,
    stderr: &'a str,
    stdout: Cow<'a, str>,
}

/// How a shell's command ended.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "exit")]
struct ShellExit {
    exit_code: i64,
}

/// Where a shell runs: the client's own, which it has to run, or ours.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ShellPlace {
    Local,
    ContainerReference { container_id: &'static str },
}

impl<'a> OutputText<'a> {
    /// This text.
    pub(super) const fn of(text: &'a str) -> Self {
        Self {
            r#type: "output_text",
            annotations: [],
            logprobs: [],
            text,
        }
    }
}

impl<'a> McpFailure<'a> {
    pub(super) const fn of(code: Code, text: &'a str) -> Self {
        Self {
            r#type: "mcp_tool_execution_error",
            content: [McpText {
                r#type: "text",
                text,
                meta: McpMeta { code },
            }],
        }
    }
}

impl<'a> ImageFailure<'a> {
    pub(super) const fn of(code: Code, message: &'a str) -> Self {
        Self {
            code: code.as_str(),
            message,
            param: None,
            r#type: "tool_error",
        }
    }

    pub(super) const fn cut_short(language: Language) -> Self {
        Self {
            code: "incomplete",
            message: match language {
                Language::En => {
                    "This item was closed before its end; the call may go on as another item."
                }
                Language::Zh => "这一项在结束之前被关闭；这次调用可能会以另一项继续。",
            },
            param: None,
            r#type: "incomplete",
        }
    }
}

impl<'a> CodeOutput<'a> {
    pub(super) fn all(result: &'a ShownResult<'a>) -> Vec<Self> {
        let images = result.image_urls().into_iter();
        let logs = [Self::Logs {
            logs: result.logs(),
        }];
        logs.into_iter()
            .chain(images.map(|url| Self::Image { url }))
            .collect()
    }
}

impl<'a> ShownWebAction<'a> {
    pub(super) fn of(action: WebAction<'a>, result: Option<&'a ShownResult<'a>>) -> Self {
        match action {
            WebAction::Search { queries } => Self::Search {
                query: queries.first().copied(),
                queries,
                sources: result.map(|result| {
                    let sources = result.sources().into_iter();
                    sources
                        .map(|url| WebSource { r#type: "url", url })
                        .collect()
                }),
            },
            WebAction::OpenPage { url } => Self::OpenPage { url },
            WebAction::FindInPage { url, pattern } => Self::FindInPage { pattern, url },
        }
    }
}

impl ShellAction {
    pub(super) fn of(call: &TurnCall) -> Self {
        Self {
            commands: ShownArguments::read(&call.arguments).commands(),
            max_output_length: None,
            timeout_ms: None,
        }
    }
}

impl<'a> ShellOutput<'a> {
    /// Of the result of a call; of none, nothing was put out.
    pub(super) fn of(result: Option<&'a ShownResult<'a>>) -> Self {
        let ran = result.map(ShownResult::ran).unwrap_or_default();
        Self {
            outcome: ShellExit {
                exit_code: ran.exit_code,
            },
            stderr: ran.stderr,
            stdout: ran.stdout,
        }
    }
}

/// The item as JSON.
pub(super) fn to_raw(item: &ShownItem<'_>) -> Box<RawValue> {
    to_raw_value(item).expect("an item has only string keys")
}

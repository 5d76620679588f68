//! The events, by their names in OpenAI's Responses API, and two of our own. The order of the fields is part of the bytes.

use std::sync::Arc;

use fleet::{call::Awaiting, ids::CallId, wire::part::Part};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    done_item::DoneItem,
    header::TurnHeader,
    item::{OutputText, ShellOutput},
};

/// With what the names of our own events begin.
const OURS: &str = "toolfleet.";
/// What stands where a response names its model: no model has made it.
const MODEL: &str = "toolfleet";

macro_rules! stream_events {
    ($(#[$enum_doc:meta])* $enum:ident<$life:lifetime> {
        $($(#[$doc:meta])* $variant:ident = $name:literal { $($field:ident: $kind:ty),+ $(,)? }),+ $(,)?
    }) => {
        $(#[$enum_doc])*
        #[derive(Debug, Serialize)]
        #[serde(tag = "type")]
        pub(super) enum $enum<$life> {
            $($(#[$doc])* #[serde(rename = $name)] $variant { $($field: $kind),+ }),+
        }

        impl $enum<'_> {
            /// Its name.
            pub(super) const fn name(&self) -> &'static str {
                match self { $(Self::$variant { .. } => $name),+ }
            }
        }
    };
}

stream_events! {
    /// One event, without its number.
    StreamEvent<'a> {
        Created = "response.created" { response: &'a ResponseBody<'a> },
        InProgress = "response.in_progress" { response: &'a ResponseBody<'a> },
        Completed = "response.completed" { response: &'a ResponseBody<'a> },
        Incomplete = "response.incomplete" { response: &'a ResponseBody<'a> },

        ItemAdded = "response.output_item.added" { output_index: usize, item: &'a RawValue },
        ItemDone = "response.output_item.done" { output_index: usize, item: &'a RawValue },

        McpInProgress = "response.mcp_call.in_progress" { output_index: usize, item_id: &'a str },
        McpArgumentsDone = "response.mcp_call_arguments.done" { output_index: usize, item_id: &'a str, arguments: &'a str },
        McpCompleted = "response.mcp_call.completed" { output_index: usize, item_id: &'a str },
        McpFailed = "response.mcp_call.failed" { output_index: usize, item_id: &'a str },

        ContentAdded = "response.content_part.added" {
            output_index: usize, item_id: &'a str, content_index: u32, part: OutputText<'a>,
        },
        TextDelta = "response.output_text.delta" {
            output_index: usize, item_id: &'a str, content_index: u32, delta: &'a str, logprobs: [(); 0],
        },
        TextDone = "response.output_text.done" {
            output_index: usize, item_id: &'a str, content_index: u32, text: &'a str, logprobs: [(); 0],
        },
        ContentDone = "response.content_part.done" {
            output_index: usize, item_id: &'a str, content_index: u32, part: OutputText<'a>,
        },

        ImageInProgress = "response.image_generation_call.in_progress" { output_index: usize, item_id: &'a str },
        ImageGenerating = "response.image_generation_call.generating" { output_index: usize, item_id: &'a str },
        ImagePartial = "response.image_generation_call.partial_image" {
            output_index: usize, item_id: &'a str, partial_image_index: u32, partial_image_b64: &'a str, output_format: &'a str,
        },
        ImageCompleted = "response.image_generation_call.completed" { output_index: usize, item_id: &'a str },

        FileSearchInProgress = "response.file_search_call.in_progress" { output_index: usize, item_id: &'a str },
        FileSearchSearching = "response.file_search_call.searching" { output_index: usize, item_id: &'a str },
        FileSearchCompleted = "response.file_search_call.completed" { output_index: usize, item_id: &'a str },

        WebSearchInProgress = "response.web_search_call.in_progress" { output_index: usize, item_id: &'a str },
        WebSearchSearching = "response.web_search_call.searching" { output_index: usize, item_id: &'a str },
        WebSearchCompleted = "response.web_search_call.completed" { output_index: usize, item_id: &'a str },

        CodeInProgress = "response.code_interpreter_call.in_progress" { output_index: usize, item_id: &'a str },
        CodeDelta = "response.code_interpreter_call_code.delta" { output_index: usize, item_id: &'a str, delta: &'a str },
        CodeDone = "response.code_interpreter_call_code.done" { output_index: usize, item_id: &'a str, code: &'a str },
        CodeInterpreting = "response.code_interpreter_call.interpreting" { output_index: usize, item_id: &'a str },
        CodeCompleted = "response.code_interpreter_call.completed" { output_index: usize, item_id: &'a str },

        FunctionArgumentsDelta = "response.function_call_arguments.delta" { output_index: usize, item_id: &'a str, delta: &'a str },
        FunctionArgumentsDone = "response.function_call_arguments.done" {
            output_index: usize, item_id: &'a str, arguments: &'a str,
        },
        CustomInputDelta = "response.custom_tool_call_input.delta" { output_index: usize, item_id: &'a str, delta: &'a str },
        CustomInputDone = "response.custom_tool_call_input.done" { output_index: usize, item_id: &'a str, input: &'a str },

        ShellCommandAdded = "response.shell_call_command.added" { output_index: usize, command_index: usize, command: &'a str },
        ShellCommandDone = "response.shell_call_command.done" { output_index: usize, command_index: usize, command: &'a str },
        ShellOutputDelta = "response.shell_call_output_content.delta" {
            output_index: usize, item_id: &'a str, command_index: usize, delta: ShellDelta<'a>,
        },
        ShellOutputDone = "response.shell_call_output_content.done" {
            output_index: usize, item_id: &'a str, command_index: usize, output: [ShellOutput<'a>; 1],
        },

        /// A part for which the item's kind has no event of its own.
        OutputDelta = "toolfleet.output.delta" {
            output_index: usize, item_id: &'a str, attempt: u32, part: u32, delta: &'a Part,
        },
        /// The call of an item waits for somebody.
        CallAwaiting = "toolfleet.call.awaiting" { output_index: usize, item_id: &'a str, call_id: CallId, r#for: Awaiting },
    }
}

impl StreamEvent<'_> {
    /// Whether it is one of our own, for those who asked for them.
    pub(super) fn is_extension(&self) -> bool {
        self.name().starts_with(OURS)
    }
}

/// What a shell has put out since.
#[derive(Debug, Serialize)]
pub(super) struct ShellDelta<'a> {
    pub(super) stdout: &'a str,
}

/// How far a response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ResponseStatus {
    InProgress,
    Completed,
    /// A call of it is in doubt.
    Incomplete,
}

/// A response.
#[derive(Debug, Serialize)]
pub(super) struct ResponseBody<'a> {
    id: &'a str,
    access_programs: Option<()>,
    object: &'static str,
    /// Seconds since 1970.
    created_at: i64,
    status: ResponseStatus,
    completed_at: Option<i64>,
    error: Option<()>,
    incomplete_details: Option<()>,
    instructions: Option<()>,
    metadata: ResponseMetadata<'a>,
    model: &'static str,
    output: &'a [Arc<DoneItem>],
    parallel_tool_calls: bool,
    previous_response_id: Option<&'a str>,
    temperature: Option<()>,
    tool_choice: &'static str,
    tools: [(); 0],
    top_p: Option<()>,
}

#[derive(Debug, Serialize)]
struct ResponseMetadata<'a> {
    turn_id: &'a str,
    session: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<&'static str>,
}

impl<'a> ResponseBody<'a> {
    /// The response of a turn as it stands, at this second of the stream's time.
    pub(super) fn of(
        header: &'a TurnHeader,
        status: ResponseStatus,
        output: &'a [Arc<DoneItem>],
        now: i64,
    ) -> Self {
        Self {
            id: &header.response_id,
            access_programs: None,
            object: "response",
            created_at: header.created_at.unix_timestamp(),
            status,
            completed_at: match status {
                ResponseStatus::Completed => Some(now),
                ResponseStatus::InProgress | ResponseStatus::Incomplete => None,
            },
            error: None,
            incomplete_details: None,
            instructions: None,
            metadata: ResponseMetadata {
                turn_id: &header.turn_id,
                session: header.session.as_str(),
                incomplete: match status {
                    ResponseStatus::Incomplete => Some("in_doubt"),
                    ResponseStatus::InProgress | ResponseStatus::Completed => None,
                },
            },
            model: MODEL,
            output,
            parallel_tool_calls: true,
            previous_response_id: header.previous_response_id.as_deref(),
            temperature: None,
            tool_choice: "auto",
            tools: [],
            top_p: None,
        }
    }
}

//! What an item shows of its call: where it is added, and where it is done.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::{
    arguments::ShownArguments,
    ending::{CallEnd, CallFailure},
    header::TurnCall,
    item::{
        CodeOutput, ImageFailure, McpFailure, OutputText, SERVER, ShellAction, ShellOutput,
        ShellPlace, ShownItem, ShownWebAction, to_raw,
    },
    result::ShownResult,
    shape::{ClientKind, ItemKind, ItemStatus},
};

/// How an item is closed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Closing<'a> {
    /// With this result, as JSON text.
    Answer(Option<&'a str>),
    /// With this failure.
    Failure(&'a CallFailure),
    /// Before its end.
    CutShort,
}

/// What an item that is told from a beginning to an end shows of its call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Showing<'a> {
    pub(super) kind: ItemKind,
    pub(super) id: &'a str,
    pub(super) call: &'a TurnCall,
    /// The request for approval that was shown for it.
    pub(super) approval: Option<&'a str>,
    /// The item that has told the commands of a shell.
    pub(super) commands: Option<&'a str>,
}

impl<'a> Closing<'a> {
    /// With what a call has come to.
    pub(super) fn of(end: &'a CallEnd) -> Self {
        match end {
            CallEnd::Answer(json) => Self::Answer(json.as_deref().map(String::as_str)),
            CallEnd::Failure(failure) => Self::Failure(failure),
        }
    }
}

impl Showing<'_> {
    /// The item as it is added.
    pub(super) fn added(self) -> Box<RawValue> {
        self.raw(None, "")
    }

    /// The item as it is done. `text` is that of a message.
    pub(super) fn done(self, closing: Closing<'_>, text: &str) -> Box<RawValue> {
        self.raw(Some(closing), text)
    }

    fn raw(self, closing: Option<Closing<'_>>, text: &str) -> Box<RawValue> {
        let Self {
            kind,
            id,
            call,
            approval,
            commands,
        } = self;
        let status = status(kind, closing);
        let answer = match closing {
            Some(Closing::Answer(Some(json))) => Some(ShownResult::read(json)),
            Some(Closing::Answer(None) | Closing::Failure(_) | Closing::CutShort) | None => None,
        };
        let answer = answer.as_ref();
        let failure = match closing {
            Some(Closing::Failure(failure)) => Some((failure.code, failure.message(call.language))),
            Some(Closing::Answer(_) | Closing::CutShort) | None => None,
        };
        let failure = failure.as_ref().map(|(code, message)| (*code, &**message));
        let content = [OutputText::of(text)];
        match kind {
            ItemKind::Mcp => to_raw(&ShownItem::McpCall {
                id,
                approval_request_id: approval,
                arguments: closing.map_or("", |_closed| &call.arguments),
                error: failure.map(|(code, message)| McpFailure::of(code, message)),
                name: &call.tool,
                output: answer.map(ShownResult::text),
                server_label: SERVER,
                status,
            }),
            ItemKind::Message => to_raw(&ShownItem::Message {
                id,
                content: closing.map_or(&[], |_closed| &content),
                role: "assistant",
                status,
            }),
            ItemKind::Image => to_raw(&ShownItem::ImageGenerationCall {
                id,
                error: match closing {
                    Some(Closing::CutShort) => Some(ImageFailure::cut_short(call.language)),
                    Some(Closing::Answer(_) | Closing::Failure(_)) | None => {
                        failure.map(|(code, message)| ImageFailure::of(code, message))
                    }
                },
                result: answer.and_then(ShownResult::image),
                status,
            }),
            ItemKind::FileSearch => to_raw(&ShownItem::FileSearchCall {
                id,
                queries: ShownArguments::read(&call.arguments).queries(),
                results: answer.and_then(ShownResult::found),
                status,
            }),
            ItemKind::WebSearch => {
                let arguments = ShownArguments::read(&call.arguments);
                let action = ShownWebAction::of(arguments.web_action(), answer);
                to_raw(&ShownItem::WebSearchCall { id, action, status })
            }
            ItemKind::Code => {
                let logs = failure.map(|(_code, message)| {
                    vec![CodeOutput::Logs {
                        logs: Cow::Borrowed(message),
                    }]
                });
                to_raw(&ShownItem::CodeInterpreterCall {
                    id,
                    code: ShownArguments::read(&call.arguments).code(),
                    container_id: SERVER,
                    outputs: logs.or_else(|| answer.map(CodeOutput::all)),
                    status,
                })
            }
            ItemKind::Shell => {
                let is_answered = matches!(closing, Some(Closing::Answer(_)));
                to_raw(&ShownItem::ShellCallOutput {
                    id,
                    call_id: commands.unwrap_or(id),
                    max_output_length: None,
                    output: Vec::from_iter(is_answered.then(|| ShellOutput::of(answer))),
                    status,
                })
            }
        }
    }
}

/// The commands of a shell of the fleet's own.
pub(super) fn shell_call(id: &str, call: &TurnCall, status: ItemStatus) -> Box<RawValue> {
    to_raw(&ShownItem::ShellCall {
        id,
        action: ShellAction::of(call),
        // Several items of one call are several, for who knows them by this id.
        call_id: id,
        environment: ShellPlace::ContainerReference {
            container_id: SERVER,
        },
        status,
    })
}

/// A question to the client, whether a call may run.
pub(super) fn approval_request(id: &str, call: &TurnCall) -> Box<RawValue> {
    to_raw(&ShownItem::McpApprovalRequest {
        id,
        arguments: &call.arguments,
        name: &call.tool,
        server_label: SERVER,
    })
}

/// A call that the client has to run. `is_done` says whether its arguments are in it.
pub(super) fn client_call(
    kind: ClientKind,
    id: &str,
    call_id: &str,
    call: &TurnCall,
    is_done: bool,
) -> Box<RawValue> {
    let status = if is_done {
        ItemStatus::Completed
    } else {
        ItemStatus::InProgress
    };
    match kind {
        ClientKind::Function => to_raw(&ShownItem::FunctionCall {
            id,
            arguments: if is_done { &call.arguments } else { "" },
            call_id,
            name: &call.tool,
            status,
        }),
        ClientKind::Custom => {
            let arguments = ShownArguments::read(&call.arguments);
            to_raw(&ShownItem::CustomToolCall {
                id,
                call_id,
                input: if is_done {
                    custom_input(&arguments, call)
                } else {
                    ""
                },
                name: &call.tool,
            })
        }
        ClientKind::Shell => to_raw(&ShownItem::ShellCall {
            id,
            action: ShellAction::of(call),
            call_id,
            environment: ShellPlace::Local,
            status,
        }),
    }
}

/// The input of a custom tool: the text of its only argument, or all of them as JSON.
pub(super) fn custom_input<'a>(arguments: &'a ShownArguments, call: &'a TurnCall) -> &'a str {
    arguments.only_text().unwrap_or(&call.arguments)
}

const fn status(kind: ItemKind, closing: Option<Closing<'_>>) -> ItemStatus {
    match (closing, kind) {
        (None, _) => ItemStatus::InProgress,
        (Some(Closing::Answer(_)), _) => ItemStatus::Completed,
        (Some(Closing::CutShort), _)
        | (Some(Closing::Failure(_)), ItemKind::Message | ItemKind::Shell) => kind.cut_short(),
        (
            Some(Closing::Failure(_)),
            ItemKind::Mcp
            | ItemKind::Image
            | ItemKind::FileSearch
            | ItemKind::WebSearch
            | ItemKind::Code,
        ) => ItemStatus::Failed,
    }
}

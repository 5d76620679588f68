//! As what kind of item a call is shown.

use serde::Serialize;

use super::{
    arguments::ShownArguments,
    header::{Shape, TurnCall},
};

/// The kinds of items that are told from a beginning to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemKind {
    Mcp,
    Message,
    Image,
    FileSearch,
    WebSearch,
    Code,
    /// What a shell puts out, behind the item that has told its commands.
    Shell,
}

/// The kinds of items by which the client is told what it has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientKind {
    Function,
    Custom,
    Shell,
}

/// How far an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ItemStatus {
    InProgress,
    Completed,
    /// Closed before its end; the call may go on as another item.
    Incomplete,
    Failed,
}

impl ItemKind {
    /// The kind of a call that the fleet runs. What would tell the client to run it is not among them.
    pub(super) fn of(call: &TurnCall, is_winner: bool) -> Self {
        if is_winner {
            return Self::Message;
        }
        if call.is_clients {
            return Self::Mcp;
        }
        match call.presents {
            Some(Shape::ImageGenerationCall) => Self::Image,
            Some(Shape::FileSearchCall) => Self::FileSearch,
            Some(Shape::WebSearchCall) => Self::WebSearch,
            Some(Shape::CodeInterpreterCall) => Self::Code,
            // Whoever reads what a shell puts out looks for its command.
            Some(Shape::ShellCall) if has_commands(call) => Self::Shell,
            Some(Shape::ShellCall) => Self::Mcp,
            Some(Shape::McpCall | Shape::FunctionCall | Shape::CustomToolCall) | None => Self::Mcp,
        }
    }

    /// Whether there are results for which an item of this kind has no place: [`super::result::ShownResult::fits`] looks at them.
    pub(super) const fn is_choosy(self) -> bool {
        match self {
            Self::Image | Self::FileSearch | Self::WebSearch => true,
            Self::Mcp | Self::Message | Self::Code | Self::Shell => false,
        }
    }

    /// Whether an item of this kind can say why it failed. Where it cannot, an item of the kind `mcp_call` does.
    pub(super) const fn tells_failures(self) -> bool {
        match self {
            Self::Mcp | Self::Image | Self::Code => true,
            Self::Message | Self::FileSearch | Self::WebSearch | Self::Shell => false,
        }
    }

    /// The status of one that is closed before its end.
    pub(super) const fn cut_short(self) -> ItemStatus {
        match self {
            // It has no word for it, and says why in its error.
            Self::Image => ItemStatus::Failed,
            Self::Mcp
            | Self::Message
            | Self::FileSearch
            | Self::WebSearch
            | Self::Code
            | Self::Shell => ItemStatus::Incomplete,
        }
    }

    /// With what its ids begin.
    pub(super) const fn prefix(self) -> &'static str {
        match self {
            Self::Mcp => "mcp",
            Self::Message => "msg",
            Self::Image => "ig",
            Self::FileSearch => "fs",
            Self::WebSearch => "ws",
            Self::Code => "ci",
            Self::Shell => "sho",
        }
    }
}

fn has_commands(call: &TurnCall) -> bool {
    !ShownArguments::read(&call.arguments).commands().is_empty()
}

impl ClientKind {
    /// The kind of a call that the client runs.
    pub(super) const fn of(call: &TurnCall) -> Self {
        match call.presents {
            Some(Shape::CustomToolCall) => Self::Custom,
            Some(Shape::ShellCall) => Self::Shell,
            Some(
                Shape::FunctionCall
                | Shape::McpCall
                | Shape::ImageGenerationCall
                | Shape::FileSearchCall
                | Shape::WebSearchCall
                | Shape::CodeInterpreterCall,
            )
            | None => Self::Function,
        }
    }

    /// With what its ids begin.
    pub(super) const fn prefix(self) -> &'static str {
        match self {
            Self::Function => "fc",
            Self::Custom => "ctc",
            Self::Shell => "sh",
        }
    }
}

//! What is known of a message, and of what a model may call, in any protocol.

use serde_json::Value;

/// Who speaks in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::executors::chat) enum Speaker {
    /// Who has set the model up.
    System,
    User,
    /// It says, thinks or calls something.
    Model,
    /// What a tool has said, perhaps with words of the user behind it.
    Tool,
}

/// A call of a tool in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::executors::chat) struct ToolCall<'m> {
    pub(in crate::executors::chat) id: &'m str,
    pub(in crate::executors::chat) name: &'m str,
}

/// The result of a tool in a message.
#[derive(Debug)]
pub(in crate::executors::chat) struct ToolResult<'m> {
    pub(in crate::executors::chat) call: String,
    /// A text, or a list of parts.
    pub(in crate::executors::chat) content: &'m mut Value,
}

/// A tool that a model may call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::executors::chat) struct OfferedTool<'t> {
    pub(in crate::executors::chat) name: Option<&'t str>,
    pub(in crate::executors::chat) description: &'t str,
}

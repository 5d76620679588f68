//! Held calls: accepted, and not yet handed to NATS. Where they wait.

use std::{fmt, str::FromStr};

use crate::ids::{InvalidName, QueueName, ToolName};

/// Where a call waits while it is held: with the others of its queue, or, where its tool has a limit of its own, with those
/// of its tool, so that they hold up nobody else.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Line {
    /// Everything of a queue whose tools have no limit.
    Queue(QueueName),
    /// A tool that runs only so often at a time.
    Tool(ToolName),
}

/// Before a tool's name; no queue's name has this character.
const TOOL: &str = "tool/";

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(queue) => queue.fmt(f),
            Self::Tool(tool) => write!(f, "{TOOL}{tool}"),
        }
    }
}

impl FromStr for Line {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        match text.strip_prefix(TOOL) {
            Some(tool) => tool.parse().map(Self::Tool),
            None => text.parse().map(Self::Queue),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tools_line_is_never_a_queues() {
        let queue: Line = "tool".parse().unwrap();
        let tool: Line = "tool/tool".parse().unwrap();
        assert_ne!(queue, tool);
        for line in [queue, tool] {
            assert_eq!(line.to_string().parse::<Line>().unwrap(), line);
        }
        assert!("tool/".parse::<Line>().is_err());
    }
}

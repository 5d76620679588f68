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

/// How much of a tool with a limit is under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Admitted {
    /// Attempts that have a place: they run, or are in doubt and may still act.
    pub running: u32,
    /// Calls that were handed to NATS to take one.
    pub on_its_way: u32,
}

/// How many more calls of a tool may be handed over, of which so many may run at a time.
///
/// Nothing is handed over ahead of a free place: a worker with a free slot would ask at once, and be refused.
pub const fn room_of_tool(limit: u32, admitted: Admitted) -> u32 {
    limit
        .saturating_sub(admitted.running)
        .saturating_sub(admitted.on_its_way)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_has_room_for_what_neither_runs_nor_is_on_its_way() {
        let room = |limit, running, on_its_way| {
            room_of_tool(
                limit,
                Admitted {
                    running,
                    on_its_way,
                },
            )
        };
        assert_eq!(room(3, 0, 0), 3);
        assert_eq!(room(3, 1, 1), 1);
        // Retries come back without being asked, and a limit can be lowered.
        assert_eq!((room(3, 2, 4), room(1, 3, 0)), (0, 0));
    }

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

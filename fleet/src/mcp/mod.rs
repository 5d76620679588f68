//! Tools of MCP servers: what a server says of a tool, how that is pinned, and what is new among it.

mod dialect;
pub mod discovered;
pub mod pin;

use crate::ids::{QueueName, ToolName};

/// What the fleet's own tool is called that looks at what the servers of a queue offer: `mcp_discover`, with the name of any other queue than
/// the default one behind it.
///
/// # Panics
///
/// Never: a queue's name has at most 64 characters, of which enough are taken.
pub fn discover_name(queue: &QueueName) -> ToolName {
    let own = match queue.as_str() {
        "default" => String::new(),
        other => format!("_{}", other.replace('-', "_")),
    };
    let mut name = format!("mcp_discover{own}");
    name.truncate(64);
    name.parse()
        .expect("the name of a queue has letters, digits, _ and -")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_has_a_tool_that_looks() {
        for (queue, tool) in [("default", "mcp_discover"), ("eu-1", "mcp_discover_eu_1")] {
            assert_eq!(discover_name(&queue.parse().unwrap()).as_str(), tool);
        }
        assert_eq!(
            discover_name(&"q".repeat(64).parse().unwrap())
                .as_str()
                .len(),
            64
        );
    }
}

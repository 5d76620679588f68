//! Tools of MCP servers: what a server says of a tool, how that is pinned, and what is new among it.

mod dialect;
pub mod discovered;
mod draft;
mod name;
pub mod pin;

use sha2::{Digest, Sha256};

use crate::ids::{Label, QueueName, ToolName};

/// How the names of the fleet's own tools begin that look at servers.
pub(crate) const DISCOVER: &str = "mcp_discover";
/// The tenant in whose name operators look at servers. No agent has a user of NATS for it, and a token needs the scope `admin`.
pub const OPERATORS: &str = "_operator";
/// The field of a definition, as `mcp_discover` tells it, with the reason why the worker could not read it. Servers have no such field.
pub const UNREADABLE: &str = "unreadable";
/// The most characters of a queue that stand in the name of a tool.
const QUEUE_MAX: usize = 40;

/// What the fleet's own tool is called that looks at what the servers of a queue offer.
///
/// It is `mcp_discover`, with the name of any other queue than the default one behind it. A queue whose name does not fit into that of a
/// tool ends in a hash, so that no two have one tool.
///
/// # Panics
///
/// Never: what is made has only letters, digits and `_`, and 62 characters at most.
pub fn discover_name(queue: &QueueName) -> ToolName {
    let queue = queue.as_str();
    let is_known = |one: char| matches!(one, 'a'..='z' | '0'..='9' | '_');
    let name = if queue == "default" {
        DISCOVER.to_owned()
    } else if queue.len() <= QUEUE_MAX && queue.chars().all(is_known) {
        format!("{DISCOVER}_{queue}")
    } else {
        let own = queue.to_ascii_lowercase();
        let own: String = own
            .chars()
            .map(|one| if is_known(one) { one } else { '_' })
            .take(QUEUE_MAX)
            .collect();
        let hash = hex::encode(&Sha256::digest(queue.as_bytes())[..4]);
        format!("{DISCOVER}_{own}_{hash}")
    };
    name.parse()
        .expect("letters, digits and _ are the name of a tool")
}

/// Whether a tool of this name is the fleet's own and looks at servers: it is for operators.
///
/// It asks a server with the fleet's credentials and says what that has, also where none of it was applied.
pub fn is_for_operators(tool: &str) -> bool {
    let rest = tool.strip_prefix(DISCOVER);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

/// The tenant in whose name operators ask.
///
/// # Panics
///
/// Never: its name is one.
pub fn operators() -> Label {
    OPERATORS.parse().expect("its name is a tenant's")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_at_servers_is_for_operators_whatever_its_queue() {
        for queue in ["default", "eu_1", "eu-1", &"q".repeat(64)] {
            assert!(is_for_operators(
                discover_name(&queue.parse().unwrap()).as_str()
            ));
        }
        for other in ["mcp_discovery", "mcp", "my_mcp_discover", ""] {
            assert!(!is_for_operators(other), "{other}");
        }
        assert_eq!(operators().as_str(), OPERATORS);
    }

    #[test]
    fn each_queue_has_a_tool_that_looks() {
        let name = |queue: &str| discover_name(&queue.parse().unwrap()).to_string();
        assert_eq!(name("default"), "mcp_discover");
        assert_eq!(name("eu_1"), "mcp_discover_eu_1");
        assert!(name("eu-1").starts_with("mcp_discover_eu_1_"));
        let long = "q".repeat(63);
        assert_ne!(name(&format!("{long}a")), name(&format!("{long}b")));
    }
}

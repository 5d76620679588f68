//! What a tool is to clients of MCP beside what it is to all callers.

use serde::{Deserialize, Serialize};

use super::{executor::ExecutorSpec, problem::Problems};
use crate::call::words;

words! {
    /// When a call becomes a task, for clients that take one.
    #[derive(Default)]
    TaskUse {
        /// When it is not over after two seconds.
        #[default]
        Optional = "optional",
        /// At once. Other clients wait for it.
        Preferred = "preferred",
        /// At once. Other clients of the revision that has tasks cannot call it.
        Required = "required",
    }
}

/// What a tool is to clients of MCP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverMcp {
    /// When its calls become tasks.
    #[serde(default)]
    pub task: TaskUse,
}

impl OverMcp {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn check(self, executor: &ExecutorSpec, problems: &mut Problems) {
        if !self.is_default() && matches!(executor, ExecutorSpec::Client(_)) {
            problems.add(
                "/mcp",
                "the caller's program runs it, and no client of MCP is asked to; leave mcp out",
            );
        }
    }
}

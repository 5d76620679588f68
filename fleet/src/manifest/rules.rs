//! Rules over what happened before in the run or session of a call: when a tool may not run although its arguments are fine.

use serde::{Deserialize, Serialize};

use super::{policy::KeyPolicy, problem::Problems};
use crate::{call::words, ids::ToolName};

words! {
    /// Which calls are counted together.
    AtMostPer {
        /// Those of one run.
        Run = "run",
        /// Those of one session.
        Session = "session",
    }
}

/// How many calls of the tool may happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtMost {
    /// So many, 1 to 1,000.
    pub calls: u32,
    /// In each of these.
    pub per: AtMostPer,
}

/// What must, and what must not, have happened before a call of the tool runs. All rules hold that are there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// No more calls than these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<AtMost>,
    /// Only once a call of each of these tools has succeeded, in the run of the call, or in its session where it has no run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<ToolName>,
    /// Not once a call of one of these tools has happened, in the run or in the session of the call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub never_after: Vec<ToolName>,
}

impl Policy {
    /// The other tools that it names.
    pub fn named(&self) -> impl Iterator<Item = &ToolName> {
        self.after.iter().chain(&self.never_after)
    }

    pub(super) fn check(&self, tool: &ToolName, key: KeyPolicy, problems: &mut Problems) {
        // Equal arguments would be one call in every run, and the answer that refuses it would be the answer in all of them.
        if key == KeyPolicy::FromArguments {
            problems.add(
                "/policy",
                format!(
                    "the key of {tool} is made of its arguments, so a refusal in one run would be the answer to the same arguments in every \
                     other; write key: required, or leave policy out"
                ),
            );
        }
        for (n, name) in self.after.iter().enumerate() {
            let path = format!("/policy/after/{n}");
            if name == tool {
                problems.add(
                    path,
                    format!("{name} would wait for itself and never run; name other tools"),
                );
            } else if self.never_after.contains(name) {
                problems.add(
                    path,
                    format!("{name} stands in never_after too, so {tool} would never run; keep it in one list"),
                );
            }
        }
        for (n, name) in self.never_after.iter().enumerate() {
            if name == tool {
                problems.add(
                    format!("/policy/never_after/{n}"),
                    format!("{name} is the tool itself; write at_most: {{calls: 1, per: run}} for a tool that may be called once"),
                );
            }
        }
    }
}

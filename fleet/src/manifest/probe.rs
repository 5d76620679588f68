//! The probe of a tool: a `read` tool that tells whether a call in doubt had its effect.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::duration;
use crate::ids::ToolName;

/// The tool that is asked, its arguments, and the meaning of its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeSpec {
    /// A tool with effect `read`; its current version is asked.
    pub tool: ToolName,
    /// Its arguments. A text that is one `{{ expression }}` becomes that value, others are templates;
    /// they see `call`, `args` and `key`.
    pub args: Value,
    /// An expression over the answer that is true when the effect took place. It sees `result`, `call`, `args`, `key`.
    pub applied_when: String,
    /// An expression that is true when the answer proves that the effect did not take place. It also sees `error`, when the
    /// tool said no. Absent: every answer that is not `applied_when` counts as that proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_applied_when: Option<String>,
    /// An expression that is true when the answer contradicts the call: then only a person decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_when: Option<String>,
    /// Whether the remote knows an effect as soon as it has taken place. Otherwise a "no" counts only after `settle`.
    #[serde(default)]
    pub authoritative: bool,
    /// How long an effect may take to become visible.
    #[serde(default = "ProbeSpec::default_settle", with = "duration")]
    pub settle: Duration,
}

impl ProbeSpec {
    const fn default_settle() -> Duration {
        Duration::from_secs(10)
    }
}

//! How a call in doubt is looked into: a `read` tool that is asked what became of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Manifest, check::Problems, duration};
use crate::{call::Effect, ids::ToolName, probe};

/// Which tool is asked, with what, and what its answer means.
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
    /// An expression that is true when the answer proves that it did not. It also sees `error`, when the tool said no.
    /// Absent: every answer that is not `applied_when` counts as that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_applied_when: Option<String>,
    /// An expression that is true when the answer contradicts the call: then nobody but a person decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_when: Option<String>,
    /// Whether the remote knows an effect as soon as it has it. Otherwise a "no" counts only after `settle`.
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

pub(super) fn check(manifest: &Manifest, problems: &mut Problems) {
    let Some(spec) = &manifest.probe else { return };
    match manifest.effect {
        Effect::Read => problems.add(
            "/probe",
            "a read is never in doubt; leave the probe out, or declare what the tool changes",
        ),
        Effect::Transaction => problems.add(
            "/probe",
            "a transaction is never in doubt, for its effect commits with its outcome; leave the probe out",
        ),
        Effect::Idempotent | Effect::Once => {}
    }
    if spec.tool == manifest.name {
        problems.add(
            "/probe/tool",
            "a probe is another tool, one with effect read",
        );
    }
    if spec.settle > Manifest::DEADLINE_MAX {
        problems.add("/probe/settle", "write at most 24h");
    }
    for (path, sentence) in probe::unreadable(spec) {
        problems.add(format!("/probe{path}"), sentence);
    }
}

//! Which of many tools a model is told of.

use serde::{Deserialize, Serialize};

use super::{executor::ExecutorSpec, problem::Problems};
use crate::{call::words, ids::ToolName};

/// The name of the fleet's own tool that finds others.
pub const FIND_TOOLS: &str = "find_tools";

words! {
    /// Where the tools come from that a request has.
    #[derive(Default)]
    ToolSource {
        /// From the request alone.
        #[default]
        Request = "request",
        /// From the request, and all that the fleet would list for its caller's tenant.
        Fleet = "fleet",
    }
}

/// How many, and which, of a request's tools its model is told of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSelection {
    /// Where the tools come from.
    #[serde(default)]
    pub from: ToolSource,
    /// The tools of the fleet that may be added. Empty: all that are listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<ToolName>,
    /// How many are chosen at most, beside those that always stay; 1 to 128.
    #[serde(default = "ToolSelection::default_max")]
    pub max: u32,
    /// Names of tools that always stay, of the request's or of the fleet's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub always: Vec<String>,
}

impl ToolSelection {
    const fn default_max() -> u32 {
        10
    }

    /// Whether the fleet's tools are added, and the one that finds others with them.
    pub fn is_from_fleet(&self) -> bool {
        self.from == ToolSource::Fleet
    }

    /// Everything that is wrong with the selection of the tool of this name that is run so.
    pub(super) fn check(&self, tool: &ToolName, executor: &ExecutorSpec, problems: &mut Problems) {
        if !matches!(executor, ExecutorSpec::Chat(_)) {
            problems.add(
                "/tool_selection",
                "only a chat tool tells a model of tools; leave tool_selection out",
            );
        }
        if !self.is_from_fleet() && !self.only.is_empty() {
            problems.add(
                "/tool_selection/only",
                "it names which of the fleet's tools are added, and from: request adds none; write from: fleet, or leave only out",
            );
        }
        let is_self = |name: &str| name == tool.as_str();
        let only = self.only.iter().map(ToolName::as_str);
        let always = self.always.iter().map(String::as_str);
        let named = [
            ("only", only.collect::<Vec<_>>()),
            ("always", always.collect()),
        ];
        for (field, names) in named {
            if let Some(n) = names.iter().position(|name| is_self(name)) {
                problems.add(
                    format!("/tool_selection/{field}/{n}"),
                    format!(
                        "{tool} is the model itself, which is not told of itself; name other tools"
                    ),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const CHAT: &str = r#"{"chat": {"protocol": "anthropic", "routes": [{"name": "r", "url": "https://x/", "model": "m"}]}}"#;
    const NATIVE: &str = r#"{"native": {"handler": "h.v1"}}"#;

    fn problems(selection: &Value, executor: &str) -> Vec<String> {
        let selection: ToolSelection = serde_json::from_value(selection.clone()).unwrap();
        let executor: ExecutorSpec = serde_json::from_str(executor).unwrap();
        let mut found = Problems::default();
        selection.check(&"ask_model".parse().unwrap(), &executor, &mut found);
        let told = |problem: &super::super::ManifestProblem| {
            format!("{} {}", problem.path, problem.message)
        };
        found.found.iter().map(told).collect()
    }

    #[test]
    fn a_selection_is_a_models_and_names_other_tools() {
        for (selection, executor, begins) in [
            (json!({}), CHAT, None),
            (
                json!({"from": "fleet", "only": ["get_weather"], "max": 3, "always": ["read_result"]}),
                CHAT,
                None,
            ),
            (json!({"always": ["Edit-File"]}), CHAT, None),
            (json!({}), NATIVE, Some("/tool_selection only a chat tool")),
            (
                json!({"only": ["get_weather"]}),
                CHAT,
                Some("/tool_selection/only it names which of the fleet's"),
            ),
            (
                json!({"from": "fleet", "only": ["get_weather", "ask_model"]}),
                CHAT,
                Some("/tool_selection/only/1 ask_model is the model itself"),
            ),
            (
                json!({"always": ["ask_model"]}),
                CHAT,
                Some("/tool_selection/always/0 ask_model is the model itself"),
            ),
        ] {
            let found = problems(&selection, executor);
            match begins {
                None => assert!(found.is_empty(), "{found:?}"),
                Some(begins) => assert!(
                    found.len() == 1 && found[0].starts_with(begins),
                    "{found:?}"
                ),
            }
        }
    }
}

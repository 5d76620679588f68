//! When somebody has to say yes before a call runs, and who.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    duration::{self, format_duration},
    problem::Problems,
};
use crate::{call::words, ids::ToolName, invisible::first_invisible, probe};

words! {
    /// Who may say yes.
    #[derive(Default)]
    ApprovedBy {
        /// Who may send `admin.approve`.
        #[default]
        Operator = "operator",
        /// Whoever has the token of the call: the program of its caller. Operators may as well.
        Caller = "caller",
    }
}

words! {
    /// How an argument is compared.
    Comparison {
        /// It is the value.
        Eq = "eq",
        /// It is another one.
        Ne = "ne",
        /// It is a larger number.
        Gt = "gt",
        /// It is no smaller number.
        Ge = "ge",
        /// It is a smaller number.
        Lt = "lt",
        /// It is no larger number.
        Le = "le",
        /// It is one of the values.
        In = "in",
    }
}

/// Before which calls somebody has to say yes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalSpec {
    /// Who may say it.
    pub by: ApprovedBy,
    /// How many people have to, 1 or 2.
    pub count: u8,
    /// How long it is waited for, 1s to 168h.
    #[serde(with = "duration")]
    pub expires: Duration,
    /// Calls for which one of these may hold need it. Empty: all calls do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<Condition>,
    /// What is told to who decides, and to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is asked for who decides, and shown beside the arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview: Option<PreviewSpec>,
}

/// The tool that is asked for who decides, and its arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreviewSpec {
    /// A tool with effect `read`; its current version is asked.
    pub tool: ToolName,
    /// Its arguments, templates as a probe's.
    pub args: Value,
}

/// A condition on an argument.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Where the argument is, a JSON pointer.
    pub pointer: String,
    /// How it is compared.
    pub op: Comparison,
    /// With what.
    pub value: Value,
}

impl Default for ApprovalSpec {
    fn default() -> Self {
        Self {
            by: ApprovedBy::default(),
            count: 1,
            expires: Duration::from_secs(3600),
            when: Vec::new(),
            reason: None,
            preview: None,
        }
    }
}

impl ApprovalSpec {
    /// The longest time that a yes is waited for.
    pub const EXPIRES_MAX: Duration = Duration::from_secs(7 * 24 * 3600);
    const EXPIRES_MIN: Duration = Duration::from_secs(1);
    const CONDITIONS_MAX: usize = 16;
    /// The most values that an argument may be one of.
    const VALUES_MAX: usize = 100;
    const REASON_CHARS_MAX: usize = 200;

    pub(super) fn check(&self, own: &ToolName, problems: &mut Problems) {
        if !(1..=2).contains(&self.count) {
            problems.add(
                "/approval/count",
                "one person decides, or two do; write 1 or 2",
            );
        }
        if self.count == 2 && self.by == ApprovedBy::Caller {
            problems.add(
                "/approval/count",
                "the program of the caller has the token and would say both names itself; write 1, or by: operator",
            );
        }
        if !(Self::EXPIRES_MIN..=Self::EXPIRES_MAX).contains(&self.expires) {
            problems.add(
                "/approval/expires",
                format!(
                    "a yes is waited for 1s to {}",
                    format_duration(Self::EXPIRES_MAX)
                ),
            );
        }
        if self.when.len() > Self::CONDITIONS_MAX {
            problems.add(
                "/approval/when",
                format!("there may be at most {} conditions", Self::CONDITIONS_MAX),
            );
        }
        for (n, condition) in self.when.iter().enumerate() {
            condition.check(&format!("/approval/when/{n}"), problems);
        }
        if let Some(reason) = &self.reason {
            let is_plain =
                !reason.chars().any(char::is_control) && first_invisible(reason).is_none();
            let is_short = reason.chars().count() <= Self::REASON_CHARS_MAX;
            if reason.trim().is_empty() || !is_short || !is_plain {
                problems.add(
                    "/approval/reason",
                    "it is one line for who decides and for the model: 1 to 200 characters, all of which can be seen",
                );
            }
        }
        if let Some(preview) = &self.preview {
            preview.check(own, problems);
        }
    }
}

impl PreviewSpec {
    fn check(&self, own: &ToolName, problems: &mut Problems) {
        if self.tool == *own {
            problems.add(
                "/approval/preview/tool",
                "what waits for a yes cannot be asked before it; name another tool, one with effect read",
            );
        }
        for (path, sentence) in probe::unreadable_arguments(&self.args) {
            problems.add(format!("/approval/preview{path}"), sentence);
        }
    }
}

impl Condition {
    fn check(&self, path: &str, problems: &mut Problems) {
        let is_pointer = self.pointer.is_empty() || self.pointer.starts_with('/');
        if !is_pointer {
            problems.add(
                format!("{path}/pointer"),
                "it is no JSON pointer; write one that begins with a slash, such as /amount",
            );
        }
        let value = format!("{path}/value");
        match (self.op, &self.value) {
            (Comparison::In, Value::Array(values))
                if (1..=ApprovalSpec::VALUES_MAX).contains(&values.len()) => {}
            (Comparison::In, _) => problems.add(
                value,
                format!(
                    "op in needs an array of 1 to {} values",
                    ApprovalSpec::VALUES_MAX
                ),
            ),
            (
                Comparison::Gt | Comparison::Ge | Comparison::Lt | Comparison::Le,
                Value::Number(_),
            )
            | (Comparison::Eq | Comparison::Ne, _) => {}
            (op, _) => problems.add(value, format!("op {op} compares numbers; write one")),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Where something is wrong.
    fn wrong(spec: &Value) -> Vec<String> {
        let spec: ApprovalSpec = serde_json::from_value(spec.clone()).unwrap();
        let mut problems = Problems::default();
        spec.check(&"charge".parse().unwrap(), &mut problems);
        problems.found.into_iter().map(|one| one.path).collect()
    }

    #[test]
    fn what_nobody_could_decide_by_is_refused_where_it_stands() {
        let when =
            |op: &str, value: Value| json!({"when": [{"pointer": "/a", "op": op, "value": value}]});
        let many: Vec<u32> = (0..10_000).collect();
        for (spec, path) in [
            (json!({"count": 3}), "/approval/count"),
            (json!({"count": 0}), "/approval/count"),
            (json!({"count": 2, "by": "caller"}), "/approval/count"),
            (json!({"expires": "169h"}), "/approval/expires"),
            (json!({"expires": "999ms"}), "/approval/expires"),
            (json!({"reason": " "}), "/approval/reason"),
            (json!({"reason": "x".repeat(201)}), "/approval/reason"),
            (json!({"reason": "a\u{202e}b"}), "/approval/reason"),
            (when("in", json!(many)), "/approval/when/0/value"),
            (when("in", json!([])), "/approval/when/0/value"),
            (when("in", json!(1)), "/approval/when/0/value"),
            (when("gt", json!("1")), "/approval/when/0/value"),
            (
                json!({"preview": {"tool": "charge", "args": {}}}),
                "/approval/preview/tool",
            ),
            (
                json!({"preview": {"tool": "balance", "args": []}}),
                "/approval/preview/args",
            ),
            (
                json!({"preview": {"tool": "balance", "args": {"of": ["{{ args. }}"]}}}),
                "/approval/preview/args/of/0",
            ),
            (
                json!({"when": [{"pointer": "a", "op": "eq", "value": 1}]}),
                "/approval/when/0/pointer",
            ),
        ] {
            assert_eq!(wrong(&spec), [path], "{spec}");
        }
        for fine in [
            json!({}),
            json!({"count": 2, "expires": "168h"}),
            json!({"preview": {"tool": "balance", "args": {"of": "{{ args.customer }}"}}}),
            when("eq", json!(null)),
            when("le", json!(1.5)),
        ] {
            assert_eq!(wrong(&fine), [""; 0], "{fine}");
        }
    }
}

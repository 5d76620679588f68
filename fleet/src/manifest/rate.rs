//! How often a tool may start.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    duration::format_duration, optional, policy::Sensitive, problem::Problems,
    required::ScalarPlace,
};
use crate::{call::words, ids::LimitName};

/// Who shares the starts of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum RateBy {
    /// All its calls.
    #[default]
    Tool,
    /// The calls of each tenant have as many.
    Tenant,
    /// The calls of each tenant with the same value of the argument at this JSON pointer have as many.
    Argument(String),
}

impl From<String> for RateBy {
    fn from(text: String) -> Self {
        match text.as_str() {
            "tool" => Self::Tool,
            "tenant" => Self::Tenant,
            _pointer => Self::Argument(text),
        }
    }
}

impl From<RateBy> for String {
    fn from(by: RateBy) -> Self {
        match by {
            RateBy::Tool => "tool".to_owned(),
            RateBy::Tenant => "tenant".to_owned(),
            RateBy::Argument(pointer) => pointer,
        }
    }
}

words! {
    /// What becomes of a new call that could not start at once.
    #[derive(Default)]
    OnLimit {
        /// It is accepted, and waits for its start.
        #[default]
        Wait = "wait",
        /// It is refused, and told when a start is free.
        Refuse = "refuse",
    }
}

impl OnLimit {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// How many attempts may start in a time, over the whole fleet: as many as is written here, or as many as a limit that several
/// tools share and that only an operator sets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimit {
    /// How many attempts may start in each `per`, 1 to 1,000,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls: Option<u32>,
    /// The time in which so many may start, 1ms to 24h.
    #[serde(skip_serializing_if = "Option::is_none", with = "optional")]
    pub per: Option<Duration>,
    /// How many may start at once after a time without any, 1 to 10,000. `None`: one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Who shares them. `None`: all calls of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<RateBy>,
    /// The name of the limit that the tool shares with others; then there is nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<LimitName>,
}

impl RateLimit {
    /// The longest time over which starts are counted.
    const PER_MAX: Duration = Duration::from_secs(24 * 3600);
    /// The most starts in a millisecond. Start times are kept in whole microseconds, and closer ones would be too inexact.
    const STARTS_PER_MS_MAX: u128 = 100;

    /// The argument whose values have starts of their own, a JSON pointer; `None`: there is none.
    pub(super) fn pointer(&self) -> Option<&str> {
        match self.by.as_ref()? {
            RateBy::Argument(pointer) => Some(pointer),
            RateBy::Tool | RateBy::Tenant => None,
        }
    }

    pub(super) fn check(
        &self,
        input_schema: &Value,
        sensitive: Option<&Sensitive>,
        problems: &mut Problems,
    ) {
        let has_numbers = self.calls.is_some() || self.per.is_some() || self.burst.is_some();
        if self.share.is_some() {
            if has_numbers || self.by.is_some() {
                problems.add(
                    "/rate_limit/share",
                    "a shared limit has its numbers from toolfleet control limit, for all its tools; write share alone, or calls and per without it",
                );
            }
            return;
        }
        let (Some(calls), Some(per)) = (self.calls, self.per) else {
            problems.add(
                "/rate_limit",
                "it does not say how many may start in which time; write calls and per, or share with the name of a shared limit, \
                 such as {calls: 50, per: 1s}",
            );
            return;
        };
        if let Some(pointer) = self.pointer() {
            check_pointer(pointer, input_schema, sensitive, problems);
        }
        if per.is_zero() || per > Self::PER_MAX {
            problems.add(
                "/rate_limit/per",
                "starts are counted over more than nothing and at most a day; write 1ms to 24h",
            );
        } else if u128::from(calls) > per.as_millis() * Self::STARTS_PER_MS_MAX {
            let per = format_duration(per);
            problems.add(
                "/rate_limit/calls",
                format!("{calls} in {per} are more than 100 in a millisecond, which is no limit; write fewer, or leave rate_limit out"),
            );
        }
    }
}

/// Every call must have a value there that can be told apart, and that may be seen by who may see the fleet.
fn check_pointer(
    pointer: &str,
    input_schema: &Value,
    sensitive: Option<&Sensitive>,
    problems: &mut Problems,
) {
    let path = "/rate_limit/by";
    if sensitive.is_some_and(|sensitive| sensitive.touches(pointer)) {
        problems.add(
            path,
            format!(
                "{pointer} is sensitive, and the ledger would keep a mark of its value with the bucket; \
                 write the pointer of another argument, tenant, or tool"
            ),
        );
        return;
    }
    let instead = "write the pointer of a required argument that is a text, a number, or true or false, or write tenant, or tool";
    let why = match ScalarPlace::of(input_schema, pointer) {
        ScalarPlace::Required => return,
        ScalarPlace::Undeclared => "is no property that input_schema declares",
        ScalarPlace::Optional => "may be missing, by input_schema",
        ScalarPlace::NoScalar => {
            "is not always a text, a number, or true or false, by input_schema"
        }
    };
    problems.add(path, format!("{pointer} {why}; {instead}"));
}

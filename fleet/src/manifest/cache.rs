//! How long the answer of a call counts for equal ones.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    duration,
    policy::{Sensitive, SensitiveMode},
    problem::Problems,
};
use crate::call::Effect;

/// How long a good answer is given to equal calls, and that equal calls at one time are one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSpec {
    /// How long an answer counts, from the end of its call; 1ms to 24h.
    #[serde(with = "duration")]
    pub ttl: Duration,
}

impl CacheSpec {
    /// The longest time that an answer may count.
    pub const TTL_MAX: Duration = Duration::from_secs(24 * 3600);

    pub(super) fn check(
        &self,
        effect: Effect,
        sensitive: Option<&Sensitive>,
        is_limited: bool,
        problems: &mut Problems,
    ) {
        if effect != Effect::Read {
            problems.add(
                "/cache",
                format!(
                    "only the answers of a tool with effect read are kept, and this one has effect {effect}: an equal call would not be made; \
                     leave cache out"
                ),
            );
        }
        if sensitive.is_some_and(|sensitive| sensitive.mode == SensitiveMode::Omit) {
            problems.add(
                "/cache",
                "an answer is kept in the history, and sensitive: omit takes values out of it there; \
                 leave cache out, or write mode: mask",
            );
        }
        if is_limited {
            problems.add(
                "/cache",
                "calls of a tool with a concurrency or a rate_limit wait before anybody looks for an answer; leave cache out, or the \
                 limit",
            );
        }
        if self.ttl.is_zero() || self.ttl > Self::TTL_MAX {
            problems.add(
                "/cache/ttl",
                "an answer counts for more than nothing and at most a day; write 1ms to 24h",
            );
        }
    }
}

//! Circuit breakers: calls stop being sent to a target that fails, and a few calls probe it before the others go on.
//!
//! A breaker belongs to a tool and a target, over the whole fleet. `decide` has its states and how it moves between them, as the
//! ledger decides it; `evidence` is what an attempt says about its target; `known` is what a process knows of all breakers, and
//! what that means for one call.

mod decide;
mod evidence;
mod known;

use std::{fmt, str::FromStr};

pub use self::{
    decide::{
        ALONE_MS, Breaker, BreakerState, BreakerTerms, Counted, PermitAnswer, PermitVerdict,
        ROUND_GRACE_MS, ReportVerdict,
    },
    evidence::TargetHealth,
    known::{Breakers, ForcedBreaker, KnownBreaker, Passage, known_soon, passage},
};
use crate::{ids::InvalidName, wire::message::Message};

/// One breaker: the row of a tool and a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BreakerId(pub i64);

impl fmt::Display for BreakerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for BreakerId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let id = text.parse().ok().filter(|_| digits);
        id.map(Self).ok_or(InvalidName {
            what: "breaker id",
            rule: Message::fixed("a whole number", "是一个整数"),
        })
    }
}

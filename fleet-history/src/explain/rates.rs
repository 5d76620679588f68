//! Why a call of a tool with a rate limit does not start yet.

use fleet::manifest::format_duration;

use super::{
    explanation::{Explanation, because},
    facts::{Facts, RateFacts},
};
use crate::instant::instant;

pub(super) const REASON: &str = "rate_limited";

/// It waits in its tool's line for a start time.
pub(super) fn held(facts: &Facts, rate: &RateFacts, behind: &str) -> Explanation {
    let told = in_words(facts, rate);
    because(
        REASON,
        format!(
            "{told}; {}, and {behind}{}",
            next_start(rate),
            beside_breaker(facts)
        ),
        next(rate),
    )
}

/// It has its start time.
pub(super) fn on_its_way(facts: &Facts, rate: &RateFacts, until: &str) -> Explanation {
    let told = in_words(facts, rate);
    because(REASON, format!("{told}; it starts at {until}"), "wait")
}

/// The addition where something else keeps it from running, and this would, too.
pub(super) fn beside(facts: &Facts) -> String {
    facts.rate.as_ref().map_or_else(String::new, |rate| {
        let told = in_words(facts, rate);
        format!("; besides, {told} ({})", next_start(rate))
    })
}

/// The addition where the call would wait for a breaker next.
pub(super) fn beside_breaker(facts: &Facts) -> String {
    let tool = &facts.tool;
    match facts.behind_breaker.as_deref() {
        Some("forced open") => format!(
            "; besides, an operator has forced the breaker of its tool {tool} open, so nothing is sent then (toolfleet control list)"
        ),
        Some("open") => {
            format!("; besides, the breaker of its tool {tool} is open: what it depends on fails")
        }
        _ => String::new(),
    }
}

/// How many may start, and who shares that.
pub(super) fn in_words(facts: &Facts, rate: &RateFacts) -> String {
    let (tool, name) = (&facts.tool, &rate.name);
    let (Some(calls), Some(per_ms)) = (rate.calls, rate.per_ms) else {
        return format!(
            "its tool {tool} shares the limit {name}, and nobody has said how many may start"
        );
    };
    let millis = std::time::Duration::from_millis(per_ms.unsigned_abs());
    let often = format!("{calls} in {}", format_duration(millis));
    match rate.shared_by.as_str() {
        "share" => format!("its tool {tool} shares the limit {name} of {often}"),
        "tenant" => {
            let tenant = &facts.tenant;
            format!("its tool {tool} starts at most {often} for each tenant, and so for {tenant}")
        }
        "argument" => {
            let (tenant, pointer) = (&facts.tenant, rate.pointer.as_deref().unwrap_or_default());
            format!(
                "its tool {tool} starts at most {often} for each value of {pointer} of each tenant, and so for this one of {tenant}"
            )
        }
        _tool => format!("its tool {tool} starts at most {often} over the whole fleet"),
    }
}

/// When the next one may start.
fn next_start(rate: &RateFacts) -> String {
    match (rate.closed_until, rate.next_start_at) {
        _ if rate.calls.is_none() => "until then none does".to_owned(),
        (Some(until), _) => {
            let until = instant(until);
            format!("its remote has asked to be left alone until {until}")
        }
        (None, Some(at)) => format!("the next start is free at {}", instant(at)),
        (None, None) => "a start is free now".to_owned(),
    }
}

pub(super) fn next(rate: &RateFacts) -> String {
    let name = &rate.name;
    if rate.calls.is_none() {
        return format!(
            "say how many: toolfleet control limit {name} 100/1s --note WHY, with what the remote bears"
        );
    }
    format!(
        "wait for its turn; toolfleet.limits has the bucket {name}, and toolfleet control limit {name} CALLS/TIME --note WHY changes how many start \
         (docs/rate-limits.md)"
    )
}

#[cfg(test)]
mod tests;

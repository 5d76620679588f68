//! Why a call waits that follows an equal one.

use super::{
    explanation::{Explanation, because},
    facts::Facts,
};

/// It waits for the answer of an equal call, or for a dispatcher to notice that that one is over.
pub(super) fn waits(facts: &Facts) -> Explanation {
    let Some(leader) = &facts.leader else {
        return because(
            "held",
            "it waited for the answer of an equal call, which is over, and goes back to its line",
            "wait a moment; if it stays so, no dispatcher runs (toolfleet doctor)",
        );
    };
    let (call, state) = (leader.call_id, &leader.state);
    because(
        "follows",
        format!(
            "the equal call {call} fetches the answer for it, and is {state}: its tool {} has a cache, so equal calls of one tenant are one \
             run (docs/cache.md)",
            facts.tool
        ),
        format!(
            "toolfleet calls explain {call} says what that one waits for; if it fails, the first of those that follow it runs"
        ),
    )
}

//! Why a call waits that follows an equal one.

use super::{
    explanation::{Explanation, because},
    facts::{Facts, UncachedFacts},
};

/// It waits for the answer of an equal call, or for a dispatcher to notice that it is not to get one: that call is over, what it
/// fetches was purged, or an operator has switched the cache off or lets it observe.
pub(super) fn waits(facts: &Facts) -> Explanation {
    let goes_back = |why: String| {
        because(
            "held",
            why,
            "wait a moment; if it stays so, no dispatcher runs (toolfleet doctor)",
        )
    };
    let tool = &facts.tool;
    let Some(leader) = &facts.leader else {
        return goes_back(
            "it waited for the answer of an equal call, which is over, and goes back to its line"
                .to_owned(),
        );
    };
    let (call, state) = (leader.call_id, &leader.state);
    if let Some(UncachedFacts {
        mode,
        control_id,
        actor,
        note,
    }) = &facts.uncached
    {
        let mode = mode.as_str();
        return goes_back(format!(
            "it followed the equal call {call}, and {actor} has set the cache of its tool {tool} to {mode} (control {control_id}: {note}): \
             it goes back to its line, and asks the tool itself"
        ));
    }
    if !leader.fetches {
        return goes_back(format!(
            "it followed the equal call {call}, which fetches no answer for it any more, for the answers of its tool {tool} were \
             purged: it goes back to its line, and one of those that followed asks anew"
        ));
    }
    because(
        "follows",
        format!(
            "the equal call {call} fetches the answer for it, and is {state}: its tool {tool} has a cache, so equal calls of one tenant are one \
             run (docs/cache.md)"
        ),
        format!(
            "toolfleet calls explain {call} says what that one waits for; if it fails, the first of those that follow it runs"
        ),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{found, merge};

    #[test]
    fn a_call_that_follows_another_one_says_whether_it_gets_its_answer() {
        let held = |change: Value| {
            let mut facts = json!({"held": true, "line": "after/01936c2e-0000-7000-8000-00000000000a", "held_why": "follows", "workers": [],
                "leader": {"call_id": "01936c2e-0000-7000-8000-00000000000a", "state": "running", "fetches": true}});
            merge(&mut facts, &change);
            found(&facts)
        };
        let follows = held(json!({}));
        assert_eq!(follows.reason, "follows");
        assert!(
            follows
                .because
                .contains("fetches the answer for it, and is running"),
            "{}",
            follows.because
        );
        for (change, because) in [
            (json!({"leader": null}), "which is over, and goes back"),
            (
                json!({"leader": {"fetches": false}}),
                "for the answers of its tool charge were purged: it goes back",
            ),
            (
                json!({"uncached": {"mode": "off", "control_id": 7, "actor": "ada", "note": "are they right?"}}),
                "and ada has set the cache of its tool charge to off (control 7: are they right?): it goes back",
            ),
        ] {
            let found = held(change);
            assert_eq!(found.reason, "held");
            assert!(found.because.contains(because), "{}", found.because);
        }
    }
}

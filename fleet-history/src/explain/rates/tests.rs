//! A call of a tool with a rate limit, in the words for an operator.

use serde_json::{Value, json};

use super::super::tests::{found, merge};

#[test]
fn a_call_that_waits_for_its_start_says_how_many_may_start_and_when() {
    let rate = |change: Value| {
        let mut rate = json!({"name": "charge", "shared_by": "tool", "calls": 50, "per_ms": 1_000, "burst": 1,
            "next_start_at": "2026-11-20T12:00:11Z", "closed_until": null});
        merge(&mut rate, &change);
        rate
    };
    let held = |rate: Value| {
        found(
            &json!({"held": true, "line": "tool/charge", "held_why": "limit", "ahead": 12, "others": 0, "rate": rate}),
        )
    };
    for (change, because) in [
        (
            json!({}),
            "its tool charge starts at most 50 in 1s over the whole fleet; the next start is free at 2026-11-20T12:00:11.000Z, and \
             12 calls of its tenant are before it in the line tool/charge",
        ),
        (
            json!({"shared_by": "tenant", "next_start_at": null}),
            "its tool charge starts at most 50 in 1s for each tenant, and so for default; a start is free now, and \
             12 calls of its tenant are before it in the line tool/charge",
        ),
        (
            json!({"shared_by": "argument", "pointer": "/account/id"}),
            "its tool charge starts at most 50 in 1s for each value of /account/id of each tenant, and so for this one of default; \
             the next start is free at 2026-11-20T12:00:11.000Z, and 12 calls of its tenant are before it in the line tool/charge",
        ),
        (
            json!({"shared_by": "share", "name": "bank", "closed_until": "2026-11-20T12:00:15Z"}),
            "its tool charge shares the limit bank of 50 in 1s; its remote has asked to be left alone until \
             2026-11-20T12:00:15.000Z, and 12 calls of its tenant are before it in the line tool/charge",
        ),
        (
            json!({"shared_by": "share", "name": "bank", "calls": null, "per_ms": null, "next_start_at": null}),
            "its tool charge shares the limit bank, and nobody has said how many may start; until then none does, and \
             12 calls of its tenant are before it in the line tool/charge",
        ),
    ] {
        let told = held(rate(change));
        assert_eq!(
            (told.reason, told.because.as_str()),
            ("rate_limited", because)
        );
    }
    for (breaker, besides) in [
        (
            "forced open",
            "; besides, an operator has forced the breaker of its tool charge open, so nothing is sent then (toolfleet control list)",
        ),
        (
            "open",
            "; besides, the breaker of its tool charge is open: what it depends on fails",
        ),
        ("closed", ""),
        ("forced closed", ""),
    ] {
        let told = found(
            &json!({"held": true, "line": "tool/charge", "held_why": "limit", "ahead": 12, "others": 0,
                "rate": rate(json!({})), "behind_breaker": breaker}),
        );
        let ends = format!("in the line tool/charge{besides}");
        assert!(told.because.ends_with(&ends), "{breaker}: {told:?}");
    }
    let unset = held(rate(json!({"name": "bank", "calls": null})));
    assert!(
        unset
            .next
            .starts_with("say how many: toolfleet control limit bank "),
        "{unset:?}"
    );
    let starts = found(
        &json!({"not_before": "2026-11-20T12:00:40Z", "rate": rate(json!({})), "last": {"reason": "accepted"}}),
    );
    assert_eq!(
        (starts.reason, starts.because.as_str()),
        (
            "rate_limited",
            "its tool charge starts at most 50 in 1s over the whole fleet; it starts at 2026-11-20T12:00:40.000Z"
        )
    );
    // A pause, or places that are taken, come first, and the limit is named all the same.
    let places = found(
        &json!({"held": true, "line": "tool/charge", "held_why": "limit", "rate": rate(json!({})),
        "tool_limit": {"at_a_time": 2, "running": 2}}),
    );
    let paused = found(
        &json!({"held": true, "line": "pause/7", "held_why": "pause", "rate": rate(json!({})),
        "pause": {"control_id": 7, "actor": "ada", "note": "the bank migrates", "set_at": "2026-11-20T11:00:00Z",
                  "expires_at": null}}),
    );
    for (told, reason) in [(places, "tool_limit"), (paused, "paused")] {
        assert_eq!(told.reason, reason);
        let beside = "; besides, its tool charge starts at most 50 in 1s over the whole fleet \
                      (the next start is free at 2026-11-20T12:00:11.000Z)";
        assert!(told.because.ends_with(beside), "{told:?}");
    }
    // With a place free, the start is what it waits for.
    let free = found(
        &json!({"held": true, "line": "tool/charge", "held_why": "limit", "rate": rate(json!({})),
        "tool_limit": {"at_a_time": 2, "running": 1}}),
    );
    assert_eq!(free.reason, "rate_limited");
}

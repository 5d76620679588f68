//! Every reason, and their order.

use fleet::store::server_check::Finding;
use serde_json::{Value, json};

use super::*;

/// A call that was accepted ten seconds ago and has a free worker, with these changes.
fn facts(change: &Value) -> Facts {
    let mut facts = json!({
        "call_id": "01936c2e-0000-7000-8000-00000000000c", "tenant": "default", "state": "queued", "tool": "charge", "tool_version": 2, "queue": "payments", "held": false,
        "cancel_requested": false, "attempts": 0, "error_code": null,
        "now": "2026-11-20T12:00:10Z", "accepted_at": "2026-11-20T12:00:00Z",
        "not_before": "2026-11-20T12:00:00Z", "deadline_at": "2026-11-20T12:05:00Z", "tool_known": true,
        "workers": [worker("worker-1", 1.0)], "queue_running": 3, "attempt": null, "doubt": null,
        "last": {"at": "2026-11-20T12:00:00Z", "from_state": null, "actor": "dispatcher", "reason": "accepted",
                 "note": null, "by_time_only": false},
    });
    merge(&mut facts, change);
    serde_json::from_value(facts).unwrap()
}

pub(super) fn found(change: &Value) -> Explanation {
    explain(&facts(change))
}

/// A worker with four slots for the queue, three of which are taken.
fn worker(name: &str, silent_s: f64) -> Value {
    json!({"name": name, "slots": 4, "running": 3, "silent_s": silent_s})
}

pub(super) fn merge(into: &mut Value, change: &Value) {
    for (name, value) in change.as_object().unwrap() {
        if value.is_object() && into[name].is_object() {
            merge(&mut into[name], value);
        } else {
            into[name] = value.clone();
        }
    }
}

pub(super) fn attempt(change: &Value) -> Value {
    let mut attempt = json!({"number": 1, "worker": "worker-1", "started_at": "2026-11-20T12:00:01Z",
        "until": "2026-11-20T12:00:31Z", "worker_state": "live"});
    merge(&mut attempt, change);
    json!({"state": "running", "attempts": 1, "attempt": attempt})
}

pub(super) fn doubt(change: &Value) -> Value {
    let mut doubt = json!({"since": "2026-11-20T12:00:05Z", "why": "timeout", "worker_fenced": true,
        "quarantined": false, "attempt_until": "2026-11-20T12:00:06Z", "probes": 0, "probe_state": null,
        "next_probe_at": "2026-11-20T12:00:06Z"});
    merge(&mut doubt, change);
    json!({"state": "in_doubt", "attempts": 1, "doubt": doubt})
}

#[test]
fn a_call_that_was_put_back_is_told_what_is_lacking_where_and_what_to_do() {
    let put_back = |lack: &str, secret: Option<&str>| {
        found(
            &json!({"not_before": "2026-11-20T12:00:40Z", "attempts": 1, "last": {"reason": "timeout"},
            "obstacle": {"lack": lack, "secret": secret, "why": "it is not here", "why_zh": "x", "worker": "worker-2"}}),
        )
    };
    let secret = put_back("secret", Some("TOKEN"));
    assert_eq!(secret.reason, "missing_secret");
    assert_eq!(
        secret.because,
        "worker worker-2 could not run it and put it back until 2026-11-20T12:00:40.000Z: it is not here"
    );
    assert!(
        secret.next.contains("a readable file TOKEN")
            && secret.next.contains("TOOLFLEET_SECRET_TOKEN"),
        "{}",
        secret.next
    );
    // Its time has just come: until a worker takes it, what was lacking is the reason still.
    let just_due = found(
        &json!({"not_before": "2026-11-20T12:00:09Z", "last": {"reason": "cannot_run"},
        "obstacle": {"lack": "ability", "secret": null, "why": "it is not here", "why_zh": "x", "worker": "worker-2"}}),
    );
    assert_eq!(just_due.reason, "postponed", "{just_due:?}");
    assert!(
        just_due
            .because
            .contains("put it back until 2026-11-20T12:00:09.000Z")
    );
    assert_eq!(put_back("program_slot", None).reason, "no_program_slot");
    assert_eq!(put_back("tool_version", None).reason, "postponed");
    assert_eq!(put_back("ability", None).reason, "postponed");
}

#[test]
fn a_call_that_waits_has_one_reason() {
    let later = "2026-11-20T12:00:40Z";
    let full = |held: bool| {
        let busy = json!({"name": "worker-1", "slots": 4, "running": 4, "silent_s": 1.0});
        json!({"held": held, "workers": [busy], "queue_running": 4})
    };
    let cases = [
        (json!({}), "not_taken"),
        (
            json!({"accepted_at": "2026-11-20T12:00:08Z", "not_before": "2026-11-20T12:00:08Z"}),
            "published",
        ),
        (full(false), "no_free_slot"),
        (json!({"workers": []}), "no_worker"),
        (json!({"not_before": later}), "postponed"),
        (
            json!({"not_before": later, "attempts": 1, "error_code": "timeout", "last": {"reason": "timeout"}}),
            "retry_wait",
        ),
        (full(true), "held"),
        (json!({"held": true}), "held"),
        (json!({"held": true, "workers": []}), "no_worker"),
        (
            json!({"held": true, "workers": [worker("worker-1", 7.0)]}),
            "silent_worker",
        ),
        (
            json!({"workers": [worker("worker-1", 7.0)]}),
            "silent_worker",
        ),
        (
            json!({"held": true, "tool_limit": {"at_a_time": 2, "running": 2}}),
            "tool_limit",
        ),
        (
            json!({"held": true, "line": "slots/default", "held_why": "slots"}),
            "tenant_slots",
        ),
        (
            json!({"tool_limit": {"at_a_time": 2, "running": 2}}),
            "not_taken",
        ),
        (
            json!({"tool_known": false, "workers": []}),
            "unknown_tool_version",
        ),
        (
            json!({"deadline_at": "2026-11-20T12:00:09Z", "tool_known": false, "held": true}),
            "overdue",
        ),
    ];
    for (change, reason) in cases {
        let found = found(&change);
        assert_eq!(found.reason, reason, "{change}: {found:?}");
    }
    let retry = found(
        &json!({"not_before": later, "attempts": 1, "error_code": "timeout", "last": {"reason": "timeout"}}),
    );
    assert_eq!(
        retry.because,
        "attempt 1 ended with timeout; the next one starts at 2026-11-20T12:00:40.000Z"
    );
    let behind = |ahead: i64, others: i64| {
        let mut facts = full(true);
        merge(
            &mut facts,
            &json!({"line": "payments", "ahead": ahead, "others": others}),
        );
        found(&facts).because
    };
    assert_eq!(
        behind(12, 2),
        "more calls wait than the 4 slots of the live worker of its queue payments take: \
         12 calls of its tenant are before it in the line payments, which 2 other tenants share in turn"
    );
    assert!(behind(0, 0).ends_with("no call of its tenant is before it in the line payments"));
    assert!(behind(10_000, 1).ends_with(
        "10000 or more calls of its tenant are before it in the line payments, which 1 other tenant shares in turn"
    ));
    let alone = found(&json!({"workers": []}));
    assert_eq!(alone.next, "start one: toolfleet worker --queues payments");
    let waits = found(&json!({"held": true, "line": "payments"}));
    assert_eq!(
        waits.because,
        "it waits in the ledger for a dispatcher to hand it over, and the live worker of its queue payments has 4 slots \
         for it, 1 of them free: no call of its tenant is before it in the line payments"
    );
}

#[test]
fn a_call_that_needs_nats_says_when_nats_does_not_answer() {
    let found = |change: &Value| {
        let mut facts = facts(change);
        assert!(facts.waits_for_nats());
        facts.nats_is_away(Finding {
            what: "nats-server at 127.0.0.1:4222 (NATS_URL) is away: connection refused".to_owned(),
            advice: "start it, or correct NATS_URL".to_owned(),
        });
        explain(&facts)
    };
    let just = json!({"accepted_at": "2026-11-20T12:00:08Z", "not_before": "2026-11-20T12:00:08Z"});
    let limit =
        |running: i64| json!({"held": true, "tool_limit": {"at_a_time": 2, "running": running}});
    for change in [
        json!({}),
        just,
        json!({"held": true}),
        json!({"held": true, "line": "slots/default", "held_why": "slots"}),
        limit(1),
    ] {
        let found = found(&change);
        assert_eq!(found.reason, "nats_away", "{change}: {found:?}");
        assert_eq!(
            found.because,
            "a worker gets it through NATS, and nats-server at 127.0.0.1:4222 (NATS_URL) is away: connection refused"
        );
        let next = "start it, or correct NATS_URL; the call goes on by itself within seconds of NATS's return, until its deadline at \
            2026-11-20T12:05:00.000Z.";
        assert!(found.next.starts_with(next), "{found:?}");
    }
    // What keeps it from running first is told first.
    let busy = json!({"name": "worker-1", "slots": 4, "running": 4, "silent_s": 1.0});
    for (change, reason) in [
        (json!({"workers": []}), "no_worker"),
        (
            json!({"workers": [busy], "queue_running": 4}),
            "no_free_slot",
        ),
        (json!({"not_before": "2026-11-20T12:00:40Z"}), "postponed"),
        (limit(2), "tool_limit"),
    ] {
        assert_eq!(found(&change).reason, reason, "{change}");
    }
    assert!(!facts(&json!({"deadline_at": "2026-11-20T12:00:09Z"})).waits_for_nats());
    assert!(!facts(&attempt(&json!({}))).waits_for_nats());
}

#[test]
fn a_call_that_its_tenants_share_holds_says_whose_calls_are_under_way_and_what_to_change() {
    let held = |workers: Value| {
        found(
            &json!({"held": true, "line": "slots/payments", "held_why": "slots", "tenant": "acme", "ahead": 2, "others": 1,
            "workers": [workers], "queue_running": 4,
            "under_way": [{"tenant": "acme", "calls": 3}, {"tenant": "beta", "calls": 40}, {"tenant": "gamma", "calls": 2}]}),
        )
    };
    let room = held(worker("worker-1", 1.0));
    assert_eq!(
        room.because,
        "its tenant acme has 3 calls under way in its queue payments, beside 40 of beta, 2 of gamma, and the live worker of its \
         queue payments has 4 slots for it, 1 of them free; 2 calls of its tenant are before it in the line slots/payments, which \
         1 other tenant shares in turn"
    );
    assert_eq!(
        room.next,
        "wait until one of its tenant's calls ends (toolfleet calls list --tenant acme --state running), or let a tenant have \
         more under way: DISPATCHER_TENANT_RUNNING of every dispatcher says how many, and never more than three quarters of \
         the slots (docs/fairness.md)"
    );
    let full = held(json!({"name": "worker-1", "slots": 4, "running": 4, "silent_s": 1.0}));
    assert_eq!(
        full.next,
        "wait, or start more workers: toolfleet worker --queues payments. A larger DISPATCHER_TENANT_RUNNING changes nothing \
         while no slot is free (docs/fairness.md)"
    );
}

#[test]
fn a_call_that_a_newer_dispatcher_holds_says_so_and_no_more() {
    let because = |change: Value| {
        let found = found(&change);
        assert_eq!(found.reason, "held");
        found.because
    };
    assert_eq!(
        because(json!({"held": true, "line": "after/7", "workers": []})),
        "it waits in the ledger, in the line after/7, which this program does not know"
    );
    assert_eq!(
        because(
            json!({"held": true, "line": "tool/charge", "held_why": "pace",
                       "tool_limit": {"at_a_time": 2, "running": 2}})
        ),
        "it waits in the ledger, in the line tool/charge, for the reason pace, which this program does not know"
    );
    let known = json!({"held": true, "line": "tool/charge", "held_why": "limit",
                       "tool_limit": {"at_a_time": 2, "running": 2}});
    assert_eq!(found(&known).reason, "tool_limit");
}

#[test]
fn a_paused_call_says_who_paused_it_and_why_and_until_when() {
    let paused = |expires_at: Value| {
        found(
            &json!({"held": true, "line": "pause/7", "held_why": "pause", "workers": [],
            "pause": {"control_id": 7, "actor": "ada", "note": "the bank migrates", "set_at": "2026-11-20T11:00:00Z",
                      "expires_at": expires_at}}),
        )
    };
    let lasts = paused(json!(null));
    assert_eq!(
        (lasts.reason, lasts.because.as_str(), lasts.next.as_str()),
        (
            "paused",
            "it is paused since 2026-11-20T11:00:00.000Z by ada, until somebody ends it (control 7): the bank migrates",
            "ask ada, or end it: toolfleet control resume 7 --note WHY; its deadline goes on"
        )
    );
    let ends = paused(json!("2026-11-20T13:00:00Z"));
    assert!(
        ends.because
            .contains("by ada, until 2026-11-20T13:00:00.000Z (control 7)"),
        "{ends:?}"
    );
    let other = json!({"control_id": 9, "actor": "bob", "note": "month end", "set_at": "2026-11-20T11:30:00Z", "expires_at": null});
    let both = found(
        &json!({"held": true, "line": "pause/7", "held_why": "pause", "workers": [], "other_pauses": [other],
        "pause": {"control_id": 7, "actor": "ada", "note": "the bank migrates", "set_at": "2026-11-20T11:00:00Z",
                  "expires_at": null}}),
    );
    assert!(
        both.because
            .ends_with("(control 7): the bank migrates; then control 9 by bob holds it: month end"),
        "{both:?}"
    );
    let over = found(&json!({"held": true, "line": "pause/7", "held_why": "pause", "workers": []}));
    assert_eq!(over.reason, "held");
    assert!(over.because.contains("a pause that is over"), "{over:?}");
}

#[test]
fn a_worker_that_has_been_silent_for_two_heartbeats_is_named_and_not_counted() {
    let of = |workers: Value| found(&json!({"workers": workers, "queue_running": 4}));
    let alone = of(json!([worker("a", 6.4)]));
    assert_eq!(
        (alone.reason, alone.because.as_str(), alone.next.as_str()),
        (
            "silent_worker",
            "no worker that lives pulls from its queue payments: worker a has been silent for 6 s and may be dead",
            "see whether it runs (after 15 s of silence a dispatcher says that it is dead), or start another: \
             toolfleet worker --queues payments"
        )
    );
    // Its free slot does not count, and what it runs takes no slot of the others.
    let busy = json!({"name": "b", "slots": 4, "running": 4, "silent_s": 1.0});
    let full = of(json!([busy, worker("a", 9.0)]));
    assert_eq!(
        (full.reason, full.because.as_str()),
        (
            "no_free_slot",
            "the live worker of its queue payments has 4 slots for it, none of them free; worker a has been silent for 9 s \
             and may be dead: not counted"
        )
    );
    let free = of(json!([worker("b", 5.9), worker("a", 9.0)]));
    assert_eq!(
        (free.reason, free.because.as_str()),
        (
            "not_taken",
            "the live worker of its queue payments has 4 slots for it, 1 of them free, and no worker has taken it; worker a has been \
             silent for 9 s and may be dead: not counted"
        )
    );
    let many: Vec<Value> = (0..5).map(|n| worker(&n.to_string(), 8.0)).collect();
    let many = of(json!(many)).because;
    assert!(
        many.contains("worker 2 has been silent for 8 s, and 2 more are silent"),
        "{many}"
    );
    let runs = found(&attempt(&json!({"worker_silent_s": 8.2})));
    assert_eq!(
        (runs.reason, runs.because.as_str()),
        (
            "silent_worker",
            "attempt 1 began on worker worker-1 at 2026-11-20T12:00:01.000Z, and that worker has been silent for 8 s: it may be dead"
        )
    );
    let beats = found(&attempt(&json!({"worker_silent_s": 5.0})));
    assert_eq!(beats.reason, "running");
}

#[test]
fn a_call_that_runs_is_said_to_run_where_and_until_when() {
    let running = found(&attempt(&json!({})));
    assert_eq!(
        (running.reason, running.because.as_str()),
        (
            "running",
            "attempt 1 runs on worker worker-1 since 2026-11-20T12:00:01.000Z, until 2026-11-20T12:00:31.000Z at most"
        )
    );
    let mut wanted = attempt(&json!({}));
    wanted["cancel_requested"] = json!(true);
    assert_eq!(found(&wanted).reason, "cancel_requested");
    wanted["attempt"]["worker_state"] = json!("dead");
    assert_eq!(found(&wanted).reason, "worker_lost");
    assert_eq!(
        found(&attempt(&json!({"worker_state": null}))).reason,
        "worker_lost"
    );
    let late = found(&attempt(&json!({"until": "2026-11-20T12:00:09Z"})));
    assert_eq!(late.reason, "overdue_attempt");
}

#[test]
fn a_doubt_says_what_can_be_known_and_what_to_do() {
    let cases = [
        (json!({}), "in_doubt"),
        (
            json!({"probes": 2, "probe_state": "inconclusive"}),
            "in_doubt_probing",
        ),
        (
            json!({"worker_fenced": false, "probes": 2}),
            "in_doubt_not_fenced",
        ),
        (
            json!({"worker_fenced": false, "quarantined": true}),
            "in_doubt_quarantined",
        ),
        (
            json!({"attempt_until": "2026-11-20T12:00:11Z", "quarantined": true}),
            "in_doubt_early",
        ),
        (json!({"attempt_until": null}), "in_doubt"),
    ];
    for (change, reason) in cases {
        let found = found(&doubt(&change));
        assert_eq!(found.reason, reason, "{change}: {found:?}");
        let settle = "toolfleet calls settle 01936c2e-0000-7000-8000-00000000000c --outcome applied --note \"HOW YOU KNOW\"";
        assert_eq!(found.commands[0], settle, "{found:?}");
        let waits = matches!(reason, "in_doubt_early" | "in_doubt_not_fenced");
        let at_once = found
            .next
            .contains("that it was applied can be recorded at once");
        assert_eq!(at_once, waits, "{found:?}");
    }
    let mut of_acme = doubt(&json!({}));
    of_acme["tenant"] = json!("acme");
    let settle = "toolfleet calls settle 01936c2e-0000-7000-8000-00000000000c --tenant acme --outcome not_applied --note \"HOW YOU KNOW\"";
    assert_eq!(found(&of_acme).commands[1], settle);
    let probed = found(&doubt(&json!({"probes": 2, "probe_state": "inconclusive"})));
    assert!(
        probed
            .because
            .ends_with("timeout; its probe has asked 2 times: inconclusive"),
        "{probed:?}"
    );
    assert!(
        probed.next.starts_with(
            "its probe is due since 2026-11-20T12:00:06.000Z, and a dispatcher asks it"
        ),
        "{probed:?}"
    );
    let later = json!({"probes": 2, "next_probe_at": "2026-11-20T12:00:40Z"});
    let later = found(&doubt(&later)).next;
    assert!(
        later.starts_with("its probe asks again at 2026-11-20T12:00:40.000Z; or look"),
        "{later}"
    );
}

#[test]
fn a_call_behind_an_open_breaker_says_since_when_until_when_and_what_was_counted() {
    let held = |breaker: Value| {
        found(
            &json!({"held": true, "line": "breaker/3", "held_why": "breaker", "workers": [], "breaker": breaker}),
        )
    };
    let breaker = |state: &str, until: &str, forced: Value| {
        json!({
            "target": "https://bank.example.com", "state": state, "forced": forced,
            "opened_at": "2026-11-20T11:00:00Z", "open_until": until,
            "why": {"was": "closed", "calls": 20, "failures": 12, "slow": 0, "workers": 2},
        })
    };
    let open = held(breaker("open", "2126-11-20T11:00:05Z", json!(null)));
    assert_eq!(open.reason, "circuit_open");
    for part in [
        "its target https://bank.example.com fails",
        "is open since 2026-11-20T11:00:00.000Z: nothing is sent to it before 2126-11-20T11:00:05.000Z",
        "it opened because 12 of 20 attempts failed",
    ] {
        assert!(open.because.contains(part), "{part}: {}", open.because);
    }
    let due = held(breaker("open", "2026-11-20T11:00:05Z", json!(null)));
    assert!(due.because.contains("the next call may try it"), "{due:?}");
    let tried = held(breaker("half_open", "2026-11-20T11:00:05Z", json!(null)));
    assert!(
        tried.because.contains("another call is trying it"),
        "{tried:?}"
    );
    let forced = held(breaker("closed", "2026-11-20T11:00:05Z", json!("open")));
    assert!(
        forced.because.contains("an operator has forced"),
        "{forced:?}"
    );
    for over in [
        json!(null),
        breaker("closed", "2026-11-20T11:00:05Z", json!(null)),
        breaker("open", "2126-11-20T11:00:05Z", json!("closed")),
    ] {
        assert_eq!(held(over).reason, "held");
    }
}

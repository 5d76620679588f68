//! Every way in which a call ends, in the words for an operator: one snapshot.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::{explain, tests::merge};

/// A call of one attempt that ended a second after its begin, with these changes.
fn told(change: &Value) -> String {
    let mut facts = json!({
        "call_id": "01936c2e-0000-7000-8000-00000000000c", "tenant": "default", "state": "failed", "tool": "charge", "tool_version": 2, "queue": "payments", "held": false,
        "cancel_requested": false, "attempts": 1, "error_code": null,
        "now": "2026-11-20T12:01:00Z", "accepted_at": "2026-11-20T12:00:00Z",
        "not_before": null, "deadline_at": "2026-11-20T12:00:05Z", "tool_known": true,
        "workers": [], "queue_running": 0, "attempt": null, "doubt": null,
        "last": {"at": "2026-11-20T12:00:02Z", "from_state": "running", "actor": "worker 7", "reason": "applied",
                 "note": null, "by_time_only": false},
        "ended": {
            "message": null, "lost": 0, "losses_allowed": 5, "workers_meanwhile": 1, "lacked": null, "quarantined": false,
            "doubt": null, "taken_back": null, "attempt": {"number": 1, "worker": "worker-1", "code": null}},
    });
    merge(&mut facts, change);
    let found = explain(&serde_json::from_value(facts).unwrap());
    format!("{}\n  {}\n  {}\n", found.reason, found.because, found.next)
}

/// The changes that let a call expire at its deadline without an attempt.
fn expired(more: &Value) -> Value {
    let mut change = json!({
        "state": "expired", "attempts": 0, "error_code": "deadline_exceeded",
        "last": {"at": "2026-11-20T12:00:05Z", "from_state": "queued", "actor": "sweep", "reason": "deadline_exceeded"},
        "ended": {"attempt": null, "message": "The call's deadline passed before it could run."},
    });
    merge(&mut change, more);
    change
}

/// The changes that let a read expire at this time for want of an answer.
fn silent(reason: &str, at: &str) -> Value {
    json!({"state": "expired", "error_code": "deadline_exceeded",
        "last": {"at": at, "from_state": "awaiting_client", "actor": "sweep", "reason": reason}})
}

fn settled(more: &Value) -> Value {
    let mut change = json!({
        "error_code": "not_applied",
        "last": {"from_state": "in_doubt", "actor": "ann", "reason": "settled_not_applied", "note": "not on the account"},
        "ended": {"doubt": {"at": "2026-11-20T12:00:01Z", "reason": "worker_lost"}},
    });
    merge(&mut change, more);
    change
}

/// The changes that let a call expire that was held to its end.
fn held(held: &Value) -> Value {
    expired(&json!({"ended": {"held": held}}))
}

fn limited(more: &Value) -> Value {
    let mut change = held(&json!({"line": "tool/charge", "pause": null, "forced": null}));
    merge(&mut change, more);
    change
}

fn rate(calls: Option<i64>) -> Value {
    json!({"name": "bank", "shared_by": "share", "calls": calls, "per_ms": calls.map(|_| 1000), "next_start_at": null,
           "closed_until": null})
}

/// A mark of a bulk retry whose new call has this state.
fn mark(new_state: Option<&str>) -> Value {
    json!({"call_id": "01936c2e-0000-7000-8000-00000000000c", "what": "retried", "at": "2026-11-20T12:00:40Z", "actor": "ann",
           "bulk_name": "monday", "new_call_id": "01936c2e-0000-7000-8000-00000000000d", "new_state": new_state})
}

#[test]
fn what_ended_says_why_and_what_can_be_done() {
    let lacked = |lack: &str, secret: Option<&str>, why: &str| {
        expired(
            &json!({"ended": {"lacked": {"lack": lack, "secret": secret, "why": why, "worker": "worker-2"}}}),
        )
    };
    let cases = [
        ("succeeded", json!({"state": "succeeded"})),
        (
            "answered with a kept answer",
            json!({"state": "succeeded", "last": {"from_state": "queued", "actor": "worker 7", "reason": "answered_from_the_cache",
                "answer_of": "01936c2e-0000-7000-8000-00000000000a"}, "ended": {"attempt": null}}),
        ),
        (
            "succeeded with a flaw",
            json!({"state": "succeeded", "error_code": "output_invalid"}),
        ),
        (
            "failed by its tool",
            json!({"error_code": "tool_error", "ended": {"message": "The account is closed.", "attempt": {"code": "tool_error"}}}),
        ),
        (
            "took longer than its tool allows",
            json!({"error_code": "timeout", "ended": {
                "message": "The tool did not answer in time.",
                "attempt": {"code": "timeout", "timeout_ms": 1500, "until": "2026-11-20T12:00:02Z"}}}),
        ),
        (
            "took longer than its deadline allows",
            json!({"error_code": "timeout", "ended": {
                "message": "The tool did not answer in time.",
                "attempt": {"code": "timeout", "timeout_ms": 4200, "until": "2026-11-20T12:00:04.999Z"}}}),
        ),
        (
            "no time for another attempt",
            json!({"error_code": "deadline_exceeded", "ended": {
                "message": "The call's time ran out.",
                "attempt": {"number": 2, "code": "timeout", "timeout_ms": 1500, "until": "2026-11-20T12:00:02Z"}}}),
        ),
        (
            "no time for another attempt after one that took all that was left",
            json!({"error_code": "deadline_exceeded", "ended": {
                "message": "The call's time ran out.",
                "attempt": {"number": 2, "code": "timeout", "timeout_ms": 4200, "until": "2026-11-20T12:00:04.999Z"}}}),
        ),
        (
            "answered too much",
            json!({"error_code": "output_too_large", "ended": {
                "message": "The answer is too large.", "attempt": {"code": "output_too_large"}}}),
        ),
        (
            "every attempt failed",
            json!({"error_code": "retries_exhausted", "ended": {
                "message": "All 3 attempts failed; the last one: no answer.", "attempt": {"number": 3, "code": "timeout", "timeout_ms": 1000, "until": "2026-11-20T12:00:02Z"}}}),
        ),
        (
            "the retry budget allowed no further attempt",
            json!({"error_code": "unavailable", "ended": {
                "message": "No answer.", "suppressed": true, "attempt": {"code": "unavailable"}}}),
        ),
        (
            "another tool answered",
            json!({"error_code": "unavailable", "ended": {
                "message": "No answer.", "degraded": {"kind": "other", "age_ms": null, "reason": "unavailable", "tool": "get_climate"},
                "attempt": {"code": "unavailable"}}}),
        ),
        (
            "an old answer was given at an open breaker",
            json!({"error_code": "circuit_open", "last": {"from_state": "queued", "reason": "circuit_open"}, "ended": {
                "message": "What the tool depends on fails.", "degraded": {"kind": "stale", "age_ms": 61_234, "reason": "circuit_open"},
                "attempt": null}}),
        ),
        (
            "its constant was given",
            json!({"error_code": "timeout", "ended": {
                "message": "No answer.", "degraded": {"kind": "stub", "age_ms": null, "reason": "timeout"},
                "attempt": {"code": "timeout"}}}),
        ),
        (
            "lost its workers",
            json!({"error_code": "tool_crashed", "last": {"actor": "sweep", "reason": "poison"},
                "ended": {"lost": 6, "attempt": {"number": 6, "code": "tool_crashed"}}}),
        ),
        (
            "refused before an attempt",
            json!({"error_code": "tool_gone", "attempts": 0, "ended": {"attempt": null}}),
        ),
        (
            "failed with a code of a newer release",
            json!({"error_code": "new_code"}),
        ),
        (
            "expired without a worker",
            expired(&json!({"ended": {"workers_meanwhile": 0}})),
        ),
        (
            "expired while workers were busy",
            expired(&json!({"ended": {"workers_meanwhile": 3}})),
        ),
        (
            "waited too long for its first attempt",
            expired(
                &json!({"last": {"at": "2026-11-20T12:00:03Z"}, "ended": {"workers_meanwhile": 0}}),
            ),
        ),
        (
            "expired after an attempt",
            expired(
                &json!({"attempts": 2, "ended": {"attempt": {"number": 2, "worker": "worker-1", "code": "timeout"}}}),
            ),
        ),
        (
            "expired after an attempt that took all that was left",
            expired(
                &json!({"attempts": 2, "ended": {"attempt": {"number": 2, "worker": "worker-1", "code": "timeout",
                    "timeout_ms": 4200, "until": "2026-11-20T12:00:04.999Z"}}}),
            ),
        ),
        (
            "expired in a pause",
            held(
                &json!({"line": "pause/7", "pause": {"control_id": 7, "actor": "ada", "note": "the bank migrates"}, "forced": null}),
            ),
        ),
        (
            "expired behind a breaker that was forced open, after an attempt",
            expired(&json!({"attempts": 1, "ended": {
                "attempt": {"number": 1, "worker": "worker-1", "code": "unavailable"},
                "held": {"line": "breaker/3", "pause": null,
                         "forced": {"control_id": 9, "actor": "ada", "note": "the bank asked for it"}}}})),
        ),
        (
            "expired behind a breaker that was open",
            held(&json!({"line": "breaker/3", "pause": null, "forced": null})),
        ),
        (
            "expired for its rate limit",
            limited(&json!({"rate": rate(Some(5))})),
        ),
        (
            "expired for a shared limit that nobody has set",
            limited(&json!({"rate": rate(None)})),
        ),
        (
            "expired for want of a place of its tool",
            limited(&json!({"tool_limit": {"at_a_time": 2, "running": 2}})),
        ),
        (
            "expired in the line of its queue",
            held(&json!({"line": "payments", "pause": null, "forced": null})),
        ),
        (
            "expired in a line of a newer release",
            held(&json!({"line": "moon/3", "pause": null, "forced": null})),
        ),
        (
            "ended at the gate before any attempt",
            json!({"error_code": "circuit_open", "attempts": 0,
                "last": {"from_state": "queued", "worker": "worker-2", "reason": "circuit_open"},
                "ended": {"attempt": null, "message": "Nothing was sent to it."}}),
        ),
        (
            "ended at the gate after an attempt on another worker",
            json!({"error_code": "circuit_open",
                "last": {"from_state": "queued", "worker": "worker-2", "reason": "circuit_open"},
                "ended": {"message": "Nothing was sent to it.", "attempt": {"code": "unavailable"}}}),
        ),
        (
            "expired for want of a secret",
            lacked("secret", Some("TOKEN"), "secret TOKEN is not here"),
        ),
        (
            "expired for want of a version",
            lacked(
                "tool_version",
                None,
                "it does not have version 2 of the tool",
            ),
        ),
        (
            "taken back while it waited",
            json!({"state": "cancelled", "error_code": "cancelled", "attempts": 0,
                "last": {"from_state": "queued", "actor": "caller", "reason": "cancelled", "note": "changed my mind"},
                "ended": {"attempt": null}}),
        ),
        (
            "taken back while it ran",
            json!({"state": "cancelled", "error_code": "cancelled", "last": {"reason": "cancelled"},
                "ended": {"taken_back": {"at": "2026-11-20T12:00:01Z", "actor": "caller", "note": "not wanted"}}}),
        ),
        (
            "taken back before its attempt started anything",
            json!({"error_code": "cancelled", "last": {"reason": "cancelled"},
                "ended": {"taken_back": {"at": "2026-11-20T12:00:01Z", "actor": "caller", "note": null}}}),
        ),
        (
            "its tool answered later than its wait",
            silent("completion_silent", "2026-11-20T12:00:04Z"),
        ),
        (
            "its tool had not answered at its deadline",
            silent("completion_silent", "2026-11-20T12:00:06Z"),
        ),
        (
            "the program of its caller had not answered at its deadline",
            silent("client_silent", "2026-11-20T12:00:06Z"),
        ),
        ("settled as not applied", settled(&json!({}))),
        (
            "cancelled, in doubt and settled",
            settled(
                &json!({"ended": {"doubt": {"reason": "cancelled", "cancelled_by": "eve (_INBOX_operator)"}}}),
            ),
        ),
        (
            "abandoned",
            settled(&json!({"error_code": "in_doubt",
                "last": {"reason": "settled_abandoned", "note": "the bank keeps no list"}})),
        ),
        (
            "abandoned and made again",
            settled(&json!({"error_code": "in_doubt",
                "last": {"reason": "settled_abandoned", "note": "the bank keeps no list"},
                "ended": {"dealt": mark(Some("succeeded"))}})),
        ),
        (
            "failed and made again by many",
            json!({"error_code": "tool_error", "ended": {"dealt": mark(Some("in_doubt"))}}),
        ),
        (
            "made again, and the new call's day is dropped",
            json!({"error_code": "tool_error", "ended": {"dealt": mark(None)}}),
        ),
        (
            "given up",
            json!({"error_code": "tool_error", "ended": {"dealt": {
                "call_id": "01936c2e-0000-7000-8000-00000000000c", "what": "discarded", "at": "2026-11-20T12:00:40Z",
                "actor": "ann", "note": "too late"}}}),
        ),
        (
            "reserved by a retry",
            json!({"error_code": "tool_error", "ended": {"under_way": {"name": "monday", "at": "2026-11-20T12:00:40Z", "state": "under_way"}}}),
        ),
        (
            "reserved long ago",
            json!({"error_code": "tool_error", "ended": {"under_way": {"name": null, "at": "2026-11-20T12:00:40Z", "state": "unsure"}}}),
        ),
        (
            "settled by time only",
            settled(&json!({"last": {"by_time_only": true}})),
        ),
        (
            "quarantined and settled as applied",
            settled(&json!({"state": "succeeded", "error_code": null,
                "last": {"reason": "settled_applied", "note": "it is on the account"},
                "ended": {"quarantined": true, "doubt": {"reason": "quarantine"}}})),
        ),
        (
            "settled by its probe",
            settled(
                &json!({"last": {"actor": "probe 01936c2e-0000-7000-8000-000000000001", "note": "found out by its probe"}}),
            ),
        ),
        (
            "answered too late",
            settled(&json!({"state": "succeeded", "error_code": null,
                "last": {"actor": "worker 7", "reason": "applied", "note": null}})),
        ),
    ];
    let mut all = String::new();
    for (name, change) in cases {
        writeln!(all, "## {name}\n{}", told(&change)).unwrap();
    }
    insta::assert_snapshot!("ended", all);
}

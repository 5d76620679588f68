//! How calls stand as tasks.

use super::{super::revision::Revision, *};
use fleet::call::Language;

const ID: &str = "01980000-0000-7000-8000-000000000000";

/// A call as a task, so long after it was made.
fn told(envelope: &Value, has_probe: bool, after: Duration) -> Value {
    let call: CallId = ID.parse().unwrap();
    let facts = ToolFacts {
        has_probe,
        ..ToolFacts::default()
    };
    let names = QuestionNames::default();
    let telling = TaskTelling {
        names: &names,
        telling: Telling {
            revision: Revision::Modern,
            language: Language::En,
            is_content: false,
            has_probe,
            found_by: None,
            is_earlier: false,
        },
        askable: Askable {
            form: true,
            ..Askable::default()
        },
        facts: Some(&facts),
        principal: None,
        now: call.made_at() + after,
    };
    let text = envelope.to_string();
    let envelope = McpEnvelope::of(text.as_bytes());
    serde_json::to_value(telling.detailed(call, text.as_bytes(), &envelope)).unwrap()
}

fn ended(state: &str, outcome: &str, more: &Value) -> Value {
    let mut envelope = json!({
        "call_id": ID, "tool": "t", "state": state, "outcome": outcome, "effect": "none", "result": null,
        "error": null, "coercions": [], "replayed": false, "timing": {"queued_ms": 400, "run_ms": 600},
    });
    for (name, value) in more.as_object().unwrap() {
        envelope[name] = value.clone();
    }
    envelope
}

#[test]
fn each_state_has_its_status() {
    let error = json!({"error": {"code": "x", "message": "It broke."}});
    let caller = json!({"for": "approval", "by": "caller", "token": "t", "args_hash": "h"});
    let operator = json!({"for": "approval", "by": "operator"});
    let open = |state: &str, awaiting: Option<&Value>| {
        let mut open = json!({"call_id": ID, "tool": "t", "state": state, "replayed": false});
        if let Some(awaiting) = awaiting {
            open["awaiting"] = awaiting.clone();
        }
        open
    };
    for (envelope, status, is_error) in [
        (open("queued", None), "working", None),
        (open("running", None), "working", None),
        (
            open("awaiting_client", Some(&caller)),
            "input_required",
            None,
        ),
        (open("awaiting_client", Some(&operator)), "working", None),
        (
            open("awaiting_client", Some(&json!({"for": "completion"}))),
            "working",
            None,
        ),
        (
            ended("succeeded", "success", &json!({"result": 1})),
            "completed",
            Some(false),
        ),
        (
            ended(
                "failed",
                "fallback",
                &json!({"result": 1, "degraded": {"kind": "stub"}}),
            ),
            "completed",
            Some(false),
        ),
        (
            ended("failed", "business_error", &error),
            "completed",
            Some(true),
        ),
        (
            ended("failed", "system_error", &error),
            "completed",
            Some(true),
        ),
        (
            ended("expired", "system_error", &error),
            "completed",
            Some(true),
        ),
        (
            ended("cancelled", "system_error", &error),
            "cancelled",
            None,
        ),
        (
            ended("in_doubt", "unknown", &error),
            "completed",
            Some(true),
        ),
        (ended("failed", "unknown", &error), "completed", Some(true)),
    ] {
        let task = told(&envelope, false, Duration::from_secs(2));
        assert_eq!(task["status"], status, "{task}");
        let said = task["result"].get("isError").and_then(Value::as_bool);
        assert_eq!(said, is_error, "{task}");
        assert_eq!(task["resultType"], "complete");
        assert_eq!(
            task.get("inputRequests").is_some(),
            status == "input_required"
        );
        let is_over = ["completed", "cancelled"].contains(&status);
        assert_eq!(task.get("pollIntervalMs").is_none(), is_over, "{task}");
        assert_eq!(task["_meta"]["io.toolfleet/call"]["id"], ID);
        for none in ["requestState", "ttl", "pollInterval", "task", "error"] {
            assert!(task.get(none).is_none(), "{task}");
        }
    }
}

#[test]
fn a_doubt_is_left_to_a_probe_for_a_while() {
    let doubt = ended(
        "in_doubt",
        "unknown",
        &json!({"error": {"code": "in_doubt", "message": "m"}}),
    );
    let at = |has_probe, ms| {
        let task = told(&doubt, has_probe, Duration::from_millis(ms));
        task["status"].as_str().unwrap().to_owned()
    };
    // It is in doubt since a second after it was made.
    assert_eq!(at(true, 1_000), "working");
    assert_eq!(at(true, 30_999), "working");
    assert_eq!(at(true, 31_000), "completed");
    assert_eq!(at(false, 1_000), "completed");
    let settled = ended(
        "succeeded",
        "success",
        &json!({"result": 1, "settled_by": "probe"}),
    );
    assert_eq!(
        told(&settled, true, Duration::from_secs(5))["status"],
        "completed"
    );
}

#[test]
fn the_times_of_a_task_are_those_of_its_call() {
    let task = told(
        &ended("succeeded", "success", &json!({"result": 1})),
        false,
        YOUNG,
    );
    let made: CallId = ID.parse().unwrap();
    assert_eq!(task["createdAt"], written(made.made_at()));
    assert_eq!(
        task["lastUpdatedAt"],
        written(made.made_at() + Duration::from_secs(1))
    );
    assert_eq!(task["ttlMs"], millis(ToolFacts::KEPT));
    let open = json!({"call_id": ID, "tool": "t", "state": "running", "replayed": false});
    assert_eq!(told(&open, false, Duration::ZERO)["pollIntervalMs"], 1_000);
    assert_eq!(told(&open, false, YOUNG)["pollIntervalMs"], 5_000);
}

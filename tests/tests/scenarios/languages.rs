//! Messages in the language that a caller asks for, from the door to what is stored.

use async_nats::HeaderMap;
use fleet_client::Question;
use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec},
    invariants,
    wait::until,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

const LANGUAGE: &str = "Toolfleet-Language";

fn message(envelope: &Value) -> &str {
    envelope["error"]["message"].as_str().unwrap_or_default()
}

fn is_chinese(text: &str) -> bool {
    text.ends_with('。')
}

/// What an endpoint other than `call` answers to a caller who asks for Chinese.
async fn ask_in_chinese(fleet: &Fleet, endpoint: &str, body: &str) -> (Value, HeaderMap) {
    let mut headers = HeaderMap::new();
    headers.insert(LANGUAGE, "zh");
    let subject = format!("toolfleet.v1.default.{endpoint}");
    let question = Question {
        headers,
        ..Question::new(subject, body.to_owned())
    };
    let answer = fleet.caller.ask(question).await.unwrap();
    let told = answer.headers().cloned().unwrap_or_default();
    (answer.read().unwrap(), told)
}

#[tokio::test]
async fn a_refusal_heeds_the_language_whatever_else_is_wrong() {
    let witness = Witness::start().await;
    let chinese = witness.tool("pay", "once") + "language: zh\n";
    let tools = [witness.tool("charge", "once"), chinese];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let refused = async |tool: &str, lines: &[(&'static str, &str)]| -> Answer {
        let submission = fleet.submit(tool, &json!({"what": "a"}));
        let headed = lines
            .iter()
            .fold(submission, |call, (name, value)| call.header(name, value));
        let answer = headed.wait().await;
        assert_eq!(answer["state"], "refused", "{}", *answer);
        answer
    };
    for (tool, lines, expected) in [
        // The tool speaks, then the caller.
        ("charge", &[][..], false),
        ("pay", &[], true),
        ("pay", &[(LANGUAGE, "en")], false),
        ("charge", &[(LANGUAGE, "zh")], true),
        // The tool is unknown.
        ("nothing", &[], false),
        ("nothing", &[(LANGUAGE, "zh")], true),
        // Another header is what is wrong, or this one.
        ("charge", &[(LANGUAGE, "zh"), ("Prefer", "soon")], true),
        ("pay", &[(LANGUAGE, "fr")], true),
        ("charge", &[(LANGUAGE, "fr")], false),
    ] {
        let answer = refused(tool, lines).await;
        let told = message(&answer);
        assert_eq!(is_chinese(told), expected, "{tool} {lines:?}: {told}");
        let headers = answer.headers.as_ref().unwrap();
        let header = headers.get("Nats-Service-Error").unwrap().as_str();
        assert!(header.is_ascii() && header.len() > 20, "{header}");
    }
    for (endpoint, body) in [
        ("get", "{}"),
        ("get", r#"{"call_id": "x"}"#),
        ("cancel", "[]"),
        ("tools", r#"{"format": "none"}"#),
        ("admin.settle", "{}"),
        ("batch", "{}"),
    ] {
        let (answer, headers) = ask_in_chinese(&fleet, endpoint, body).await;
        assert!(is_chinese(message(&answer)), "{endpoint}: {answer}");
        assert!(
            headers
                .get("Nats-Service-Error")
                .unwrap()
                .as_str()
                .is_ascii()
        );
    }
    let calls = r#"{"calls": [
        {"tool": "charge", "args": {"what": "a"}}, {"tool": "charge", "args": {}, "language": "en"},
        {"tool": "pay", "args": {}, "language": "fr"}, 7]}"#;
    let (answer, _) = ask_in_chinese(&fleet, "batch", calls).await;
    let told = answer["items"].as_array().unwrap().iter().map(message);
    let told: Vec<bool> = told.map(is_chinese).collect();
    assert_eq!(told, [true, false, true, true], "{answer}");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_is_stored_of_a_call_is_in_its_language() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("charge", "once") + "timeout: 300ms\nlanguage: zh\n",
        witness.tool("look", "read") + "retry: {max_attempts: 2, base: 1ms}\nlanguage: zh\n",
    ];
    let mut fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("doubt", Reply::DoneThenHang);
    witness.always("busy", Reply::Status(500));
    let submit = |tool: &str, what: &str| fleet.submit(tool, &json!({"what": what})).key(what);

    let doubt = submit("charge", "doubt").wait().await;
    assert_eq!(doubt["state"], "in_doubt");
    let cause = doubt["error"]["details"]["cause"]["message"].as_str();
    assert!(is_chinese(message(&doubt)), "{}", *doubt);
    assert!(
        cause.unwrap().contains("这次尝试的时间就到了"),
        "{}",
        *doubt
    );
    let settlement = json!({"call_id": doubt.call_id(), "outcome": "not_applied", "actor": "ann", "note": "looked",
        "by_time_only": true});
    // A worker's clock for an attempt starts before Postgres's, which decides when its time is over.
    let settled = until("the attempt's time to be over", async || {
        let asking = fleet.ask("toolfleet.v1.default.admin.settle", &settlement);
        Some(asking.await).filter(|settled| settled.code() != "conflict")
    });
    let settled = settled.await;
    assert_eq!(settled.code(), "not_applied");
    assert!(is_chinese(message(&settled)), "{}", *settled);

    let exhausted = submit("look", "busy").wait().await;
    assert_eq!(exhausted.code(), "retries_exhausted");
    let last = exhausted["error"]["details"]["last"]["message"].as_str();
    assert!(is_chinese(message(&exhausted)), "{}", *exhausted);
    assert!(last.unwrap().contains("状态码 500"), "{}", *exhausted);
    let attempts =
        "SELECT count(*) FROM toolfleet.attempts WHERE error->>'message' ~ '[a-z]{3} [a-z]{3} '";
    assert_eq!(fleet.count(attempts).await, 0);

    // A caller who asks in another language gets what is stored.
    let again = submit("look", "busy").header(LANGUAGE, "en").wait().await;
    assert_eq!(again.first_bytes().as_bytes(), exhausted.bytes);

    let waiting = fleet.submit("look", &json!({"what": "later"}));
    fleet.workers.remove(0).kill().await;
    let waiting = waiting.asynchronous().await.call_id();
    let cancel = json!({"call_id": waiting});
    fleet.ask("toolfleet.v1.default.cancel", &cancel).await;
    let cancelled = fleet.get(&cancel).await;
    assert_eq!(cancelled.code(), "cancelled");
    assert!(is_chinese(message(&cancelled)), "{}", *cancelled);
    fleet.add_worker(&[]).await;
    invariants::hold(&fleet, &witness).await;
}

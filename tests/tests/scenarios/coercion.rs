//! What a model got slightly wrong is mended before its tool sees it, and the changes can be read.
//!
//! Every rule, and what no rule touches, is in `arguments/src/coerce` and `arguments/tests/coercion`; here is what a
//! fleet makes of it.

use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec, counter},
    invariants,
    witness::Witness,
};
use serde_json::{Value, json};

/// A program that answers with its arguments. `city` has a default, `tags` and `days` are optional.
fn echo(name: &str, effect: &str, more: &str) -> String {
    format!(
        "name: {name}\nversion: 1\ndescription: Answers with what it is asked.\neffect: {effect}\n\
         input_schema:\n  type: object\n  additionalProperties: false\n  required: [count]\n  properties:\n    \
         count: {{type: integer}}\n    city: {{type: string, default: Oslo}}\n    \
         unit: {{enum: [metric, imperial]}}\n    tags: {{type: array, items: {{type: string}}}}\n\
         executor: {{process: {{command: [cat]}}}}\n{more}"
    )
}

fn got(answer: &Answer) -> String {
    assert_eq!(answer["state"], "succeeded", "{}", **answer);
    answer["result"].to_string()
}

/// The columns of the one call with this tool, as text: numbers must stay what they were.
async fn row(fleet: &Fleet, tool: &'static str) -> Value {
    let sql = "SELECT json_build_object('args', args::text, 'sent', original_args::text, 'coercions', coercions)::text \
               FROM toolfleet.calls WHERE tool = $1";
    let text: String = sqlx::query_scalar(sql)
        .bind(tool)
        .fetch_one(&fleet.database.pool)
        .await
        .unwrap();
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_gets_what_was_meant_and_the_record_says_what_was_sent() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([echo("charge", "once", "")])).await;
    let sent = r#"{ "unit": " Metric", "count": "9007199254740993" }"#;
    let answer = fleet.submit_bytes("charge", sent).key("k").wait().await;
    let meant = r#"{"city":"Oslo","count":9007199254740993,"unit":"metric"}"#;
    assert_eq!(got(&answer), meant);
    let changes = json!([
        {"path": "/city", "rule": "default"},
        {"path": "/count", "rule": "string_to_integer"},
        {"path": "/unit", "rule": "enum_match"},
    ]);
    assert_eq!(answer["coercions"], changes);
    assert_eq!(
        row(&fleet, "charge").await,
        json!({"args": meant, "sent": sent, "coercions": changes})
    );
    for rule in ["default", "string_to_integer", "enum_match"] {
        let series = format!(r#"toolfleet_coerced_arguments_total{{rule="{rule}",tool="charge"}}"#);
        assert!(counter(&series) >= 1.0, "{series}");
    }
    let replay = fleet.submit_bytes("charge", sent).key("k").wait().await;
    assert_eq!(replay["replayed"], true);
    assert_eq!(replay.first_bytes(), answer.first_bytes());
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fits_is_left_as_it_was_sent() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([echo("charge", "once", "")])).await;
    let sent = r#"{"city":"5","count":5.0,"tags":["1","true","null",""],"unit":"metric"}"#;
    let answer = fleet.submit_bytes("charge", sent).key("k").wait().await;
    assert_eq!(got(&answer), sent);
    assert_eq!(answer["coercions"], json!([]));
    assert_eq!(row(&fleet, "charge").await["sent"], sent);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_means_the_call_that_its_arguments_became() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([echo("charge", "once", "")])).await;
    let first = fleet.submit_bytes("charge", r#"{"count":"5"}"#).key("k");
    let first = first.wait().await;
    let others = |key: &'static str| {
        let bodies = [
            r#"{"count":5}"#,
            r#"{"count":5,"city":"Oslo"}"#,
            r#"{"arguments":{"count":" 5 "}}"#,
            r#"{"count":5,"tags":null}"#,
        ];
        bodies.map(|body| fleet.submit_bytes("charge", body).key(key))
    };
    for same in others("k") {
        assert_eq!(same.wait().await.first_bytes(), first.first_bytes());
    }
    let other = fleet.submit_bytes("charge", r#"{"count":6}"#).key("k");
    assert_eq!(other.wait().await.code(), "idempotency_key_reused");

    // What the same words mean in a new version is another matter.
    let second = echo("charge", "once", "")
        .replace("version: 1", "version: 2")
        .replace("count: {type: integer}", "count: {type: string}")
        .replace("default: Oslo", "default: Bergen");
    fleet.apply(&second).await;
    for same in others("k") {
        assert_eq!(same.wait().await.first_bytes(), first.first_bytes());
    }
    let new = fleet.submit_bytes("charge", r#"{"count":5}"#).key("new");
    let new = new.wait().await;
    assert_eq!(got(&new), r#"{"city":"Bergen","count":"5"}"#);
    let same = fleet.submit_bytes("charge", r#"{"count":"5","city":"Bergen"}"#);
    assert_eq!(same.key("new").wait().await["replayed"], true);
    assert_eq!(fleet.count("SELECT count(*) FROM toolfleet.calls").await, 2);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_made_of_arguments_is_made_of_what_they_became() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([echo(
        "charge",
        "once",
        "key: from_arguments\n",
    )]))
    .await;
    let first = fleet.submit_bytes("charge", r#"{"count":5}"#).wait().await;
    for same in [r#"{"count":"5"}"#, r#"{"city":"Oslo","count":5}"#] {
        let same = fleet.submit_bytes("charge", same).wait().await;
        assert_eq!(same.first_bytes(), first.first_bytes());
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn how_much_is_mended_follows_from_effect_and_manifest() {
    let witness = Witness::start().await;
    let key = "idempotency: {valid_for: 24h}\n";
    let fleet = Fleet::start(Spec::with([
        echo("look", "read", ""),
        echo("look_safe", "read", "coercion: safe\n"),
        echo("look_off", "read", "coercion: off\n"),
        echo("put", "idempotent", key),
        echo("charge", "once", ""),
    ]))
    .await;
    let harmless = r#"{"count":"5"}"#;
    let only_for_a_read = r#"{"count":[5],"tags":"new"}"#;
    for (tool, body, accepted) in [
        ("look", harmless, true),
        ("look_safe", harmless, true),
        ("look_off", harmless, false),
        ("put", harmless, true),
        ("charge", harmless, true),
        ("look", only_for_a_read, true),
        ("look_safe", only_for_a_read, false),
        ("put", only_for_a_read, false),
        ("charge", only_for_a_read, false),
    ] {
        let answer = fleet
            .submit_bytes(tool, body)
            .key(&format!("{tool}{body}"))
            .wait()
            .await;
        if accepted {
            assert_eq!(answer["state"], "succeeded", "{tool} {body}: {}", *answer);
            assert_eq!(answer["result"]["count"], 5);
        } else {
            assert_eq!(answer.code(), "invalid_arguments", "{tool} {body}");
        }
    }
    // Without coercion nothing is filled in either.
    let off = fleet
        .submit_bytes("look_off", r#"{"count":5}"#)
        .wait()
        .await;
    assert_eq!(got(&off), r#"{"count":5}"#);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_mended_is_told_as_it_was_sent_in_the_callers_language() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([echo("charge", "once", "")])).await;
    let body = r#"{"count":"five","unit":"METRIC","tags":"a,b"}"#;
    let ask = |language| {
        fleet
            .submit_bytes("charge", body)
            .key("k")
            .header("Toolfleet-Language", language)
            .wait()
    };
    let (english, chinese) = (ask("en").await, ask("zh").await);
    let paths = |answer: &Answer| {
        let violations = answer["error"]["details"]["violations"].as_array().unwrap();
        violations
            .iter()
            .map(|violation| violation["path"].to_string())
            .collect::<Vec<_>>()
    };
    for answer in [&english, &chinese] {
        assert_eq!(answer.code(), "invalid_arguments");
        assert_eq!(
            paths(answer),
            [r#""/count""#, r#""/tags""#, r#""/unit""#],
            "{}",
            **answer
        );
        assert_eq!(answer["coercions"], json!([]));
    }
    assert_ne!(english["error"]["message"], chinese["error"]["message"]);
    assert!(chinese["error"]["message"].as_str().unwrap().contains('。'));
    assert_eq!(
        english["error"]["details"]["violations"][2]["nearest"],
        "metric"
    );
    assert_eq!(fleet.count("SELECT count(*) FROM toolfleet.calls").await, 0);
    let free = fleet
        .submit_bytes("charge", r#"{"count":5}"#)
        .key("k")
        .wait()
        .await;
    assert_eq!(free["replayed"], false);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrapper_never_reaches_an_open_tool() {
    let witness = Witness::start().await;
    let open = echo("charge", "once", "")
        .replace("  additionalProperties: false\n", "")
        .replace("  required: [count]\n", "");
    let fleet = Fleet::start(Spec::with([open])).await;
    let (meant, unfit) = (r#"{"city":"Oslo","count":5}"#, "invalid_arguments");
    for (number, (body, expected)) in [
        (r#"{"arguments":{"count":"5"}}"#, meant),
        (r#"{"name":"charge","arguments":{"count":5}}"#, meant),
        (r#"{"name":"refund","arguments":{"count":5}}"#, unfit),
        (r#"{"input":"five"}"#, unfit),
        (r#"{"count":null,"amount":5}"#, unfit),
    ]
    .into_iter()
    .enumerate()
    {
        let single = fleet.submit_bytes("charge", body);
        let single = single.key(&format!("single-{number}")).wait().await;
        let item = format!(
            r#"{{"calls":[{{"tool":"charge","args":{body},"idempotency_key":"batch-{number}"}}]}}"#
        );
        let calls: Value = serde_json::from_str(&item).unwrap();
        let batch = fleet.ask("toolfleet.v1.default.batch", &calls).await;
        let item = &batch["items"][0];
        if expected == unfit {
            assert_eq!(single.code(), unfit, "{body}");
            assert_eq!(
                item["error"]["details"], single["error"]["details"],
                "{body}"
            );
        } else {
            assert_eq!(got(&single), expected, "{body}");
            let asked = json!({"call_id": item["call_id"], "wait_ms": 30_000});
            let decided = fleet.get(&asked).await;
            assert_eq!(got(&decided), expected, "{body}");
            assert_eq!(decided["coercions"], single["coercions"], "{body}");
        }
    }
    assert_eq!(fleet.count("SELECT count(*) FROM toolfleet.calls").await, 4);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_mends_each_of_its_calls() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([echo("charge", "once", "")])).await;
    let calls = json!({"calls": [
        {"tool": "charge", "args": {"count": "5"}, "idempotency_key": "a"},
        {"tool": "charge", "args": {"count": "five"}, "idempotency_key": "b"},
        {"tool": "charge", "args": {"count": 5}, "idempotency_key": "a"},
    ]});
    let answer = fleet.ask("toolfleet.v1.default.batch", &calls).await;
    let items = answer["items"].as_array().unwrap();
    assert_eq!(items[1]["error"]["code"], "invalid_arguments");
    assert_eq!(items[0]["call_id"], items[2]["call_id"], "{}", *answer);
    let decided = fleet
        .get(&json!({"call_id": items[0]["call_id"], "wait_ms": 30_000}))
        .await;
    assert_eq!(got(&decided), r#"{"city":"Oslo","count":5}"#);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_of_sensitive_arguments_is_not_shown() {
    let witness = Witness::start().await;
    let secret = |name, mode| {
        echo(
            name,
            "once",
            &format!("sensitive: {{pointers: [/city], mode: {mode}}}\n"),
        )
    };
    let fleet = Fleet::start(Spec::with([secret("mask", "mask"), secret("omit", "omit")])).await;
    // A wrapper around the arguments moves sensitive values to another place.
    let sent = r#"{"arguments":{"city":"4111-1111","count":"5"}}"#;
    for (tool, word) in [("mask", "[masked]"), ("omit", "[omitted]")] {
        let answer = fleet.submit_bytes(tool, sent).key(tool).wait().await;
        assert_eq!(answer["result"]["city"], "4111-1111", "{}", *answer);
        let row = row(&fleet, tool).await;
        assert_eq!(row["args"], format!(r#"{{"city":"{word}","count":5}}"#));
        assert_eq!(row["sent"], format!("\"{word}\""));
    }
    let kept = "SELECT count(*) FROM toolfleet.finished_calls WHERE original_args::text LIKE '%4111-1111%'";
    assert_eq!(fleet.count(kept).await, 1, "only of the one that is masked");
    let refused = r#"{"arguments":{"city":"4111-1111","count":"five"}}"#;
    let refused = fleet
        .submit_bytes("mask", refused)
        .key("other")
        .wait()
        .await;
    assert_eq!(refused.code(), "invalid_arguments");
    assert!(!refused.to_string().contains("4111-1111"), "{}", *refused);
    invariants::hold(&fleet, &witness).await;
}

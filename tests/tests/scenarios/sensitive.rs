//! Sensitive values are shown only to the tool and its caller; and what follows from an answer's shape.

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::Witness,
};
use serde_json::{Value, json};

/// A program that answers with its arguments.
fn echo(name: &str, effect: &str, more: &str) -> String {
    format!(
        "name: {name}\nversion: 1\ndescription: Answers with what it is asked.\neffect: {effect}\n\
         input_schema: {{type: object, properties: {{card: {{type: object, properties: {{number: {{type: string}}}}}}}}}}\n\
         executor: {{process: {{command: [cat]}}}}\n{more}"
    )
}

const ARGUMENTS: &str = r#"{"a/b":"4111-2222","card":{"number":"4111-1111","year":1.10},"people":[{"age":9007199254740993,"name":"Ada L."}]}"#;

fn sensitive(mode: &str) -> String {
    format!("sensitive: {{pointers: [/card/number, '/people/*/name', /a~1b], mode: {mode}}}\n")
}

/// As the view or the table has it: the text, for numbers must stay what they were.
async fn texts(fleet: &Fleet, from: &'static str) -> Value {
    let sql = format!(
        "SELECT json_build_object('args', args::text, 'result', result::text)::text FROM {from}"
    );
    let text: String = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
        .fetch_one(&fleet.database.pool)
        .await
        .unwrap();
    serde_json::from_str(&text).unwrap()
}

fn without(word: &str) -> String {
    ARGUMENTS
        .replace("4111-1111", word)
        .replace("4111-2222", word)
        .replace("Ada L.", word)
}

#[tokio::test(flavor = "multi_thread")]
async fn masked_values_are_stored_and_not_shown() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([echo("echo", "once", &sensitive("mask"))])).await;
    let told = fleet.submit_bytes("echo", ARGUMENTS).key("k").wait().await;
    let again = fleet.submit_bytes("echo", ARGUMENTS).key("k").wait().await;
    for answer in [told, again] {
        assert_eq!(answer["result"]["card"]["number"], "4111-1111");
    }
    let shown = without("[masked]");
    assert_eq!(
        texts(&fleet, "toolfleet.calls").await,
        json!({"args": shown, "result": shown})
    );
    let stored = texts(&fleet, "toolfleet.finished_calls").await;
    assert_eq!(stored, json!({"args": ARGUMENTS, "result": ARGUMENTS}));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn omitted_values_are_gone_once_the_call_is_over() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([echo("echo", "once", &sensitive("omit"))])).await;
    let told = fleet.submit_bytes("echo", ARGUMENTS).key("k").wait().await;
    assert_eq!(told["result"]["card"]["number"], "4111-1111");
    let kept = without("[omitted]");
    for place in ["toolfleet.calls", "toolfleet.finished_calls"] {
        assert_eq!(
            texts(&fleet, place).await,
            json!({"args": kept, "result": kept}),
            "{place}"
        );
    }
    // The same arguments are still the same call, and other ones are not.
    let again = fleet.submit_bytes("echo", ARGUMENTS).key("k").wait().await;
    assert_eq!(again["result"]["card"]["number"], "[omitted]");
    assert_eq!(again["replayed"], true);
    let other = fleet.submit_bytes("echo", kept).key("k").wait().await;
    assert_eq!(other.code(), "idempotency_key_reused");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_and_a_failure_tell_no_sensitive_value() {
    let witness = Witness::start().await;
    let says_no = echo("refuse", "once", &sensitive("mask")).replace(
        "[cat]",
        r#"[sh, -c, "echo 4111-1111 >&2; echo '{\"error\": {\"message\": \"card 4111-1111 is blocked\"}}'; exit 3"]"#,
    ) + "exit_codes: {business: [3]}\n";
    let fleet = Fleet::start(Spec::with([says_no])).await;
    let wrong = fleet
        .submit("refuse", &json!({"card": {"number": 41_111.111}}))
        .key("a")
        .wait()
        .await;
    assert_eq!(wrong.code(), "invalid_arguments");
    let no = fleet
        .submit_bytes("refuse", ARGUMENTS)
        .key("b")
        .wait()
        .await;
    assert_eq!(no.code(), "tool_error");
    assert!(
        no["error"]["message"]
            .as_str()
            .unwrap()
            .contains("Card [masked] is blocked"),
        "{}",
        *no
    );
    for answer in [wrong, no] {
        let text = answer.to_string();
        assert!(
            !text.contains("4111-1111") && !text.contains("41111111"),
            "{text}"
        );
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_another_shape_fails_a_read_and_is_kept_of_a_write() {
    let witness = Witness::start().await;
    let shape = "output_schema: {type: object, required: [id]}\n";
    let fleet = Fleet::start(Spec::with([
        echo("look", "read", &format!("{shape}retry: {{strategy: fixed, base: 10ms, max_attempts: 2, on: [output_invalid]}}\n")),
        echo("charge", "once", shape),
    ]))
    .await;
    let fits = fleet.submit("look", &json!({"id": 1})).wait().await;
    assert_eq!(
        (&fits["state"], &fits["error"]),
        (&json!("succeeded"), &Value::Null)
    );
    let look = fleet.submit("look", &json!({"x": 1})).wait().await;
    assert_eq!(
        (&look["state"], look.code(), &look["attempts"]),
        (&json!("failed"), "retries_exhausted", &json!(2))
    );
    let charge = fleet
        .submit("charge", &json!({"x": 1}))
        .key("k")
        .wait()
        .await;
    assert_eq!(
        (&charge["state"], charge.code(), &charge["effect"]),
        (&json!("succeeded"), "output_invalid", &json!("applied"))
    );
    assert_eq!(charge["result"], json!({"x": 1}));
    invariants::hold(&fleet, &witness).await;
}

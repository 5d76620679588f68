//! Callers and tools that mean harm: the history stays readable, secrets stay where they are.

use fleet::ids::CallId;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::Witness,
};
use serde_json::json;

/// A tool that runs this Python program.
fn program(name: &str, effect: &str, source: &str, more: &str) -> String {
    let command = json!(["python3", "-c", source]);
    format!(
        "name: {name}\nversion: 1\ndescription: Runs a program that means harm.\neffect: {effect}\n\
         input_schema: {{type: object}}\nexecutor: {{process: {{command: {command}{more}}}}}\n"
    )
}

#[tokio::test]
async fn no_word_of_a_tool_makes_the_history_unreadable() {
    let witness = Witness::start().await;
    let nul = r#"print('{"error":{"message":"a\\u0000b","code":{"$serde_json::private::RawValue":"\\"\\\\u0000\\""}}}'); raise SystemExit(10)"#;
    let stderr = r"import sys; sys.stderr.buffer.write(b'\x00\xff\x1b[2J'); sys.exit(1)";
    let tools = [
        program("says_no", "read", nul, ""),
        program("dies", "once", stderr, ""),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let no = fleet.submit("says_no", &json!({})).wait().await;
    assert_eq!(
        (no.code(), &no["state"]),
        ("tool_error", &json!("failed")),
        "{}",
        *no
    );
    let dead = fleet.submit("dies", &json!({})).key("k").wait().await;
    assert_eq!(dead.code(), "in_doubt", "{}", *dead);
    // Each of these fails when any row holds what cannot be read.
    for sql in [
        "SELECT count(error->>'message') + count(error->'details'->>'code') FROM toolfleet.calls",
        "SELECT count(error->>'message') + count(error->'details'->>'stderr') FROM toolfleet.attempts",
        "SELECT count(meta->>'a') + count(args->>'a') + count(result::text) FROM toolfleet.calls",
    ] {
        assert!(fleet.count(sql).await >= 0);
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_secret_that_a_tool_repeats_does_not_leave_the_worker() {
    let witness = Witness::start().await;
    let secrets = tempfile::tempdir().unwrap();
    std::fs::write(secrets.path().join("TOKEN"), "hunter2-hunter2").unwrap();
    let source = "import os, sys; print(os.environ['TOKEN'], file=sys.stderr); sys.exit(1)";
    let tool = program("tells", "read", source, ", env: {TOKEN: secret://TOKEN}")
        + "retry: {strategy: none}\n";
    let folder = secrets.path().to_str().unwrap().to_owned();
    let fleet = Fleet::start(Spec::with([tool]).workers(1, &["--secrets", &folder])).await;
    let answer = fleet.submit("tells", &json!({})).wait().await;
    assert_eq!(answer.code(), "tool_crashed", "{}", *answer);
    let told = answer.to_string();
    assert!(
        told.contains("[secret]") && !told.contains("hunter2"),
        "{told}"
    );
    let stored = fleet
        .count("SELECT count(*) FROM toolfleet.calls WHERE error::text LIKE '%hunter2%'")
        .await;
    assert_eq!(stored, 0);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_secret_that_a_tool_answers_is_neither_stored_nor_checked_by_the_schema() {
    let witness = Witness::start().await;
    let secrets = tempfile::tempdir().unwrap();
    std::fs::write(secrets.path().join("TOKEN"), "hunter2/hunter2").unwrap();
    let source =
        r#"import os; print('{"env": "' + os.environ['TOKEN'].replace('/', '\\/') + '"}')"#;
    let env = ", env: {TOKEN: secret://TOKEN}";
    // The schema sees what is stored.
    let schema = "output_schema: {properties: {env: {const: '[secret]'}}}\n";
    let tools = [
        program("tells", "once", source, env) + schema,
        program("may_tell", "once", source, env) + "redact_results: false\n",
    ];
    let folder = secrets.path().to_str().unwrap().to_owned();
    let fleet = Fleet::start(Spec::with(tools).workers(1, &["--secrets", &folder])).await;
    let stored = "SELECT count(*) FROM toolfleet.calls WHERE result->>'env' LIKE '%hunter2%'";
    for (tool, told, kept) in [("tells", "[secret]", 0), ("may_tell", "hunter2/hunter2", 1)] {
        let answer = fleet.submit(tool, &json!({})).key(tool).wait().await;
        assert_eq!(answer["state"], "succeeded", "{}", *answer);
        assert_eq!(answer["result"], json!({"env": told}), "{}", *answer);
        assert_eq!(fleet.count(stored).await, kept, "{tool}");
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_deadline_at_the_end_of_time_stops_nobody_else() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let submission = fleet.submit("look", &json!({"what": "a"}));
    let refused = submission
        .header("Toolfleet-Run-Deadline", "9999-12-31T23:59:59-23:59")
        .wait()
        .await;
    assert_eq!(refused.code(), "deadline_invalid", "{}", *refused);
    let next = fleet.submit("look", &json!({"what": "b"})).wait().await;
    assert_eq!(next["state"], "succeeded", "{}", *next);
    invariants::hold(&fleet, &witness).await;
}

/// How long `get` takes for another tenant's call, and for one that there never was.
#[tokio::test]
#[ignore = "a measurement: run it on a machine that has nothing else to do"]
async fn a_foreign_id_takes_as_long_as_an_unknown_one() {
    const EACH: usize = 1_000;
    const GET: &str = "toolfleet.v1.beta.get";
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let large = json!({"what": "a", "note": "x".repeat(60_000)});
    let foreign = fleet.submit("look", &large).wait().await.call_id();
    let mut took = [Vec::new(), Vec::new()];
    for round in 0..EACH + 50 {
        // In turn, and each first as often as the other.
        for which in [round % 2, 1 - round % 2] {
            let call = [foreign, CallId::generate()][which];
            let began = std::time::Instant::now();
            let answer = fleet.ask(GET, &json!({"call_id": call})).await;
            let one = began.elapsed();
            assert_eq!(answer.code(), "not_found", "{}", *answer);
            if round >= 50 {
                took[which].push(one);
            }
        }
    }
    let medians = took.map(|mut took| {
        took.sort();
        let at = |percent: usize| took[took.len() * percent / 100].as_micros();
        println!(
            "p10 {} us, p50 {} us, p90 {} us, p99 {} us",
            at(10),
            at(50),
            at(90),
            at(99)
        );
        at(50)
    });
    println!("the lines: a foreign id, an unknown one; {EACH} requests each");
    let [foreign, unknown] = medians;
    assert!(
        foreign.abs_diff(unknown) * 20 <= unknown,
        "{foreign} us and {unknown} us tell them apart"
    );
    invariants::hold(&fleet, &witness).await;
}

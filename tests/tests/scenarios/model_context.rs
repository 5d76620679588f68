//! A conversation that is kept within a number of tokens on its way to a model.

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    models::ModelServer,
    wait::until_so,
    witness::Witness,
};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::models::manifest;

fn message(role: &str, mark: &str, tokens: usize) -> Value {
    json!({"role": role, "content": format!("{mark} {}", "abc ".repeat(tokens))})
}

/// So many turns of a question and an answer of 100 tokens each, of which the last is not answered.
fn turns(n: usize) -> Value {
    let both = |turn| {
        let question = message("user", &format!("u{turn}"), 100);
        [question, message("assistant", &format!("a{turn}"), 100)]
    };
    let mut messages: Vec<Value> = (0..n).flat_map(both).collect();
    messages.pop();
    json!({ "messages": messages })
}

/// How the messages of a request begin that the server received.
fn received(request: &Value) -> Vec<String> {
    let messages = request["body"]["messages"].as_array().unwrap();
    let first = |message: &Value| {
        let text = message["content"].as_str().unwrap_or_default();
        text.split(' ').next().unwrap_or_default().to_owned()
    };
    messages.iter().map(first).collect()
}

/// Summaries are written by the model `sum`.
fn server(sum: &Value) -> ModelServer {
    let mut sum = sum.clone();
    sum["match"] = json!({"model": "sum"});
    let rules = json!({"rules": [sum, {"answer": {"text": "Yes."}}]});
    ModelServer::start(&rules, &[])
}

/// A tool that writes summaries.
fn writer(server: &ModelServer) -> String {
    let url = server.url("/v1/chat/completions");
    format!(
        r#"
name: sum_up
version: 1
description: Sums up.
effect: read
visibility: hidden
executor:
  chat:
    protocol: openai_chat
    routes: [{{ name: only, url: "{url}", model: sum, price: {{ currency: USD, input: "1", output: "1" }} }}]
"#
    )
}

async fn mode(fleet: &Fleet, mode: &str) {
    let wish = json!({
        "do": "set", "interceptor": "context", "mode": mode, "tool": "ask_model", "replace": true, "actor": "ada", "note": "why",
    });
    let set = fleet.ask("toolfleet.admin.control", &wish).await;
    let result = set["result"].as_str();
    assert!(matches!(result, Some("set" | "changed")), "{}", *set);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_conversation_is_cut_as_operators_let_it_be() {
    let witness = Witness::start().await;
    let server = server(&json!({"answer": {"text": "They talked."}}));
    let context = "context: { strategy: sliding_window, max_tokens: 500, keep_turns: 2 }";
    let fleet = Fleet::start(Spec::with([manifest(&server, context)]).workers(3, &[])).await;

    // What is short enough leaves as it came, and the result says nothing of it.
    let answer = fleet.submit("ask_model", &turns(2)).wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    assert!(answer["result"].get("edits").is_none(), "{}", *answer);
    let answer = fleet.submit("ask_model", &turns(9)).wait().await;
    let log = server.log().await;
    assert_eq!(received(&log[0]), ["u0", "a0", "u1"]);
    assert_eq!(received(&log[1]), ["u7", "a7", "u8"]);
    let edit = &answer["result"]["edits"][0];
    let told = ["interceptor", "mode", "route"].map(|name| edit[name].as_str().unwrap());
    assert_eq!(told, ["context", "enforce", "main"]);
    assert_eq!(
        (&edit["dropped"], &edit["limit"]),
        (&json!(14), &json!(500))
    );
    assert!(edit["to"].as_u64() < Some(400), "{edit}");

    // Observed it says what it would do, and off it says nothing: on all workers.
    for (said, expected) in [
        ("observe", Some("observe")),
        ("off", None),
        ("enforce", Some("enforce")),
    ] {
        mode(&fleet, said).await;
        until_so("all workers to know it", async || {
            let answers =
                join_all((0..12).map(|_| fleet.submit("ask_model", &turns(9)).wait())).await;
            answers
                .iter()
                .all(|answer| answer["result"]["edits"][0]["mode"].as_str() == expected)
        })
        .await;
        let sent = server.log().await;
        let sent = received(sent.last().unwrap()).len();
        assert_eq!(sent, if said == "enforce" { 3 } else { 17 });
    }
    until_so("what it did to be told", async || {
        let row = "SELECT count(*) FROM toolfleet.interceptors WHERE name = 'context' AND calls >= 26 AND changed >= 25 AND errors = 0";
        fleet.count(row).await == 1
    })
    .await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_summary_is_paid_once_and_the_beginning_stays_what_it_was() {
    let witness = Witness::start().await;
    let server = server(&json!({"answer": {"text": "They talked."}}));
    let context =
        "context: { strategy: hybrid, max_tokens: 1200, keep_turns: 2, summary_tool: sum_up }";
    let tools = [manifest(&server, context), writer(&server)];
    let fleet = Fleet::start(Spec::with(tools)).await;

    // Each turn goes on from the one before by its id, and is asked for once more from another key.
    let mut earlier: Option<Value> = None;
    for turn in 0..30 {
        let question = message("user", &format!("u{turn}"), 100);
        let messages: Vec<Value> = earlier.iter().cloned().chain([question]).collect();
        let call = fleet.submit("ask_model", &json!({ "messages": messages }));
        let answer = call.header("Toolfleet-Run", "r").wait().await;
        assert_eq!(answer["state"], "succeeded", "{}", *answer);
        assert!(
            answer["result"]["edits"][0].get("no_summary").is_none(),
            "{}",
            *answer
        );
        earlier = Some(json!({"$call": answer.call_id()}));
    }
    let log = server.log().await;
    let (sums, turns): (Vec<&Value>, Vec<&Value>) =
        log.iter().partition(|request| request["model"] == "sum");
    assert_eq!(turns.len(), 30);
    // 3,000 tokens of questions; eleven of them, with the summary before, are too many.
    assert!((2..=3).contains(&sums.len()), "{} summaries", sums.len());
    let first = |request: &Value| received(request)[0].clone();
    let anew = turns.windows(2).filter(|pair| {
        let begins = |request: &Value| request["body"]["messages"][0].clone();
        begins(pair[0]) != begins(pair[1]) || first(pair[0]) != first(pair[1])
    });
    // The text of the stand-in is the same each time, so a summary that is written anew shows in what follows it.
    assert_eq!(anew.count(), 1);
    // The second one goes on from the first.
    let second = sums[1]["body"]["messages"][1]["content"].as_str().unwrap();
    assert!(
        second.starts_with("Summary of what came before:\nThey talked."),
        "{second}"
    );
    // They cost the conversation that they are of.
    let kinds = "SELECT count(*) FROM toolfleet.model_calls WHERE kind = 'summary' AND tool = 'ask_model' AND route = 'sum_up/only' \
                 AND run = 'r' AND finish = 'stop' AND cost > 0";
    assert_eq!(fleet.count(kinds).await, i64::try_from(sums.len()).unwrap());
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn where_there_is_no_summary_the_conversation_goes_on_without_and_it_is_said() {
    let witness = Witness::start().await;
    let context =
        "context: { strategy: hybrid, max_tokens: 600, keep_turns: 2, summary_tool: sum_up }";
    let long = "abc ".repeat(5_000);
    for (sum, why) in [
        (
            json!({"fault": {"kind": "status", "status": 500}}),
            "no_answer",
        ),
        (json!({"answer": {"text": ""}}), "no_answer"),
        (json!({"answer": {"text": " "}}), "empty"),
        (json!({"answer": {"text": long}}), "longer"),
        (json!({"answer": {"refusal": "no"}}), "refused"),
        (
            json!({"answer": {"text": "They", "finish": "length"}}),
            "cut",
        ),
    ] {
        let server = server(&sum);
        let tools = [manifest(&server, context), writer(&server)];
        let fleet = Fleet::start(Spec::with(tools)).await;
        let answer = fleet.submit("ask_model", &turns(9)).wait().await;
        assert_eq!(answer["state"], "succeeded", "{}", *answer);
        let edit = &answer["result"]["edits"][0];
        assert_eq!(edit["no_summary"], why, "{sum}: {edit}");
        let log = server.log().await;
        assert_eq!(received(log.last().unwrap()), ["u7", "a7", "u8"]);
        invariants::hold(&fleet, &witness).await;
    }
}

#[tokio::test]
async fn what_is_too_long_by_itself_is_said_and_not_cut() {
    let witness = Witness::start().await;
    let server = server(&json!({"answer": {"text": "They talked."}}));
    let context = "context: { strategy: hybrid, max_tokens: 200 }";
    let small = "context: { strategy: trim, max_tokens: 10000 }";
    let small = manifest(&server, small).replace("ask_model", "ask_small");
    let small = small.replace("model: large,", "model: large, context_tokens: 400,");
    let small = small.replace("model: small }", "model: small, context_tokens: 300 }");
    let fleet = Fleet::start(Spec::with([manifest(&server, context), small])).await;
    let long = json!({"messages": [message("user", "u0", 500)]});
    let answer = fleet.submit("ask_model", &long).wait().await;
    let edit = &answer["result"]["edits"][0];
    assert_eq!(
        (&edit["unmet"], edit.get("dropped")),
        (&json!(true), None),
        "{}",
        *answer
    );
    assert_eq!(received(&server.log().await[0]), ["u0"]);
    // No route has room for it.
    let refused = fleet.submit("ask_small", &long).wait().await;
    assert_eq!(refused.code(), "invalid_arguments", "{}", *refused);
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("main (too_long), spare (too_long)"),
        "{message}"
    );
    // A longer one of which enough can be left out goes.
    let answer = fleet.submit("ask_small", &turns(9)).wait().await;
    assert_eq!(answer["result"]["route"], "main", "{}", *answer);
    assert_eq!(server.log().await.len(), 2);
    invariants::hold(&fleet, &witness).await;
}

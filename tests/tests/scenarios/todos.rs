//! The todo list of a session: `todo_write` comes with the first model that has `todo`, and calls at one time add up.

use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec},
    invariants,
    witness::Witness,
};
use futures_util::future::join_all;
use serde_json::{Value, json};

const MODEL: &str = r#"
name: ask_model
version: 1
description: Answers a conversation.
effect: read
executor:
  chat:
    protocol: openai_chat
    routes: [{ name: main, url: "http://127.0.0.1:9/v1/chat/completions", model: large }]
todo: { directives: true }
"#;

async fn fleet(workers: usize) -> (Witness, Fleet) {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([MODEL.to_owned()]).workers(workers, &[])).await;
    (witness, fleet)
}

fn changes(fleet: &Fleet, session: &str, of: &Value) -> Submission {
    fleet
        .submit("todo_write", of)
        .header("Toolfleet-Session", session)
}

/// The items in short.
fn told(answer: &Answer) -> Vec<String> {
    let todos = answer["result"]["todos"].as_array();
    let todos = todos.unwrap_or_else(|| panic!("{}", **answer)).iter();
    todos
        .map(|item| {
            let member = |name: &str| item[name].as_str().unwrap().to_owned();
            format!("{} {} {}", member("id"), member("status"), member("title"))
        })
        .collect()
}

#[tokio::test]
async fn two_callers_at_one_time_write_one_list() {
    const EACH: usize = 20;
    let (witness, fleet) = fleet(2).await;
    let begun = changes(&fleet, "s", &json!({"add": ["a", "b"]}));
    let begun = begun.wait().await;
    assert_eq!(told(&begun), ["t1 pending a", "t2 pending b"]);
    let calls = [("a", "t1"), ("b", "t2")].iter().flat_map(|(caller, id)| {
        let fleet = &fleet;
        (0..EACH).map(move |n| {
            let of = json!({"add": [format!("{caller}{n}")], "update": [{"id": id, "status": "completed"}]});
            changes(fleet, "s", &of).wait()
        })
    });
    for answer in join_all(calls).await {
        assert_eq!(answer["state"], "succeeded", "{}", *answer);
        assert_eq!(answer["result"]["problems"], json!([]));
    }
    let list = told(&changes(&fleet, "s", &json!({})).wait().await);
    assert_eq!(list.len(), 2 + 2 * EACH);
    assert_eq!(&list[..2], ["t1 completed a", "t2 completed b"]);
    let mut titles: Vec<String> = list[2..]
        .iter()
        .map(|item| item.rsplit(' ').next().unwrap().to_owned())
        .collect();
    titles.sort();
    let mut expected: Vec<String> = ["a", "b"]
        .iter()
        .flat_map(|caller| (0..EACH).map(move |n| format!("{caller}{n}")))
        .collect();
    expected.sort();
    assert_eq!(titles, expected);
    // Another session, and the same one of another tenant.
    let other = changes(&fleet, "s2", &json!({})).wait().await;
    let foreign = changes(&fleet, "s", &json!({})).tenant("acme").wait().await;
    assert_eq!((told(&other).len(), told(&foreign).len()), (0, 0));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_cannot_be_written_is_told_and_changes_nothing() {
    let (witness, fleet) = fleet(1).await;
    let mut add = vec!["x".repeat(10 * 1024)];
    add.extend((0..101).map(|n| format!("item {n}")));
    let wrong = json!({"add": add, "update": [{"id": "t1", "status": "completed"}, {"id": "t1", "status": "done"}]});
    let answer = changes(&fleet, "s", &wrong).wait().await;
    assert_eq!(told(&answer).len(), 100);
    let problems = answer["result"]["problems"].as_array().unwrap();
    let paths: Vec<&str> = problems
        .iter()
        .map(|problem| problem["path"].as_str().unwrap())
        .collect();
    assert_eq!(
        paths,
        ["/add/0", "/add/101", "/update/0", "/update/1"],
        "{problems:?}"
    );
    let chinese = changes(
        &fleet,
        "s",
        &json!({"update": [{"id": "t0", "status": "completed"}]}),
    );
    let chinese = chinese.header("Toolfleet-Language", "zh").wait().await;
    let message = &chinese["result"]["problems"][0]["message"];
    assert!(
        message.as_str().unwrap().contains("列表中没有"),
        "{message}"
    );

    let without = fleet.submit("todo_write", &json!({"add": ["a"]}));
    let without = without.wait().await;
    assert_eq!(
        (&without["state"], &without["error"]["details"]["code"]),
        (&json!("failed"), &json!("no_session")),
        "{}",
        *without
    );
    for refused in [
        json!({"add": "a"}),
        json!({"add": [{"title": 1}]}),
        json!({"update": [{"id": "t1"}]}),
        json!({"add": vec!["a"; 201]}),
        json!({"remove": ["t1"]}),
    ] {
        let answer = changes(&fleet, "s", &refused).wait().await;
        assert_eq!(answer.code(), "invalid_arguments", "{}", *answer);
    }
    invariants::hold(&fleet, &witness).await;
}

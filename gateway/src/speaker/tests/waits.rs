//! Calls that wait for somebody, and silence.

use fleet::{
    call::{Awaiting, State},
    wire::code::Code,
};

use super::{
    super::{Shape, SpeakingOrder, Speech, TurnCall, Visibility},
    scene::{Scene, answer, awaiting, failure, plain, running, started, text},
};

fn clients(tool: &str, presents: Option<Shape>, arguments: &str) -> TurnCall {
    TurnCall {
        presents,
        is_clients: true,
        ..plain(tool, arguments)
    }
}

#[test]
fn what_the_client_has_to_run_is_told_and_the_response_completes() {
    let calls = vec![
        plain("look", "{}"),
        clients("open_tab", None, r#"{"url":"https://a.example"}"#),
        clients("edit", Some(Shape::CustomToolCall), r#"{"patch":"+1"}"#),
        clients(
            "run",
            Some(Shape::ShellCall),
            r#"{"commands":["ls","pwd"]}"#,
        ),
    ];
    let mut scene = Scene::of(SpeakingOrder::CallIndex, calls);
    scene.header();
    for call in 1..4 {
        scene.tell(call, awaiting(Awaiting::Client, Some("t")));
    }
    scene.tell(0, started(1));
    scene.finish(0, answer("1"));
    insta::assert_snapshot!(scene.transcript());
}

#[test]
fn a_caller_is_asked_for_its_yes_and_what_runs_then_names_the_question() {
    let calls = vec![plain("pay", r#"{"amount":5}"#), plain("look", "{}")];
    let mut scene = Scene::of(SpeakingOrder::CallIndex, calls);
    scene.header();
    scene.tell(0, awaiting(Awaiting::Approval, Some("t")));
    scene.tell(1, started(1));
    // The client has said yes before the other one was over.
    scene.tell(0, started(1));
    scene.finish(0, answer("true"));
    scene.finish(1, answer("1"));
    insta::assert_snapshot!(scene.transcript());
}

#[test]
fn while_operators_decide_the_response_waits_and_others_speak() {
    let calls = vec![plain("pay", "{}"), plain("look", "{}")];
    let mut scene = Scene::of(SpeakingOrder::CallIndex, calls);
    scene.header();
    scene.tell(0, awaiting(Awaiting::Approval, None));
    scene.finish(1, answer("1"));
    let said = scene.names();
    assert_eq!(said.last(), Some(&"response.output_item.done"), "{said:?}");
    assert!(said.contains(&"toolfleet.call.awaiting"), "{said:?}");
    let denied = failure(State::Failed, Code::Denied, "Denied.");
    scene.finish(0, denied);
    assert_eq!(scene.names().last(), Some(&"response.completed"));
}

#[test]
fn what_the_next_response_tells_begins_behind_the_one_before() {
    let mut scene = Scene::of(SpeakingOrder::CallIndex, vec![plain("pay", "{}")]);
    scene.header();
    scene.tell(0, awaiting(Awaiting::Approval, Some("t")));
    assert_eq!(scene.names().last(), Some(&"response.completed"));
    let mut before = Speech::of("resp_1");
    for input in scene.inputs.iter().cloned() {
        before.hear(input);
    }
    scene.header.response_id = "resp_2".to_owned();
    scene.header.previous_response_id = Some("resp_1".to_owned());
    scene.header.calls = before.left_for_client();
    scene.header();
    scene.tell(0, started(1));
    scene.finish(0, answer("true"));
    insta::assert_snapshot!(scene.transcript());
}

#[test]
fn a_call_of_the_clients_that_is_over_is_never_given_to_it() {
    let calls = vec![plain("look", "{}"), clients("run", None, "{}")];
    let mut scene = Scene::of(SpeakingOrder::CallIndex, calls);
    scene.header();
    scene.tell(1, awaiting(Awaiting::Client, Some("t")));
    scene.finish(1, answer("1"));
    scene.finish(0, answer("1"));
    let said = scene.said();
    assert!(
        said.iter()
            .all(|event| !event.data.contains("function_call")),
        "{said:?}"
    );
    assert_eq!(said.last().unwrap().name, "response.completed");
}

#[test]
fn a_call_that_was_handed_over_and_is_over_is_not_told_again() {
    let calls = vec![clients("run", None, "{}"), plain("look", "{}")];
    let mut scene = Scene::of(SpeakingOrder::FirstReady, calls);
    scene.header();
    scene.tell(0, awaiting(Awaiting::Client, Some("t")));
    scene.finish(0, answer("1"));
    scene.finish(1, answer("2"));
    let said = scene.names();
    let added = said
        .iter()
        .filter(|name| **name == "response.output_item.added");
    assert_eq!(added.count(), 2, "{said:?}");
    assert_eq!(said.last(), Some(&"response.completed"));
}

#[test]
fn whoever_is_silent_for_fifteen_seconds_yields_to_whoever_has_something_to_say() {
    let calls = vec![plain("slow", "{}"), plain("quick", "{}")];
    let mut scene = Scene::of(SpeakingOrder::CallIndex, calls);
    scene.header();
    scene.tell(0, started(1));
    scene.tell(0, text(1, 0, "one"));
    scene.finish(1, answer("1"));
    // Fourteen seconds after it spoke it has the word, and a second later the other one.
    scene.pass(12);
    scene.tell(0, running(1));
    let is_done = |scene: &Scene| scene.names().contains(&"response.output_item.done");
    assert!(!is_done(&scene));
    scene.tell(0, running(1));
    assert!(is_done(&scene));
    scene.tell(0, running(1));
    scene.tell(0, text(1, 1, "two"));
    scene.finish(0, answer("2"));
    insta::assert_snapshot!(scene.transcript());
}

#[test]
fn whoever_is_silent_alone_keeps_the_word() {
    let calls = vec![plain("slow", "{}"), plain("slower", "{}")];
    let mut scene = Scene::of(SpeakingOrder::CallIndex, calls);
    scene.header();
    scene.pass(600);
    scene.tell(0, running(1));
    scene.tell(1, running(1));
    let said = scene.names();
    let done = said
        .iter()
        .filter(|name| **name == "response.output_item.done");
    assert_eq!(done.count(), 0, "{said:?}");
    // The other one says something, and the silent one has been silent for long enough.
    scene.tell(1, text(1, 0, "x"));
    let said = scene.names();
    assert!(said.contains(&"response.output_item.done"), "{said:?}");
}

#[test]
fn hidden_tools_have_no_item_and_are_not_waited_for() {
    let hidden = TurnCall {
        visibility: Visibility::Hidden,
        is_final: true,
        ..plain("log", "{}")
    };
    let calls = vec![hidden, plain("look", "{}")];
    let mut scene = Scene::of(SpeakingOrder::CallIndex, calls);
    scene.header();
    scene.tell(0, started(1));
    scene.tell(0, text(1, 0, "secret"));
    scene.finish(1, answer("1"));
    let said = scene.said();
    assert!(said.iter().all(|event| !event.data.contains("secret")));
    assert_eq!(said.last().unwrap().name, "response.completed");
    let added = said
        .iter()
        .filter(|event| event.name == "response.output_item.added");
    assert_eq!(added.count(), 1);
}

//! Answers of MCP servers that come as streams of events and break off before the answer: taken up again where the server allows it, never
//! asked for by a second call. Effects and requests are counted at the server.

use std::{fs, time::Duration};

use fleet::{call::Effect, outcome::OutcomeWord, wire::code::Code};
use serde_json::{Value, json};

use super::mcp_scene::{Scene, word};

/// What the server heard of requests for the rest of a stream.
fn gets(scene: &Scene) -> Vec<Value> {
    let text = fs::read_to_string(scene.path("gets")).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

const LOST: (OutcomeWord, Option<Code>) = (OutcomeWord::Unknown, Some(Code::Unavailable));

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_off_is_taken_up_where_it_was_and_the_call_is_made_once() {
    for (tool, places) in [
        ("broken_closed", &["1"][..]),
        ("broken_polled", &["1", "2", "3", "4"]),
        // The second event had begun, and was not complete.
        ("broken_torn", &["1"]),
    ] {
        let scene = Scene::http("legacy");
        let outcome = scene.run(tool, Effect::Once).await;
        assert_eq!(
            word(&outcome),
            (OutcomeWord::Applied, None),
            "{tool}: {outcome:?}"
        );
        let heard = gets(&scene);
        let at: Vec<&str> = heard
            .iter()
            .map(|get| get["at"].as_str().unwrap().rsplit('/').next().unwrap())
            .collect();
        assert_eq!(at, places, "{tool}");
        for get in &heard {
            assert!(
                get["waited"].as_f64().unwrap() >= 0.29,
                "the server asked for 300 ms: {get}"
            );
            assert_eq!(
                (&get["is_known"], &get["accept"], &get["has_body"]),
                (&json!(true), &json!("text/event-stream"), &json!(false)),
                "{tool}"
            );
        }
        assert_eq!((scene.effects(), scene.begun()), (1, 1), "{tool}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_cannot_be_taken_up_leaves_a_write_unknown() {
    for (tool, asked) in [
        ("broken_unnamed", 0),
        ("broken_lost", 5),
        ("broken_missing", 1),
        ("broken_gone", 1),
        ("broken_json", 1),
        ("broken_redirected", 1),
    ] {
        let scene = Scene::http("legacy");
        let outcome = scene.run(tool, Effect::Once).await;
        assert_eq!(word(&outcome), LOST, "{tool}: {outcome:?}");
        assert_eq!(
            (scene.effects(), scene.begun(), gets(&scene).len()),
            (1, 1, asked),
            "{tool}"
        );
    }
    // The newer revision has no such thing.
    let scene = Scene::http("modern");
    assert_eq!(word(&scene.run("broken_closed", Effect::Once).await), LOST);
    assert_eq!((scene.effects(), gets(&scene).len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_taken_up_only_while_its_attempt_has_time() {
    let scene = Scene::http("legacy");
    let short = conformance::context(Duration::from_millis(1_500));
    let returned = scene.run_in("broken_never", Effect::Once, short).await;
    assert_eq!(returned.outcome.word(), OutcomeWord::Unknown);
    assert!((1..=5).contains(&gets(&scene).len()), "{:?}", gets(&scene));
    assert_eq!((scene.effects(), scene.begun()), (1, 1));
}

//! What MCP servers say of their tools, and too much of it: what becomes of calls meanwhile. Effects are counted at the server.

use std::fs;

use fleet::{call::Effect, outcome::OutcomeWord, wire::code::Code};
use serde_json::Value;

use super::mcp_scene::{Scene, word};

const APPLIED: (OutcomeWord, Option<Code>) = (OutcomeWord::Applied, None);
const NOT_ASKED: (OutcomeWord, Option<Code>) = (OutcomeWord::NotStarted, Some(Code::Unavailable));

#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_list_ten_thousand_tools_and_no_more() {
    for scene in [Scene::http("modern"), Scene::stdio("legacy")] {
        fs::write(scene.path("more"), "10001").unwrap();
        let outcome = scene.run("count", Effect::Once).await;
        assert_eq!(word(&outcome), NOT_ASKED, "{outcome:?}");
        let why = outcome.failure().unwrap().message.english();
        assert!(why.contains("more than 10000 tools"), "{why}");
        assert_eq!(scene.begun(), 0);
    }
    for scene in [Scene::http("modern"), Scene::stdio("legacy")] {
        fs::write(scene.path("more"), "10000").unwrap();
        assert_eq!(word(&scene.run("count", Effect::Once).await), APPLIED);
        assert_eq!(scene.effects(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_changes_during_a_call_lets_that_end_and_stops_the_next() {
    for scene in [
        Scene::http("modern"),
        Scene::http("legacy"),
        Scene::stdio("modern"),
        Scene::stdio("legacy"),
    ] {
        let outcome = scene.run("changing", Effect::Once).await;
        assert_eq!(word(&outcome), APPLIED, "{outcome:?}");
        let outcome = scene.run("changing", Effect::Once).await;
        assert_eq!(
            word(&outcome),
            (OutcomeWord::DefiniteFailure, Some(Code::ToolChanged)),
            "{outcome:?}"
        );
        assert_eq!((scene.effects(), scene.begun()), (1, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_is_deeper_than_any_reader_goes_costs_no_other() {
    let deep = |levels: usize| {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        format!(r#"{{"name": "deep", "inputSchema": {{"type": "object", "x": {open}{close}}}}}"#)
    };
    assert!(
        serde_json::from_str::<Value>(&deep(200)).is_err(),
        "it is too deep"
    );
    for levels in [60, 200] {
        for scene in [
            Scene::http("modern"),
            Scene::http("legacy"),
            Scene::stdio("modern"),
            Scene::stdio("legacy"),
        ] {
            fs::write(scene.path("deep.tool"), deep(levels)).unwrap();
            let outcome = scene.run("count", Effect::Once).await;
            assert_eq!(word(&outcome), APPLIED, "{levels} {outcome:?}");
            // Nobody knows what it is now, so it is not called.
            let outcome = scene.run("deep", Effect::Once).await;
            assert_eq!(
                word(&outcome),
                (OutcomeWord::DefiniteFailure, Some(Code::ToolChanged)),
                "{levels} {outcome:?}"
            );
            let why = outcome.failure().unwrap().message.english();
            assert_eq!(why.contains("nested too deep"), levels == 200, "{why}");
            assert_eq!((scene.effects(), scene.begun()), (1, 1));
        }
    }
}

/// `serde_json` reads what stands in such a key as JSON of its own, whose levels no count of the text's levels has: layer by layer it takes
/// more stack than a thread has, which ends the worker with all that runs there.
#[tokio::test(flavor = "multi_thread")]
async fn json_within_the_definition_of_a_tool_costs_no_other_and_no_worker() {
    let mut layers = "1".to_owned();
    for _layer in 0..60 {
        let text = layers.replace('\\', "\\u005c").replace('"', "\\u0022");
        let (open, close) = ("[".repeat(80), "]".repeat(80));
        layers = format!(r#"{open}{{"$serde_json::private::RawValue":"{text}"}}{close}"#);
    }
    let definition =
        format!(r#"{{"name": "deep", "inputSchema": {{"type": "object", "x": {layers}}}}}"#);
    for scene in [Scene::http("modern"), Scene::stdio("legacy")] {
        fs::write(scene.path("deep.tool"), &definition).unwrap();
        let outcome = scene.run("count", Effect::Once).await;
        assert_eq!(word(&outcome), APPLIED, "{outcome:?}");
        let outcome = scene.run("deep", Effect::Once).await;
        assert_eq!(
            word(&outcome),
            (OutcomeWord::DefiniteFailure, Some(Code::ToolChanged)),
            "{outcome:?}"
        );
        assert_eq!((scene.effects(), scene.begun()), (1, 1));
    }
}

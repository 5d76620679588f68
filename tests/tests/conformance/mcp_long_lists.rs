//! Long lists of tools, and how often they are asked for.

use std::fs;

use fleet::{
    call::{Effect, Language},
    outcome::OutcomeWord,
    wire::code::Code,
};

use super::mcp_scene::{Scene, word};

fn lists(scene: &Scene) -> usize {
    let text = fs::read_to_string(scene.path("lists")).unwrap_or_default();
    text.lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_tools_are_known_and_one_more_is_refused_with_the_bound() {
    for (make, revision) in [
        (Scene::http as fn(&str) -> Scene, "modern"),
        (Scene::stdio, "legacy"),
    ] {
        let scene = make(revision);
        fs::write(scene.path("tools"), "10000").unwrap();
        for tool in ["count", "no_such_tool"] {
            let outcome = scene.run(tool, Effect::Once).await;
            let expected = match tool {
                "count" => (OutcomeWord::Applied, None),
                _ => (OutcomeWord::DefiniteFailure, Some(Code::ToolChanged)),
            };
            assert_eq!(word(&outcome), expected, "{outcome:?}");
        }
        let scene = make(revision);
        fs::write(scene.path("tools"), "10001").unwrap();
        let outcome = scene.run("count", Effect::Once).await;
        assert_eq!(
            word(&outcome),
            (OutcomeWord::NotStarted, Some(Code::Unavailable))
        );
        let message = outcome.failure().unwrap().message.told(Language::En);
        assert!(message.contains("more than 10000 tools"), "{message}");
        assert_eq!(scene.begun(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_arguments_do_not_have_the_list_read_again_each_time() {
    for scene in [Scene::http("modern"), Scene::stdio("legacy")] {
        scene.run("count", Effect::Once).await;
        let before = lists(&scene);
        for _call in 0..5 {
            let outcome = scene.run("invalid", Effect::Once).await;
            assert_eq!(
                word(&outcome),
                (OutcomeWord::DefiniteFailure, Some(Code::ToolError))
            );
        }
        assert_eq!(lists(&scene), before);
    }
}

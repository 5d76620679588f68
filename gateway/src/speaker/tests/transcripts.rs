//! Whole transcripts, byte for byte.

use fleet::{
    call::State,
    wire::{code::Code, part::Part},
};

use super::{
    super::{OnFinal, Shape, SpeakingOrder, TurnCall},
    scene::{
        Scene, answer, failure, image, part, plain, refused, retrying, running, started, text,
    },
};

/// Slow text, images, one that fails and is retried, and one that is refused.
fn four_tools(order: SpeakingOrder) -> Scene {
    let draw = TurnCall {
        presents: Some(Shape::ImageGenerationCall),
        ..plain("draw", r#"{"prompt":"a cat"}"#)
    };
    let calls = vec![
        plain("tell", r#"{"topic":"rain"}"#),
        draw,
        plain("book", r#"{"room":7}"#),
        refused("pay", "{}"),
    ];
    let mut scene = Scene::of(order, calls);
    scene.header();
    for call in 0..3 {
        scene.tell(call, started(1));
    }
    scene.tell(2, text(1, 0, "looking for the room"));
    scene.tell(1, image(1, 0, "c2tldGNo"));
    scene.tell(0, text(1, 0, "It rains"));
    scene.tell(2, retrying(1));
    scene.tell(1, image(1, 1, "YmV0dGVy"));
    scene.tell(0, running(1));
    scene.finish(1, answer(r#"{"mime":"image/png","b64":"Y2F0"}"#));
    scene.tell(0, text(1, 1, " in Bergen."));
    scene.tell(2, started(2));
    scene.tell(2, part(2, 0, Part::Step("booking".to_owned())));
    scene.finish(0, answer(r#""It rains in Bergen.""#));
    scene.finish(2, answer(r#"{"booked":true,"price":12.50}"#));
    scene
}

#[test]
fn four_tools_by_index() {
    let scene = four_tools(SpeakingOrder::CallIndex);
    insta::assert_snapshot!(scene.transcript());
}

#[test]
fn four_tools_by_readiness() {
    let scene = four_tools(SpeakingOrder::FirstReady);
    insta::assert_snapshot!(scene.transcript());
}

/// Two that look something up and one that answers.
fn with_an_answer(on_final: OnFinal) -> Scene {
    let answering = TurnCall {
        is_final: true,
        ..plain("answer", r#"{"style":"short"}"#)
    };
    let second = TurnCall {
        is_final: true,
        ..plain("answer", r#"{"style":"long"}"#)
    };
    let calls = vec![plain("look", "{}"), answering, second];
    let mut scene = Scene::of(SpeakingOrder::FirstReady, calls);
    scene.header.on_final = on_final;
    scene.header();
    scene.tell(1, started(1));
    scene.tell(1, text(1, 0, "Take "));
    scene.tell(0, started(1));
    scene.finish(1, answer(r#""Take the train.""#));
    match on_final {
        OnFinal::Cancel => {
            for call in [0, 2] {
                let message = "The call was cancelled. Nothing was changed.";
                scene.finish(call, failure(State::Cancelled, Code::Cancelled, message));
            }
        }
        OnFinal::Await => {
            scene.finish(0, answer("1"));
            scene.finish(2, answer(r#""Take the train, or walk.""#));
        }
    }
    scene
}

#[test]
fn the_final_one_is_the_message_and_the_rest_is_cancelled() {
    insta::assert_snapshot!(with_an_answer(OnFinal::Cancel).transcript());
}

#[test]
fn the_final_one_is_the_message_and_the_rest_is_awaited() {
    insta::assert_snapshot!(with_an_answer(OnFinal::Await).transcript());
}

#[test]
fn a_call_in_doubt_is_a_failed_item_of_an_incomplete_response() {
    let calls = vec![plain("pay", r#"{"amount":5}"#), plain("look", "{}")];
    let mut scene = Scene::of(SpeakingOrder::CallIndex, calls);
    scene.header();
    scene.tell(0, started(1));
    scene.doubt(0);
    scene.finish(1, answer("[1,2]"));
    // That it is settled later changes nothing of what was said.
    scene.finish(0, answer("true"));
    insta::assert_snapshot!(scene.transcript());
}

#[test]
fn each_shape_has_its_own_events() {
    let shaped = |tool, shape, arguments| TurnCall {
        presents: Some(shape),
        ..plain(tool, arguments)
    };
    let calls = vec![
        shaped("files", Shape::FileSearchCall, r#"{"query":"rain"}"#),
        shaped("web", Shape::WebSearchCall, r#"{"query":"rain"}"#),
        shaped("code", Shape::CodeInterpreterCall, r#"{"code":"1+1"}"#),
        shaped("shell", Shape::ShellCall, r#"{"command":"ls -l"}"#),
        shaped("draw", Shape::ImageGenerationCall, "{}"),
        shaped("files", Shape::FileSearchCall, "{}"),
    ];
    let mut scene = Scene::of(SpeakingOrder::CallIndex, calls);
    scene.header();
    scene.tell(0, part(1, 0, Part::Step("searching".to_owned())));
    scene.finish(
        0,
        answer(r#"{"results":[{"filename":"rain.md","score":0.9,"text":"It rains."}]}"#),
    );
    scene.finish(
        1,
        answer(r#"{"results":[{"url":"https://rain.example","title":"Rain"}]}"#),
    );
    scene.tell(2, text(1, 0, "2"));
    scene.finish(
        2,
        answer(r#"{"logs":"2","images":["https://plot.example/1.png"]}"#),
    );
    scene.tell(3, text(1, 0, "total 0"));
    scene.finish(
        3,
        answer(r#"{"stdout":"total 0","stderr":"","exit_code":0}"#),
    );
    let message = "The tool did not answer within 1000 ms. Nothing was changed.";
    let late = failure(State::Failed, Code::Timeout, message);
    scene.tell(4, started(1));
    scene.finish(4, late.clone());
    scene.tell(5, started(1));
    scene.finish(5, late);
    insta::assert_snapshot!(scene.transcript());
}

/// One of which nothing was shown before, and two whose items were open by then.
#[test]
fn what_a_kind_has_no_place_for_is_shown_as_a_call_of_a_tool() {
    let shaped = |tool, shape, arguments| TurnCall {
        presents: Some(shape),
        ..plain(tool, arguments)
    };
    let calls = vec![
        shaped("draw", Shape::ImageGenerationCall, "{}"),
        shaped("web", Shape::WebSearchCall, r#"{"query":"rain"}"#),
        shaped("files", Shape::FileSearchCall, r#"{"query":"rain"}"#),
    ];
    let mut scene = Scene::of(SpeakingOrder::CallIndex, calls);
    scene.header();
    scene.tell(0, started(1));
    scene.tell(0, image(1, 0, "c2tldGNo"));
    scene.finish(2, answer(r#""nothing was found""#));
    scene.finish(0, answer(r#"{"url":"https://cats.example/1.png"}"#));
    scene.tell(1, part(1, 0, Part::Step("searching".to_owned())));
    scene.finish(1, answer(r#"{"answer":"It rains."}"#));
    insta::assert_snapshot!(scene.transcript());
}

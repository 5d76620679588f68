//! How long a fold takes.

use std::time::Instant;

use super::{
    super::{SpeakerInput, SpeakingOrder, Speech},
    scene::{Scene, answer, plain, running, text},
};

/// Ten thousand events of eight calls.
fn long_turn(order: SpeakingOrder) -> Vec<SpeakerInput> {
    let calls = (0..8)
        .map(|_n| plain("tell", r#"{"topic":"rain"}"#))
        .collect();
    let mut scene = Scene::of(order, calls);
    scene.header();
    for number in 0..1_249 {
        for call in 0..8 {
            if number % 100 == 99 {
                scene.tell(call, running(1));
            } else {
                let part = number - number / 100;
                scene.tell(
                    call,
                    text(1, part, "a text of about forty characters, or so"),
                );
            }
        }
    }
    for call in 0..8 {
        scene.finish(call, answer(r#""all of it""#));
    }
    scene.inputs
}

/// To be looked at in an optimised build; the aim is 20 ms.
#[test]
#[ignore = "it prints how long a fold of 10,000 events takes"]
fn ten_thousand_events() {
    for order in [SpeakingOrder::CallIndex, SpeakingOrder::FirstReady] {
        let inputs = long_turn(order);
        let count = inputs.len();
        let mut fastest = None;
        for _run in 0..10 {
            let inputs = inputs.clone();
            let mut speech = Speech::of("resp_1");
            let begun = Instant::now();
            let said: usize = inputs
                .into_iter()
                .map(|input| speech.hear(input).events.len())
                .sum();
            let took = begun.elapsed();
            assert!(speech.is_over());
            fastest = fastest.min(Some((took, said))).or(Some((took, said)));
        }
        let (took, said) = fastest.unwrap();
        println!("{order:?}: {count} messages, {said} events, {took:?}");
    }
}

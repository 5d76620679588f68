//! What is missing, late, doubled, stale, or too much.

use fleet::wire::part::Part;

use super::{
    super::{News, SpeakingOrder, Speech, TurnCall, TurnHeader, UnfitHeader},
    scene::{Scene, answer, call_id, part, plain, retrying, started, text},
};

fn message() -> TurnCall {
    TurnCall {
        is_final: true,
        ..plain("answer", "{}")
    }
}

#[test]
fn a_gap_in_the_parts_stops_them_and_the_end_has_the_result() {
    let mut scene = Scene::of(SpeakingOrder::CallIndex, vec![message()]);
    scene.header();
    scene.tell(0, text(1, 0, "one "));
    scene.tell(0, text(1, 2, "three "));
    scene.tell(0, text(1, 3, "four"));
    scene.finish(0, answer(r#""one two three four""#));
    insta::assert_snapshot!(scene.transcript());
}

#[test]
fn a_header_that_comes_late_changes_nothing_but_the_ids() {
    for order in [SpeakingOrder::CallIndex, SpeakingOrder::FirstReady] {
        let mut scene = Scene::of(order, vec![message(), plain("look", "{}")]);
        scene.header();
        scene.tell(1, started(1));
        scene.tell(1, text(1, 0, "a"));
        scene.tell(0, text(1, 0, "b"));
        scene.finish(1, answer("1"));
        let before: Vec<String> = done(&scene);
        scene.finish(0, answer(r#""bc""#));
        let early = done(&scene);
        assert_eq!(
            (before.len(), early.len()),
            (usize::from(order == SpeakingOrder::FirstReady), 2)
        );
        // The same stream with its header last.
        let header = scene.inputs.remove(0);
        for (seq, input) in (1..).zip(&mut scene.inputs) {
            input.seq = seq;
        }
        let seq = scene.inputs.len() as u64 + 1;
        let at = scene.inputs.last().unwrap().at;
        scene
            .inputs
            .push(super::super::SpeakerInput { seq, at, ..header });
        let mut late = done(&scene);
        late.sort();
        let mut early = early;
        early.sort();
        assert_eq!(late, early);
        assert!(scene.said().iter().all(|event| event.place.seq == seq));
    }
}

/// The items that are done, without the numbers of their events.
fn done(scene: &Scene) -> Vec<String> {
    let said = scene.said();
    let done = said
        .iter()
        .filter(|event| event.name == "response.output_item.done");
    let item = |data: &str| {
        let event: serde_json::Value = serde_json::from_str(data).unwrap();
        event["item"].to_string()
    };
    done.map(|event| item(&event.data)).collect()
}

#[test]
fn what_is_stale_or_of_an_attempt_that_is_over_is_not_said() {
    let mut scene = Scene::of(SpeakingOrder::CallIndex, vec![message()]);
    scene.header();
    scene.tell(0, started(1));
    scene.tell(0, text(1, 0, "old"));
    scene.tell(0, retrying(1));
    scene.tell(0, text(1, 1, "late"));
    scene.tell(0, started(2));
    scene.tell(0, text(1, 1, "later"));
    scene.tell(0, text(2, 0, "new"));
    // The same message once more, and one from before it.
    let again = scene.inputs.last().unwrap().news.clone();
    let before = scene.inputs[2].news.clone();
    for news in [again, before] {
        let last = scene.inputs.last().unwrap().clone();
        scene.inputs.push(super::super::SpeakerInput {
            seq: last.seq + 1,
            news,
            ..last
        });
    }
    scene.finish(0, answer(r#""new""#));
    let said = scene.said();
    let deltas = said
        .iter()
        .filter(|event| event.name == "response.output_text.delta");
    let texts = deltas.map(|event| {
        let event: serde_json::Value = serde_json::from_str(&event.data).unwrap();
        event["delta"].as_str().unwrap().to_owned()
    });
    assert_eq!(texts.collect::<Vec<_>>(), ["old", "new"]);
}

#[test]
fn an_attempt_that_begins_ends_the_item_of_the_one_before_though_nobody_said_so() {
    let mut scene = Scene::of(SpeakingOrder::CallIndex, vec![message()]);
    scene.header();
    scene.tell(0, text(1, 0, "old"));
    scene.tell(0, text(2, 0, "new"));
    scene.finish(0, answer(r#""new""#));
    let items = done(&scene);
    assert_eq!(items.len(), 2, "{items:?}");
    assert!(
        items[0].contains("incomplete") && items[1].contains("completed"),
        "{items:?}"
    );
}

#[test]
fn of_four_mebibytes_that_wait_the_longest_loses_its_parts_and_keeps_its_result() {
    let calls = vec![
        plain("first", "{}"),
        plain("much", "{}"),
        plain("little", "{}"),
    ];
    let mut scene = Scene::of(SpeakingOrder::CallIndex, calls);
    scene.header();
    scene.stop_the_clock();
    scene.tell(0, started(1));
    scene.tell(2, text(1, 0, "little"));
    let large = "x".repeat(32 * 1024);
    for number in 0..200 {
        scene.tell(1, part(1, number, Part::Text(large.clone())));
    }
    scene.finish(1, answer(r#""much""#));
    scene.finish(2, answer("2"));
    scene.finish(0, answer("0"));
    let said = scene.said();
    let deltas: Vec<_> = said
        .iter()
        .filter(|event| event.name == "toolfleet.output.delta")
        .collect();
    assert_eq!(deltas.len(), 1, "only the little one's");
    assert!(deltas[0].data.contains("little"));
    assert!(done(&scene)[1].contains(r#""output":"much""#));
    assert_eq!(said.last().unwrap().name, "response.completed");
}

#[test]
fn a_call_has_so_many_items_and_then_its_end_alone() {
    let calls = vec![plain("stutters", "{}"), plain("other", "{}")];
    let mut scene = Scene::of(SpeakingOrder::CallIndex, calls);
    scene.header();
    for number in 0..100 {
        scene.tell(0, text(number + 1, 0, "x"));
    }
    scene.finish(0, answer("1"));
    scene.finish(1, answer("1"));
    let items = done(&scene);
    let stutters = items.iter().filter(|item| item.contains("stutters"));
    let stutters: Vec<_> = stutters.collect();
    assert_eq!(stutters.len(), 32 + 1);
    assert!(stutters[32].contains("completed"));
}

#[test]
fn only_the_first_header_of_this_response_counts() {
    let mut scene = Scene::of(SpeakingOrder::CallIndex, vec![plain("look", "{}")]);
    let mut other = scene.header.clone();
    other.response_id = "resp_other".to_owned();
    let ours = std::mem::replace(&mut scene.header, other);
    scene.header();
    scene.header = ours;
    assert_eq!(scene.said(), []);
    scene.header();
    scene.header.calls.push(TurnCall {
        index: 1,
        ..scene.header.calls[0].clone()
    });
    scene.header();
    scene.finish(0, answer("1"));
    assert_eq!(scene.names().last(), Some(&"response.completed"));
}

#[test]
fn rows_are_wanted_for_calls_that_are_over_and_still_to_be_told() {
    let mut scene = Scene::of(SpeakingOrder::CallIndex, vec![plain("look", "{}")]);
    scene.header();
    scene.finish(0, answer("1"));
    scene.doubt(0);
    let events = scene.inputs.iter().filter_map(|input| match &input.news {
        News::Event(event) | News::Finished { event, .. } => Some(event.clone()),
        News::Header(_) | News::Other => None,
    });
    let [finished, doubt] = events.collect::<Vec<_>>().try_into().unwrap();
    let mut speech = Speech::of("resp_1");
    assert!(speech.wants_row(&finished), "nobody knows yet whose it is");
    speech.hear(scene.inputs[0].clone());
    assert!(speech.wants_row(&finished));
    assert!(!speech.wants_row(&doubt), "its row may be settled");
    let mut foreign = finished.clone();
    foreign.call_id = call_id(9);
    assert!(!speech.wants_row(&foreign));
    speech.hear(scene.inputs[1].clone());
    assert!(!speech.wants_row(&finished), "it is told");
}

#[test]
fn a_header_is_read_as_it_was_written_and_an_unfit_one_is_refused() {
    let mut calls = vec![plain("look", "{}"), super::scene::refused("pay", "{}")];
    calls[0].told_until = Some(3);
    let header = Scene::of(SpeakingOrder::FirstReady, calls).header;
    assert_eq!(TurnHeader::read(&header.to_bytes()).unwrap(), header);
    insta::assert_snapshot!(String::from_utf8(header.to_bytes()).unwrap());
    let unfit = |change: &dyn Fn(&mut TurnHeader)| {
        let mut changed = header.clone();
        change(&mut changed);
        TurnHeader::read(&changed.to_bytes()).unwrap_err()
    };
    let many = |count: usize| {
        unfit(&|header| {
            let call = header.calls[1].clone();
            header.calls = (0..count)
                .map(|n| TurnCall {
                    index: u32::try_from(n).unwrap(),
                    ..call.clone()
                })
                .collect();
        })
    };
    assert!(matches!(many(0), UnfitHeader::Count));
    assert!(matches!(many(65), UnfitHeader::Count));
    assert!(matches!(
        unfit(&|header| header.calls[1].index = 2),
        UnfitHeader::Indexes
    ));
    assert!(matches!(
        unfit(&|header| header.calls[1].slot = header.calls[0].slot.clone()),
        UnfitHeader::Doubled
    ));
    for id in ["", "a b", "é", &"x".repeat(65)] {
        assert!(matches!(
            unfit(&|header| header.turn_id = id.to_owned()),
            UnfitHeader::Id
        ));
    }
    assert!(matches!(
        unfit(&|header| header.calls[0].tool = "x".repeat(65)),
        UnfitHeader::TooLong
    ));
    assert!(matches!(TurnHeader::read(b"{}"), Err(UnfitHeader::Form(_))));
}

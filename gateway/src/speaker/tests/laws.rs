//! What holds whatever the order of the events.

use std::collections::BTreeMap;

use fleet::wire::event::Happening;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    super::{News, Resume, Shape, Speech, SpokenEvent, Visibility},
    story::{Dice, Story},
};

/// What was looked at.
#[derive(Debug, Default)]
struct Counts {
    stories: usize,
    whole: usize,
    over: usize,
    incomplete_responses: usize,
    messages: usize,
    events: usize,
    extensions: usize,
    items: usize,
    items_cut_short: usize,
    /// Of each kind, those that were done.
    items_of: BTreeMap<String, usize>,
    /// Those that were told as a call of a tool because their own kind had no place for what came of them.
    items_in_the_place_of: usize,
    replays: usize,
}

/// The kinds of items that there are.
const KINDS: [&str; 11] = [
    "code_interpreter_call",
    "custom_tool_call",
    "file_search_call",
    "function_call",
    "image_generation_call",
    "mcp_approval_request",
    "mcp_call",
    "message",
    "shell_call",
    "shell_call_output",
    "web_search_call",
];

#[derive(Debug, Deserialize)]
struct Seen {
    r#type: String,
    sequence_number: u64,
    output_index: Option<usize>,
    item_id: Option<String>,
    item: Option<Box<RawValue>>,
    response: Option<SeenResponse>,
}

#[derive(Debug, Deserialize)]
struct SeenItem {
    id: String,
    r#type: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    call_id: String,
}

#[derive(Debug, Deserialize)]
struct SeenResponse {
    status: String,
    output: Vec<Box<RawValue>>,
}

proptest! {
    #[test]
    fn any_interleaving_keeps_the_laws(seed in any::<u64>()) {
        let mut counts = Counts::default();
        look_at(seed, &mut counts);
    }
}

/// `cargo nextest run … --run-ignored only`, in about a minute.
#[test]
#[ignore = "it looks at 100,000 stories, and prints how much that was"]
fn a_hundred_thousand_interleavings_keep_the_laws() {
    let mut counts = Counts::default();
    for seed in 0..100_000 {
        look_at(seed, &mut counts);
    }
    assert!(counts.whole > 40_000 && counts.items_cut_short > 10_000);
    assert!(counts.incomplete_responses > 10_000 && counts.extensions > 10_000);
    assert!(counts.items_in_the_place_of > 10_000);
    assert_eq!(counts.items_of.len(), KINDS.len(), "{counts:#?}");
    for kind in KINDS {
        assert!(counts.items_of[kind] > 1_000, "{counts:#?}");
    }
    println!("{counts:#?}");
}

fn look_at(seed: u64, counts: &mut Counts) {
    let story = Story::of(seed);
    let said = said(&story, Resume::Start);
    let context = format!("seed {seed}");
    counts.stories += 1;
    counts.messages += story.inputs.len();
    counts.events += said.len();

    numbers_are_dense(&said, &context);
    let is_over = items_are_told_one_after_the_other(&said, &context, counts);
    counts.over += usize::from(is_over);
    if story.is_whole {
        counts.whole += 1;
        every_end_is_told(&story, &said, &context, counts);
        assert!(
            is_over,
            "{context}: all was heard, and the response is not over"
        );
    }

    // Twice the same, and from every event on the rest.
    let again = self::said(&story, Resume::Start);
    assert_eq!(said, again, "{context}");
    for (n, event) in said.iter().enumerate() {
        let resume = Resume::BehindId(event.place);
        let tail: Vec<_> = again.iter().filter(|event| resume.needs(event)).collect();
        assert!(tail.into_iter().eq(&said[n + 1..]), "{context}");
    }
    let mut dice = Dice::of(seed);
    if !said.is_empty() {
        let n = dice.below(said.len());
        let resume = Resume::BehindId(said[n].place);
        assert_eq!(self::said(&story, resume), said[n + 1..], "{context}");
        let number = said[n].sequence_number;
        let behind = self::said(&story, Resume::BehindNumber(number));
        assert!(
            behind.iter().all(|event| event.sequence_number > number),
            "{context}"
        );
        assert_eq!(behind, said[said.len() - behind.len()..], "{context}");
        counts.replays += 2;
    }
}

fn said(story: &Story, resume: Resume) -> Vec<SpokenEvent> {
    let mut speech = Speech::of(&story.header.response_id);
    resume.replay(&mut speech, story.inputs.iter().cloned())
}

fn numbers_are_dense(said: &[SpokenEvent], context: &str) {
    let mut next = 0;
    for pair in said.windows(2) {
        assert!(pair[0].place < pair[1].place, "{context}");
    }
    for event in said {
        if event.is_extension {
            assert_eq!(event.sequence_number + 1, next, "{context}");
        } else {
            assert_eq!(event.sequence_number, next, "{context}");
            next += 1;
        }
    }
}

/// Whether the response is over.
fn items_are_told_one_after_the_other(
    said: &[SpokenEvent],
    context: &str,
    counts: &mut Counts,
) -> bool {
    let mut open: Option<String> = None;
    let mut done: Vec<Box<RawValue>> = Vec::new();
    let mut handed_over = Vec::new();
    let (mut is_over, mut has_doubt) = (false, false);
    for (n, event) in said.iter().enumerate() {
        let seen: Seen = serde_json::from_str(&event.data).unwrap();
        assert_eq!(seen.r#type, event.name, "{context}");
        assert_eq!(seen.sequence_number, event.sequence_number, "{context}");
        assert!(!is_over, "{context}: {} after the end", event.name);
        counts.extensions += usize::from(event.is_extension);
        match event.name {
            "response.created" | "response.in_progress" => assert!(n < 2, "{context}"),
            "response.output_item.added" => {
                let item = item(seen.item.as_deref());
                assert_eq!(open, None, "{context}: two are open");
                assert_eq!(seen.output_index, Some(done.len()), "{context}");
                open = Some(item.id);
                counts.items += 1;
            }
            "response.output_item.done" => {
                let raw = seen.item.unwrap();
                let item = item(Some(&raw));
                assert_eq!(open.take(), Some(item.id), "{context}");
                assert_eq!(seen.output_index, Some(done.len()), "{context}");
                assert_ne!(item.status, "in_progress", "{context}");
                counts.items_cut_short += usize::from(item.status == "incomplete");
                has_doubt |= raw.get().contains("in_doubt")
                    || raw.get().contains(DOUBT.0)
                    || raw.get().contains(DOUBT.1);
                *counts.items_of.entry(item.r#type.clone()).or_default() += 1;
                if item.r#type == "function_call" {
                    handed_over.push(item.call_id);
                }
                done.push(raw);
            }
            "response.completed" | "response.incomplete" => {
                let response = seen.response.unwrap();
                assert_eq!(open, None, "{context}");
                assert_eq!(
                    event.name,
                    format!("response.{}", response.status),
                    "{context}"
                );
                assert_eq!(response.status == "incomplete", has_doubt, "{context}");
                counts.incomplete_responses += usize::from(has_doubt);
                let output = response.output.iter().map(|item| item.get());
                assert!(output.eq(done.iter().map(|item| item.get())), "{context}");
                is_over = true;
            }
            _within => {
                assert!(open.is_some(), "{context}: {} of no item", event.name);
                assert_eq!(seen.output_index, Some(done.len()), "{context}");
                if seen.item_id.is_some() {
                    assert_eq!(seen.item_id, open, "{context}");
                }
            }
        }
    }
    let mut ids: Vec<String> = done.iter().map(|raw| item(Some(raw)).id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), done.len(), "{context}: an id stands twice");
    let handed = handed_over.len();
    handed_over.sort();
    handed_over.dedup();
    assert_eq!(
        handed_over.len(),
        handed,
        "{context}: a call was handed over twice"
    );
    is_over
}

/// What was heard to the end before the response was over is told to the end: as an item that is completed or failed, or as one
/// that the client was given.
fn every_end_is_told(story: &Story, said: &[SpokenEvent], context: &str, counts: &mut Counts) {
    let done = said
        .iter()
        .filter(|event| event.name == "response.output_item.done");
    let items: Vec<SeenItem> = done
        .map(|event| {
            let seen: Seen = serde_json::from_str(&event.data).unwrap();
            item(seen.item.as_deref())
        })
        .collect();
    let over_at = said.last().map(|last| last.place.seq);
    let heard = story.inputs.iter();
    // What the client has let go on is told in the next response, if this one was over by then.
    let heard = heard.filter(|input| Some(input.seq) <= over_at);
    let ended = heard.filter_map(|input| match &input.news {
        News::Event(event) | News::Finished { event, .. } => {
            let is_end = matches!(event.what, Happening::Finished { .. });
            is_end.then_some(event.call_id)
        }
        News::Header(_) | News::Other => None,
    });
    for call_id in ended {
        let mut calls = story.header.calls.iter();
        let call = calls.find(|call| call.id() == Some(call_id)).unwrap();
        let name = call_id.0.simple().to_string();
        let told = items.iter().filter(|item| item.id.contains(&name));
        let is_end = |item: &&SeenItem| {
            ["completed", "failed"].contains(&&*item.status) || item.r#type == "custom_tool_call"
        };
        let is_completed = |item: &&SeenItem| item.status == "completed";
        let is_other = |item: &&SeenItem| item.r#type == "mcp_call" && is_completed(item);
        let presents_another = !call.is_clients && call.presents.is_some_and(tells_its_own);
        if presents_another && told.clone().any(|item| is_other(&item)) {
            counts.items_in_the_place_of += 1;
        }
        let is_shown = call.visibility == Visibility::Shown;
        assert_eq!(
            told.clone().any(|item| is_end(&item)),
            is_shown,
            "{context}: {name}"
        );
        // The commands of a shell of the fleet's own are no end.
        let ends = told.filter(|item| item.r#type != "shell_call" || call.is_clients);
        assert!(ends.filter(is_completed).count() <= 1, "{context}: {name}");
    }
}

/// Whether calls that the fleet runs have a kind of item of their own.
fn tells_its_own(shape: Shape) -> bool {
    match shape {
        Shape::McpCall | Shape::FunctionCall | Shape::CustomToolCall => false,
        Shape::ImageGenerationCall
        | Shape::FileSearchCall
        | Shape::WebSearchCall
        | Shape::CodeInterpreterCall
        | Shape::ShellCall => true,
    }
}

/// What items say that cannot say a code.
const DOUBT: (&str, &str) = ("The call is in doubt", "这次调用存疑");

fn item(raw: Option<&RawValue>) -> SeenItem {
    serde_json::from_str(raw.unwrap().get()).unwrap()
}

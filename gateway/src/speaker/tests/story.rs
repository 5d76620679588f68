//! Turns drawn by lot: eight calls whose events come in any order that keeps each call's own, or damaged on the way.

use fleet::{
    call::{Awaiting, CallOutcome, Language, State},
    wire::{
        code::Code,
        event::{Event, Happening},
        part::{Image, Part},
    },
};
use time::{Duration, OffsetDateTime};

use super::{
    super::{
        FinalRow, News, OnFinal, Shape, SpeakerInput, SpeakingOrder, TurnCall, TurnHeader,
        TurnSlot, Visibility,
    },
    scene::{
        Scene, answer, awaiting, call_id, failure, part, plain, refused, retrying, running, started,
    },
};

/// How many calls a turn has.
pub(super) const CALLS: usize = 8;

/// A turn and all messages of its stream.
#[derive(Debug)]
pub(super) struct Story {
    pub(super) header: TurnHeader,
    pub(super) inputs: Vec<SpeakerInput>,
    /// Whether every message arrives, once and in the order of its call.
    pub(super) is_whole: bool,
}

/// Numbers that look random and are the same for the same seed.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below this one.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = (mixed ^ (mixed >> 31)) % u64::try_from(end).unwrap();
        usize::try_from(drawn).unwrap()
    }

    /// Once in so many times.
    pub(super) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

impl Story {
    /// The story of this seed.
    pub(super) fn of(seed: u64) -> Self {
        let mut dice = Dice::of(seed);
        let is_whole = dice.once_in(2);
        let calls: Vec<TurnCall> = (0..CALLS).map(|_n| call(&mut dice)).collect();
        let order = [SpeakingOrder::CallIndex, SpeakingOrder::FirstReady][dice.below(2)];
        let mut header = Scene::of(order, calls).header;
        header.on_final = [OnFinal::Cancel, OnFinal::Await][dice.below(2)];
        let mut news = mixed(&header, &mut dice);
        // The header comes first, or after some of what its calls tell.
        let behind = if dice.once_in(2) {
            1
        } else {
            news.len() / 2 + 1
        };
        let place = dice.below(behind);
        news.insert(place, News::Header(Box::new(header.clone())));
        if !is_whole {
            damage(&mut news, &mut dice);
        }
        let mut at = header.created_at;
        let inputs = (10..).zip(news).map(|(seq, news)| {
            let seconds = if dice.once_in(10) {
                dice.below(20)
            } else {
                dice.below(3)
            };
            at += Duration::seconds(i64::try_from(seconds).unwrap());
            SpeakerInput { seq, at, news }
        });
        let inputs = inputs.collect();
        Self {
            header,
            inputs,
            is_whole,
        }
    }
}

fn call(dice: &mut Dice) -> TurnCall {
    let arguments = [
        r#"{"query":"rain"}"#,
        r#"{"code":"1+1"}"#,
        r#"{"command":"ls"}"#,
        "{}",
    ];
    let arguments = arguments[dice.below(arguments.len())];
    if dice.once_in(12) {
        return refused("refused", arguments);
    }
    let shapes = [
        None,
        None,
        Some(Shape::ImageGenerationCall),
        Some(Shape::FileSearchCall),
        Some(Shape::WebSearchCall),
        Some(Shape::CodeInterpreterCall),
        Some(Shape::ShellCall),
        Some(Shape::FunctionCall),
        Some(Shape::CustomToolCall),
    ];
    TurnCall {
        presents: shapes[dice.below(shapes.len())],
        visibility: if dice.once_in(12) {
            Visibility::Hidden
        } else {
            Visibility::Shown
        },
        is_final: dice.once_in(5),
        is_clients: dice.once_in(6),
        language: [Language::En, Language::Zh][dice.below(2)],
        ..plain("tool", arguments)
    }
}

/// What a call does, and its row where it is over.
type Step = (Happening, Option<FinalRow>);

/// The messages of all calls, in any order that keeps that of each.
fn mixed(header: &TurnHeader, dice: &mut Dice) -> Vec<News> {
    let mut scripts: Vec<(usize, Vec<Step>)> = Vec::new();
    for (n, call) in header.calls.iter().enumerate() {
        if matches!(call.slot, TurnSlot::CallId(_)) {
            let mut script = script(call, dice);
            script.reverse();
            scripts.push((n, script));
        }
    }
    let mut sequences = [0; CALLS];
    let mut news = Vec::new();
    while !scripts.is_empty() {
        let drawn = dice.below(scripts.len());
        let (n, script) = &mut scripts[drawn];
        let Some((what, row)) = script.pop() else {
            scripts.swap_remove(drawn);
            continue;
        };
        sequences[*n] += 1 + dice.below(3) as u64;
        let event = Event {
            call_id: call_id(*n),
            sequence: sequences[*n],
            at: OffsetDateTime::UNIX_EPOCH,
            what,
        };
        news.push(match row {
            Some(row) => News::Finished {
                event,
                row: Box::new(row),
            },
            None => News::Event(event),
        });
    }
    news
}

fn script(call: &TurnCall, dice: &mut Dice) -> Vec<Step> {
    let mut steps: Vec<Step> = vec![(
        Happening::Accepted {
            tool: call.tool.clone(),
            tool_version: 1,
        },
        None,
    )];
    if dice.once_in(8) {
        steps.push((awaiting(Awaiting::Approval, Some("t")), None));
        if dice.once_in(2) {
            return steps;
        }
    } else if dice.once_in(10) {
        steps.push((awaiting(Awaiting::Approval, None), None));
    }
    if call.is_clients {
        steps.push((awaiting(Awaiting::Client, Some("t")), None));
        if dice.once_in(2) {
            return steps;
        }
        return ended(steps, dice);
    }
    let attempts = 1 + u32::try_from(dice.below(3)).unwrap();
    for attempt in 1..=attempts {
        if !dice.once_in(8) {
            steps.push((started(attempt), None));
        }
        parts(attempt, &mut steps, dice);
        if dice.once_in(12) {
            steps.push((awaiting(Awaiting::Input, Some("t")), None));
            if dice.once_in(2) {
                return steps;
            }
        } else if attempt < attempts && !dice.once_in(6) {
            steps.push((retrying(attempt), None));
        }
    }
    if dice.once_in(12) {
        steps.push((awaiting(Awaiting::Completion, Some("t")), None));
    }
    ended(steps, dice)
}

fn parts(attempt: u32, steps: &mut Vec<Step>, dice: &mut Dice) {
    let mut number = 0;
    for _part in 0..dice.below(5) {
        let output = match dice.below(6) {
            0 => Part::Step("searching".to_owned()),
            1 => Part::Value(serde_json::json!({"rows": [1, 2.5]})),
            2 => Part::Image(Image {
                mime: "image/svg+xml".to_owned(),
                b64: "aGk=".to_owned(),
                index: 0,
                partial: true,
            }),
            _text => Part::Text("sagt ".to_owned()),
        };
        if dice.once_in(20) {
            number += 1;
        }
        steps.push((part(attempt, number, output), None));
        number += 1;
        if dice.once_in(3) {
            steps.push((running(attempt), None));
        }
    }
}

fn ended(mut steps: Vec<Step>, dice: &mut Dice) -> Vec<Step> {
    let row = match dice.below(10) {
        0 => {
            steps.push((finished(State::InDoubt, CallOutcome::Unknown), None));
            if dice.once_in(2) {
                return steps;
            }
            answer("true")
        }
        1 => failure(State::Cancelled, Code::Cancelled, "It was cancelled."),
        2 | 3 => failure(State::Failed, Code::Timeout, "It took too long."),
        4 => answer(r#"{"results":[{"filename":"f","url":"u","score":0.5,"text":"t"}]}"#),
        5 => answer(r#"{"mime":"image/png","b64":"aGk="}"#),
        _text => answer(r#""sagt sagt ""#),
    };
    steps.push((finished(row.state, row.outcome), Some(row)));
    steps
}

fn finished(state: State, outcome: CallOutcome) -> Happening {
    Happening::Finished {
        state,
        outcome,
        attempts: 1,
        code: None,
    }
}

/// Loses messages, delivers some twice, and lets some overtake others.
fn damage(news: &mut Vec<News>, dice: &mut Dice) {
    news.retain(|_one| !dice.once_in(12));
    for _doubled in 0..news.len() / 10 {
        let one = news[dice.below(news.len())].clone();
        let place = dice.below(news.len() + 1);
        news.insert(place, one);
    }
    for _overtaken in 0..news.len() / 8 {
        let place = dice.below(news.len());
        if place + 1 < news.len() {
            news.swap(place, place + 1);
        }
    }
}

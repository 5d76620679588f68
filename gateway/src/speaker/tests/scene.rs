//! A turn made up for a test: its header, its stream, and what is said of it.

use std::fmt::Write;

use fleet::{
    call::{Awaiting, CallOutcome, Language, State},
    ids::CallId,
    wire::{
        code::Code,
        event::{Event, Happening},
        part::{Image, Part},
    },
};
use time::{Duration, OffsetDateTime};

use super::super::{
    FinalError, FinalRow, News, OnFinal, SpeakerInput, SpeakingOrder, Speech, SpokenEvent,
    StreamEpoch, TurnCall, TurnHeader, TurnSlot, Visibility,
};

/// A turn and its stream so far.
pub(super) struct Scene {
    pub(super) header: TurnHeader,
    pub(super) inputs: Vec<SpeakerInput>,
    at: OffsetDateTime,
    /// How long each message takes.
    tick: Duration,
    sequences: Vec<u64>,
}

/// The `n`th call of tests.
pub(super) fn call_id(n: usize) -> CallId {
    let text = format!("01a00000-0000-7000-8000-{n:012}");
    text.parse().unwrap()
}

/// A call whose tool says nothing about how it is shown.
pub(super) fn plain(tool: &str, arguments: &str) -> TurnCall {
    TurnCall {
        index: 0,
        slot: TurnSlot::CallId(call_id(0)),
        tool: tool.to_owned(),
        arguments: arguments.to_owned(),
        presents: None,
        visibility: Visibility::Shown,
        is_final: false,
        is_clients: false,
        language: Language::En,
        told_until: None,
        items_before: 0,
        approval_request_id: None,
    }
}

/// A call that was refused.
pub(super) fn refused(tool: &str, arguments: &str) -> TurnCall {
    TurnCall {
        slot: TurnSlot::Refused {
            code: Code::InvalidArguments,
            message: "/amount is missing. Nothing was run. Correct it and send it again."
                .to_owned(),
            more: None,
        },
        ..plain(tool, arguments)
    }
}

pub(super) fn started(attempt: u32) -> Happening {
    Happening::Started { attempt }
}

pub(super) fn running(attempt: u32) -> Happening {
    Happening::Running { attempt }
}

pub(super) fn retrying(attempt: u32) -> Happening {
    let code = Some(Code::Timeout);
    Happening::Retrying { attempt, code }
}

pub(super) fn part(attempt: u32, part: u32, output: Part) -> Happening {
    Happening::Output {
        attempt,
        part,
        output,
    }
}

pub(super) fn text(attempt: u32, number: u32, text: &str) -> Happening {
    part(attempt, number, Part::Text(text.to_owned()))
}

pub(super) fn image(attempt: u32, number: u32, b64: &str) -> Happening {
    let image = Image {
        mime: "image/png".to_owned(),
        b64: b64.to_owned(),
        index: 0,
        partial: true,
    };
    part(attempt, number, Part::Image(image))
}

/// It waits; with a token where it is not operators who decide.
pub(super) fn awaiting(whom: Awaiting, token: Option<&str>) -> Happening {
    Happening::Awaiting {
        whom,
        until: OffsetDateTime::UNIX_EPOCH + Duration::hours(1),
        token: token.map(ToOwned::to_owned),
    }
}

/// A row with this result.
pub(super) fn answer(json: &str) -> FinalRow {
    FinalRow {
        state: State::Succeeded,
        outcome: CallOutcome::Success,
        result: Some(json.to_owned().into()),
        error: None,
    }
}

/// A row of a call that failed.
pub(super) fn failure(state: State, code: Code, message: &str) -> FinalRow {
    FinalRow {
        state,
        outcome: CallOutcome::SystemError,
        result: None,
        error: Some(FinalError {
            code,
            message: message.to_owned(),
        }),
    }
}

impl Scene {
    /// A turn of these calls.
    pub(super) fn of(order: SpeakingOrder, calls: Vec<TurnCall>) -> Self {
        let sequences = vec![0; calls.len()];
        let calls = calls.into_iter().enumerate().map(|(n, call)| TurnCall {
            index: u32::try_from(n).unwrap(),
            slot: match call.slot {
                TurnSlot::CallId(_) => TurnSlot::CallId(call_id(n)),
                refused @ TurnSlot::Refused { .. } => refused,
            },
            ..call
        });
        let at = OffsetDateTime::from_unix_timestamp(1_764_280_000).unwrap();
        Self {
            header: TurnHeader {
                turn_id: "turn_1".to_owned(),
                response_id: "resp_1".to_owned(),
                session: "s1".parse().unwrap(),
                order,
                on_final: OnFinal::Await,
                previous_response_id: None,
                created_at: at,
                calls: calls.collect(),
            },
            inputs: Vec::new(),
            at,
            tick: Duration::SECOND,
            sequences,
        }
    }

    /// Lets this much of the stream's time pass beside the second that each message takes.
    pub(super) fn pass(&mut self, seconds: i64) {
        self.at += Duration::seconds(seconds);
    }

    /// All that is told from now on is told at once.
    pub(super) fn stop_the_clock(&mut self) {
        self.tick = Duration::ZERO;
    }

    /// The header comes.
    pub(super) fn header(&mut self) {
        let header = Box::new(self.header.clone());
        self.push(News::Header(header));
    }

    /// A call tells something.
    pub(super) fn tell(&mut self, call: usize, what: Happening) {
        let event = self.event(call, what);
        self.push(News::Event(event));
    }

    /// A call is over.
    pub(super) fn finish(&mut self, call: usize, row: FinalRow) {
        let what = Happening::Finished {
            state: row.state,
            outcome: row.outcome,
            attempts: 1,
            code: row.error.as_ref().map(|error| error.code),
        };
        let event = self.event(call, what);
        let row = Box::new(row);
        self.push(News::Finished { event, row });
    }

    /// A call is in doubt.
    pub(super) fn doubt(&mut self, call: usize) {
        self.tell(
            call,
            Happening::Finished {
                state: State::InDoubt,
                outcome: CallOutcome::Unknown,
                attempts: 1,
                code: Some(Code::InDoubt),
            },
        );
    }

    fn event(&mut self, call: usize, what: Happening) -> Event {
        self.sequences[call] += 1;
        Event {
            call_id: call_id(call),
            sequence: self.sequences[call],
            at: self.at,
            what,
        }
    }

    fn push(&mut self, news: News) {
        self.at += self.tick;
        let seq = self.inputs.last().map_or(1, |last| last.seq + 1);
        let at = self.at;
        self.inputs.push(SpeakerInput { seq, at, news });
    }

    /// All that is said.
    pub(super) fn said(&self) -> Vec<SpokenEvent> {
        let mut speech = Speech::of(&self.header.response_id);
        let inputs = self.inputs.iter().cloned();
        inputs.flat_map(|input| speech.hear(input).events).collect()
    }

    /// The names of what is said, without those of the response's own beginning.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.said().iter().skip(2).map(|event| event.name).collect()
    }

    /// The stream and what is said because of each message, as text.
    pub(super) fn transcript(&self) -> String {
        let epoch: StreamEpoch = "e1".parse().unwrap();
        let mut speech = Speech::of(&self.header.response_id);
        let mut text = String::new();
        for input in self.inputs.iter().cloned() {
            let passed = (input.at - self.header.created_at).whole_seconds();
            let (seq, heard) = (input.seq, heard(&input.news));
            writeln!(text, "# {seq}, after {passed} s: {heard}\n").unwrap();
            let spoken = speech.hear(input);
            for event in &spoken.events {
                text.push_str(&event.to_sse(&epoch));
            }
            for call in spoken.cancel {
                writeln!(text, "# to be cancelled: {call}\n").unwrap();
            }
        }
        text
    }
}

fn heard(news: &News) -> String {
    match news {
        News::Header(_) => "the header".to_owned(),
        News::Event(event) => told(event),
        News::Finished { event, row } => format!("{}, and its row {row:?}", told(event)),
        News::Other => "something else".to_owned(),
    }
}

fn told(event: &Event) -> String {
    let call = event.call_id.to_string();
    let (_rest, number) = call.rsplit_once('-').unwrap();
    let number: u64 = number.parse().unwrap();
    format!("call {number}, {:?}", event.what)
}

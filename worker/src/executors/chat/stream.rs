//! Reads a model's answer that comes as a stream: tells its chunks as they come, and puts the reply together.
//!
//! What is read is bounded in every direction: a line, the whole stream, the reply, and the time between two chunks. Comments are
//! no chunks: a server that says nothing else is silent.

use std::{pin::Pin, time::Duration};

use fleet::{outcome::ToolFailure, wire::chunks::ModelChunks};
use reqwest::Response;
use serde_json::{Map, Value, value::RawValue};
use tokio::time::{Instant, sleep_until};

use super::{
    class::{self, JudgedAnswer},
    dialect::{Assembler, Dialect, StreamSoFar, StreamStep},
};
use crate::executors::{
    Progress,
    http::{
        response::{BodyEnd, HttpAnswer},
        sse::{Events, StreamEvent},
        without_body,
    },
    output,
};

/// The most bytes of a line; more where the reply may have more.
const LINE_MAX: usize = 1024 * 1024;
/// What a line has around a reply.
const AROUND_REPLY: usize = 64 * 1024;
/// What a whole stream may have: so many times what its reply may, and so much beside.
const STREAM_TIMES: usize = 8;
const STREAM_MORE: usize = 16 * 1024 * 1024;
/// The body of an answer that is none of the protocol, whatever it is.
const NO_REPLY: &[u8] = b"{}";

/// How long a stream may be silent.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamTimes {
    pub(super) first_token: Duration,
    pub(super) idle: Duration,
}

/// A stream that was asked for.
#[derive(Clone, Copy)]
pub(super) struct AskedStream<'a> {
    pub(super) dialect: &'a dyn Dialect,
    pub(super) route: &'a str,
    pub(super) times: StreamTimes,
    /// When the request was sent.
    pub(super) sent_at: Instant,
    pub(super) output_limit: usize,
    pub(super) progress: &'a Progress,
}

/// What came of it.
pub(super) struct StreamedAnswer {
    pub(super) end: StreamedEnd,
    /// How long after the request the first chunk came.
    pub(super) first_token: Option<Duration>,
    /// Says that characters of chunks were replaced, if any were.
    pub(super) mended: Option<ToolFailure>,
    /// What is known of its cost where it has no reply; `None`: no chunk came.
    pub(super) so_far: Option<StreamSoFar>,
}

/// How it ended.
pub(super) enum StreamedEnd {
    /// With what a plain answer would have been.
    Answer(HttpAnswer),
    /// In silence.
    Silent(JudgedAnswer),
    /// The attempt is over.
    Over(BodyEnd),
}

/// Reads it to its end. Dropping this closes the connection.
pub(super) async fn read<F: Future<Output = BodyEnd>>(
    mut response: Response,
    asked: AskedStream<'_>,
    mut cut: Pin<Box<F>>,
) -> StreamedAnswer {
    let head = without_body(&response);
    let line_max = LINE_MAX.max(asked.output_limit.saturating_add(AROUND_REPLY));
    let mut events = Events::up_to(line_max);
    let mut stream = OpenStream::new(asked);
    let most = asked.output_limit.saturating_mul(STREAM_TIMES);
    let all = most.saturating_add(STREAM_MORE);
    let mut room = all;
    let end = loop {
        let silent_at = stream.silent_at();
        let read = tokio::select! {
            biased;
            read = response.chunk() => read,
            end = &mut cut => {
                return StreamedAnswer {
                    end: StreamedEnd::Over(end),
                    first_token: stream.first_token(),
                    mended: None,
                    so_far: stream.so_far(),
                };
            }
            () = sleep_until(silent_at) => break ChunkEnd::Silent,
        };
        let bytes = match read {
            Ok(Some(bytes)) => bytes,
            // Some servers leave the last line open.
            Ok(None) => match events.feed(b"\n\n", |event| stream.take(event)) {
                Some(ChunkEnd::Unfit(_half)) => break ChunkEnd::Broken,
                Some(end) => break end,
                None => break ChunkEnd::NoMore,
            },
            Err(_broken) => break ChunkEnd::Broken,
        };
        if let Some(end) = events.feed(&bytes, |event| stream.take(event)) {
            break end;
        }
        match room.checked_sub(bytes.len()) {
            Some(left) => room = left,
            None if stream.last_at.is_some() => break ChunkEnd::TooLarge,
            None => break ChunkEnd::Broken,
        }
    };
    StreamedAnswer {
        first_token: stream.first_token(),
        mended: stream.is_mended.then(ToolFailure::mended),
        so_far: stream.so_far(),
        end: stream.end(end, room == all, head),
    }
}

/// A stream on its way.
struct OpenStream<'a> {
    asked: AskedStream<'a>,
    assembler: Box<dyn Assembler>,
    first_at: Option<Instant>,
    last_at: Option<Instant>,
    is_mended: bool,
}

/// Why nothing more of a stream is read.
enum ChunkEnd {
    /// The vendor's mark says so.
    Ended,
    /// The vendor says that the request has failed.
    Failed(Map<String, Value>),
    /// This is no event of the protocol.
    Unfit(Vec<u8>),
    TooLarge,
    Broken,
    /// It has ended without a mark.
    NoMore,
    Silent,
}

impl<'a> OpenStream<'a> {
    fn new(asked: AskedStream<'a>) -> Self {
        Self {
            asked,
            assembler: asked.dialect.assembler(),
            first_at: None,
            last_at: None,
            is_mended: false,
        }
    }

    fn silent_at(&self) -> Instant {
        let StreamTimes { first_token, idle } = self.asked.times;
        match self.last_at {
            None => self.asked.sent_at + first_token,
            Some(last_at) => last_at + idle,
        }
    }

    fn first_token(&self) -> Option<Duration> {
        let first_at = self.first_at?;
        Some(first_at - self.asked.sent_at)
    }

    fn so_far(&self) -> Option<StreamSoFar> {
        self.last_at.map(|_has_begun| self.assembler.so_far())
    }

    /// Takes an event; `Some`: it was the last.
    fn take(&mut self, event: StreamEvent) -> Option<ChunkEnd> {
        let StreamEvent {
            name, data, is_cut, ..
        } = event;
        let data = data?;
        if is_cut {
            let has_all = self.assembler.repeats_all(&name);
            return Some(if has_all {
                ChunkEnd::TooLarge
            } else {
                ChunkEnd::Broken
            });
        }
        match data.trim_ascii() {
            b"" => return None,
            b"[DONE]" => {
                self.assembler.end();
                return Some(ChunkEnd::Ended);
            }
            _chunk => {}
        }
        let Ok((json, mended)) = output::json(&data) else {
            return Some(ChunkEnd::Unfit(data));
        };
        let Ok(chunk) = serde_json::from_str::<Map<String, Value>>(json.get()) else {
            return Some(ChunkEnd::Unfit(data));
        };
        self.is_mended |= mended.is_some();
        if name == b"error" {
            return Some(ChunkEnd::Failed(chunk));
        }
        let step = self.assembler.add(chunk);
        match step {
            StreamStep::Failed(words) => return Some(ChunkEnd::Failed(words)),
            StreamStep::Unfit => return Some(ChunkEnd::Unfit(NO_REPLY.to_vec())),
            StreamStep::More | StreamStep::Ended => self.tell(json),
        }
        if self.assembler.size() > self.asked.output_limit {
            return Some(ChunkEnd::TooLarge);
        }
        (step == StreamStep::Ended).then_some(ChunkEnd::Ended)
    }

    fn tell(&mut self, json: Box<RawValue>) {
        let now = Instant::now();
        self.first_at.get_or_insert(now);
        self.last_at = Some(now);
        let chunk = ModelChunks::one(self.asked.route, json);
        self.asked.progress.output(chunk);
    }

    /// What the stream came to. A reply that is whole counts, whatever became of the rest.
    fn end(self, end: ChunkEnd, is_empty: bool, mut answer: HttpAnswer) -> StreamedEnd {
        let has_begun = self.last_at.is_some();
        let AskedStream {
            dialect,
            times,
            output_limit,
            ..
        } = self.asked;
        (answer.body, answer.end) = match end {
            ChunkEnd::Failed(words) => (failed(dialect, words), BodyEnd::Whole),
            ChunkEnd::Unfit(data) => (data, BodyEnd::Whole),
            ChunkEnd::TooLarge => (Vec::new(), BodyEnd::TooLarge),
            ChunkEnd::Ended | ChunkEnd::Broken | ChunkEnd::NoMore | ChunkEnd::Silent => {
                let is_silent = matches!(end, ChunkEnd::Silent);
                let was_cut = matches!(end, ChunkEnd::Broken);
                let reply = self.assembler.reply();
                match reply.map(|reply| Value::Object(reply).to_string().into_bytes()) {
                    Some(body) if body.len() > output_limit => (Vec::new(), BodyEnd::TooLarge),
                    Some(body) => (body, BodyEnd::Whole),
                    None if is_silent => {
                        let limit = if has_begun {
                            times.idle
                        } else {
                            times.first_token
                        };
                        return StreamedEnd::Silent(class::silent(limit, has_begun));
                    }
                    // It was no stream at all.
                    None if !has_begun && !was_cut && is_empty => (Vec::new(), BodyEnd::Whole),
                    None if !has_begun && !was_cut => (NO_REPLY.to_vec(), BodyEnd::Whole),
                    None => (Vec::new(), BodyEnd::Broken),
                }
            }
        };
        StreamedEnd::Answer(answer)
    }
}

/// The words of a vendor as the body of an answer that says that the request has failed.
fn failed(dialect: &dyn Dialect, words: Map<String, Value>) -> Vec<u8> {
    let has_failed = dialect.has_failed(&words);
    let words = Value::Object(words);
    let words = if has_failed {
        words
    } else {
        serde_json::json!({ "error": words })
    };
    words.to_string().into_bytes()
}

//! Reads an answer that comes as a stream of events, also where that breaks off and the server lets it be taken up again.
//!
//! A server of the older revision that gives its events ids keeps what comes behind them, and may close a stream when it likes: a GET
//! with the last id goes on there. It is never the request again. Where that does not lead to the answer, what became of the call is what
//! the first break says: of a write, unknown.

use std::time::Duration;

use fleet::{
    outcome::ToolFailure,
    wire::{code::Code, message::Message},
};
use reqwest::{Response, StatusCode, header::HeaderValue};
use tokio::time::{Instant, sleep};

use super::{
    aside::{self, LONG},
    came::Came,
    http::{ENVELOPE_MAX, Reading, SKIMMED_MAX, broke_off, is_stream},
    message::{self, ASKED_ID_MAX, Incoming, Revision, is_id},
};
use crate::executors::http::sse::{Events, StreamPlace};

/// The most bytes of a stream beside its answer.
const STREAM_MAX: usize = 16 * 1024 * 1024;
/// How many questions of a server are answered on the streams of one call.
const QUESTIONS_MAX: usize = 32;
/// How often a stream is taken up again, and how often in a row nothing may come of it.
const RESUMED_MAX: u32 = 1_000;
const FAILURES_MAX: u32 = 5;
/// The pause before that where the server asks for none, and the shortest.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MIN: Duration = Duration::from_millis(100);

/// Why a stream was read no further.
enum StreamEnd {
    Came(Came),
    /// It broke off, or the server closed it, before the answer.
    Broke(ToolFailure),
}

/// What may still come on the streams of one call.
struct StreamRoom {
    bytes: usize,
    questions: usize,
}

/// What has ended the reading of events.
enum Streamed {
    Over(Came),
    /// The answer, which has still to be read.
    Long(Vec<u8>),
}

/// What came of asking for the rest of a stream.
enum ReadOn {
    Stream(Box<Response>),
    /// The next one may bring it.
    Failed,
    /// The server does not have it.
    Refused,
}

impl Reading<'_> {
    /// Reads a stream of events up to the answer. What comes before is heard; answers to other requests do not count.
    pub(super) async fn stream(&self, mut response: Response) -> Came {
        let mut events = Events::skimming(self.limit.saturating_add(ENVELOPE_MAX));
        // Of all streams together.
        let mut room = StreamRoom {
            bytes: self.limit.max(SKIMMED_MAX).saturating_add(STREAM_MAX),
            questions: QUESTIONS_MAX,
        };
        let mut resumed = 0;
        loop {
            let broke = match self.events(response, &mut events, &mut room).await {
                StreamEnd::Came(came) => return came,
                StreamEnd::Broke(failure) => failure,
            };
            response = match Box::pin(self.rest(events.place(), &mut resumed)).await {
                Some(rest) => rest,
                None => return Came::NoAnswer(broke),
            };
            events = events.continued();
        }
    }

    /// The stream that goes on where another broke off, if the server has it.
    async fn rest(&self, place: &StreamPlace, resumed: &mut u32) -> Option<Response> {
        let event = HeaderValue::from_bytes(&place.id).ok()?;
        if self.revision == Revision::Modern || event.is_empty() {
            return None;
        }
        let pause = place.pause.unwrap_or(PAUSE).max(PAUSE_MIN);
        for _failure in 0..FAILURES_MAX {
            let left = self.until.saturating_duration_since(Instant::now());
            // Who has to wait for longer than there is time knows now what it would know then.
            if *resumed == RESUMED_MAX || pause >= left {
                return None;
            }
            *resumed += 1;
            sleep(pause).await;
            match self.ask_behind(event.clone()).await {
                ReadOn::Stream(response) => return Some(*response),
                ReadOn::Failed => {}
                ReadOn::Refused => return None,
            }
        }
        None
    }

    async fn ask_behind(&self, event: HeaderValue) -> ReadOn {
        let session = self.session.as_ref();
        let Ok(response) = self.target.behind(event, self.revision, session).await else {
            return ReadOn::Failed;
        };
        let status = response.status();
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            ReadOn::Failed
        } else if status == StatusCode::OK && is_stream(&response) {
            ReadOn::Stream(Box::new(response))
        } else {
            ReadOn::Refused
        }
    }

    async fn events(
        &self,
        mut response: Response,
        events: &mut Events,
        room: &mut StreamRoom,
    ) -> StreamEnd {
        let mut asked = Vec::new();
        loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => {
                    let why = Message::fixed(
                        "the MCP server's stream ended before it answered",
                        "MCP 服务器的事件流在回答之前就结束了",
                    );
                    return StreamEnd::Broke(ToolFailure::new(Code::Unavailable, why));
                }
                Err(_broken) => return StreamEnd::Broke(broke_off()),
            };
            let came = events.feed(&chunk, |event| {
                let data = event.data?;
                if event.is_cut {
                    let is_ours = event.skim.id() == self.id.to_string().as_bytes();
                    return is_ours
                        .then(|| Streamed::Over(Came::TooLarge(event.skim.came(), data)));
                }
                if data.len() > LONG {
                    // What is told or asked is never so long.
                    let is_ours =
                        event.skim.is_answer() && event.skim.id() == self.id.to_string().as_bytes();
                    return is_ours.then_some(Streamed::Long(data));
                }
                match message::read(&data) {
                    Ok(Incoming::Answer { id, answer }) => {
                        let is_ours = id.is_some_and(|id| is_id(id.get(), self.id));
                        is_ours.then_some(Streamed::Over(Came::Answer(answer)))
                    }
                    Ok(Incoming::Told { method, params }) => {
                        self.hear.told(&method, params.as_deref());
                        None
                    }
                    Ok(Incoming::Asked { id, method }) => {
                        if room.questions > 0 && id.get().len() <= ASKED_ID_MAX {
                            room.questions -= 1;
                            asked.push(message::reply(&id, &method));
                        }
                        None
                    }
                    Err(_no_message) => None,
                }
            });
            match came {
                Some(Streamed::Over(came)) => return StreamEnd::Came(came),
                Some(Streamed::Long(data)) => {
                    return StreamEnd::Came(aside::read_answer(data, self.id).await);
                }
                None => {}
            }
            for reply in asked.drain(..) {
                let session = self.session.as_ref();
                self.target.tell(reply, "", self.revision, session).await;
            }
            match room.bytes.checked_sub(chunk.len()) {
                Some(left) => room.bytes = left,
                None => {
                    let why = Message::fixed(
                        "the MCP server's stream went on beyond every bound",
                        "MCP 服务器的事件流超出了所有限制",
                    );
                    let failure = ToolFailure::new(Code::OutputTooLarge, why);
                    return StreamEnd::Came(Came::NoAnswer(failure));
                }
            }
        }
    }
}

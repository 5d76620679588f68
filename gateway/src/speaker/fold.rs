//! The fold: what is said because of one message of the stream, after all that were before it.

use std::sync::Arc;

use fleet::{
    ids::CallId,
    wire::event::{Event, Happening},
};
use time::OffsetDateTime;

use super::{
    buckets::Buckets,
    done_item::DoneItem,
    header::{CALLS_MAX, TurnCall, TurnHeader},
    input::{News, SpeakerInput},
    turn::ToldTurn,
    voice::{SpokenEvent, Voice},
};

/// How often the word may pass on because of one message. Each call opens and closes a few items at most before it waits again.
const STEPS_MAX: usize = 8 * CALLS_MAX;

/// What is said of one turn, and what it is made of so far.
///
/// Its size is bounded: 4 MiB of parts that wait, the header, and what is kept for the response's last event: at most 34 items for
/// each of its 64 calls, of which one has the call's result.
#[derive(Debug)]
pub struct Speech {
    /// The response whose header counts.
    response_id: String,
    turn: Option<ToldTurn>,
    buckets: Buckets,
    voice: Voice,
    /// The stream's time.
    now: OffsetDateTime,
    is_over: bool,
}

/// What comes of one message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spoken {
    /// What is said, in order.
    pub events: Vec<SpokenEvent>,
    /// Calls that are of no use any more, because the final one has its answer. An advice to whoever submitted the turn: each
    /// gateway that follows it gets the same, and cancelling twice is cancelling once.
    pub cancel: Vec<CallId>,
}

impl Speech {
    /// Nothing is said yet of the turn whose header names this response. Headers of other responses do not count.
    pub fn of(response_id: &str) -> Self {
        Self {
            response_id: response_id.to_owned(),
            turn: None,
            buckets: Buckets::default(),
            voice: Voice::default(),
            now: OffsetDateTime::UNIX_EPOCH,
            is_over: false,
        }
    }

    /// Hears a message, and says what follows from it. Messages are heard in the order of the stream, each once.
    ///
    /// Without the header nothing is said, and what its calls tell is kept. When the response is over nothing more is said.
    pub fn hear(&mut self, input: SpeakerInput) -> Spoken {
        self.now = self.now.max(input.at);
        if self.is_over {
            return Spoken::default();
        }
        self.voice.because_of(input.seq);
        let heard = (input.seq, self.now);
        match input.news {
            News::Header(header) => self.begin(*header, input.seq),
            News::Event(event) => self.buckets.hear(heard, event, None),
            News::Finished { event, row } => self.buckets.hear(heard, event, Some(*row)),
            News::Other => {}
        }
        let mut spoken = Spoken::default();
        if let Some(turn) = &mut self.turn {
            spoken.cancel = turn.advice(&self.buckets);
            for _step in 0..STEPS_MAX {
                if !turn.step(&mut self.buckets, self.now, &mut self.voice) {
                    break;
                }
            }
            if turn.is_told(&self.buckets) {
                turn.end(self.now, &mut self.voice);
                self.is_over = true;
            }
        }
        spoken.events = self.voice.take();
        spoken
    }

    /// Whether the row of this event's call has to be read and given along, as [`News::Finished`].
    pub fn wants_row(&self, event: &Event) -> bool {
        match event.what {
            Happening::Finished { state, .. } => {
                state.is_terminal() && !self.is_over && self.buckets.hears(event.call_id)
            }
            Happening::Accepted { .. }
            | Happening::Awaiting { .. }
            | Happening::Started { .. }
            | Happening::Progress { .. }
            | Happening::Output { .. }
            | Happening::Running { .. }
            | Happening::Retrying { .. } => false,
        }
    }

    /// Whether the response's last event was said.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Puts others in the place of the items that are done and kept for the last event, each once. They have to be the same: so all who
    /// follow a turn can have one of each.
    pub fn share(&mut self, same: impl FnMut(Arc<DoneItem>) -> Arc<DoneItem>) {
        self.voice.share(same);
    }

    /// The header, once it was heard.
    pub fn header(&self) -> Option<&TurnHeader> {
        Some(self.turn.as_ref()?.header())
    }

    /// The calls that wait for the client and were told so, as the header of the next response has those for which something is
    /// handed in. They are numbered from 0 again.
    pub fn left_for_client(&self) -> Vec<TurnCall> {
        let turn = self.turn.as_ref();
        turn.map_or_else(Vec::new, |turn| turn.left_for_client(&self.buckets))
    }

    /// The first header of the response counts.
    fn begin(&mut self, header: TurnHeader, seq: u64) {
        let is_ours = header.response_id == self.response_id && header.check().is_ok();
        if self.turn.is_some() || !is_ours {
            return;
        }
        self.buckets.adopt(&header, seq, self.now);
        let turn = ToldTurn::begin(header, self.now, &mut self.voice);
        self.turn = Some(turn);
    }
}

//! What numbers the events, and keeps the items that are done.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use super::{
    done_item::DoneItem,
    events::StreamEvent,
    ids::{SpokenId, SpokenPlace, StreamEpoch},
};

/// One event that was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpokenEvent {
    /// Its place in what is said of the session, for its id.
    pub place: SpokenPlace,
    /// Its number in the response. An extension has that of the event before it, so leaving extensions out leaves no gap.
    pub sequence_number: u64,
    /// Whether it is one of our own, for those who asked for them.
    pub is_extension: bool,
    /// Its name, which is also the `type` in its data.
    pub name: &'static str,
    /// The event as JSON, on one line.
    pub data: String,
}

impl SpokenEvent {
    /// The event as a stream of server-sent events has it, its end included.
    pub fn to_sse(&self, epoch: &StreamEpoch) -> String {
        let (name, data) = (self.name, &self.data);
        let id = SpokenId {
            epoch: epoch.clone(),
            place: self.place,
        };
        format!("id: {id}\nevent: {name}\ndata: {data}\n\n")
    }
}

/// Says events, in order.
#[derive(Debug, Default)]
pub(super) struct Voice {
    place: SpokenPlace,
    /// The number of the next event that is no extension.
    number: u64,
    said: Vec<SpokenEvent>,
    output: Vec<Arc<DoneItem>>,
    /// So many of them were given to [`Voice::share`].
    shared: usize,
}

/// An event with its number.
#[derive(Serialize)]
struct Numbered<'a> {
    #[serde(flatten)]
    event: &'a StreamEvent<'a>,
    sequence_number: u64,
}

impl Voice {
    /// From now on speaks because of the message at this place of the stream.
    pub(super) fn because_of(&mut self, seq: u64) {
        self.place = SpokenPlace { seq, k: 0 };
    }

    /// Says an event.
    pub(super) fn say(&mut self, event: &StreamEvent<'_>) {
        let is_extension = event.is_extension();
        let sequence_number = if is_extension {
            self.number.saturating_sub(1)
        } else {
            self.number += 1;
            self.number - 1
        };
        let numbered = Numbered {
            event,
            sequence_number,
        };
        self.said.push(SpokenEvent {
            place: self.place,
            sequence_number,
            is_extension,
            name: event.name(),
            data: serde_json::to_string(&numbered).expect("an event has only string keys"),
        });
        self.place.k += 1;
    }

    /// The place that the next item has in the output.
    pub(super) fn output_index(&self) -> usize {
        self.output.len()
    }

    /// Says that an item was added, at the next place of the output.
    pub(super) fn add(&mut self, item: &RawValue) {
        let output_index = self.output_index();
        self.say(&StreamEvent::ItemAdded { output_index, item });
    }

    /// Says that the item at the next place of the output is done.
    pub(super) fn done(&mut self, item: Box<RawValue>) {
        let output_index = self.output_index();
        self.say(&StreamEvent::ItemDone {
            output_index,
            item: &item,
        });
        self.output.push(Arc::new(DoneItem::new(item)));
    }

    /// The items that are done.
    pub(super) fn output(&self) -> &[Arc<DoneItem>] {
        &self.output
    }

    /// Puts others in the place of the items that came since this was asked last. They have to be the same.
    pub(super) fn share(&mut self, mut same: impl FnMut(Arc<DoneItem>) -> Arc<DoneItem>) {
        for item in &mut self.output[self.shared..] {
            *item = same(Arc::clone(item));
        }
        self.shared = self.output.len();
    }

    /// What was said since this was asked last.
    pub(super) fn take(&mut self) -> Vec<SpokenEvent> {
        std::mem::take(&mut self.said)
    }
}

//! What all calls of a turn have told and nobody has said yet. Together it is bounded.

use std::collections::HashMap;

use fleet::{ids::CallId, wire::event::Event};
use time::OffsetDateTime;

use super::{
    ending::{CallEnd, CallFailure},
    header::{TurnHeader, TurnSlot},
    heard::HeardCall,
    input::FinalRow,
};

/// What may wait to be said, in bytes. Beyond it the call with the most has its parts left out; its result is still said.
const WEIGHT_MAX: usize = 4 * 1024 * 1024;
/// How many calls are listened to before the header says which ones count.
const EARLY_MAX: usize = 256;

/// The calls of a turn. Before its header they are those that told something; from then on they are those of the header, by index.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    calls: Vec<HeardCall>,
    places: HashMap<CallId, usize>,
    weight: usize,
    has_header: bool,
}

impl Buckets {
    /// Hears an event of a call. One of a call that is none of the turn's, or is hidden, is not heard.
    pub(super) fn hear(
        &mut self,
        heard: (u64, OffsetDateTime),
        event: Event,
        row: Option<FinalRow>,
    ) {
        let Some(place) = self.place(event.call_id) else {
            return;
        };
        let call = &mut self.calls[place];
        let before = call.weight();
        call.hear(heard, event, row);
        self.weight = self.weight - before + call.weight();
        while self.weight > WEIGHT_MAX {
            self.leave_out_the_longest();
        }
    }

    /// Takes the calls of the header in the place of those that were heard, which keep what they told.
    pub(super) fn adopt(&mut self, header: &TurnHeader, seq: u64, at: OffsetDateTime) {
        let early = std::mem::take(&mut self.places);
        let mut heard: Vec<Option<HeardCall>> = self.calls.drain(..).map(Some).collect();
        for (place, call) in header.calls.iter().enumerate() {
            let mut taken = match &call.slot {
                TurnSlot::CallId(_) if !call.is_shown() => HeardCall::default(),
                TurnSlot::CallId(id) => {
                    self.places.insert(*id, place);
                    let early = early.get(id).and_then(|early| heard[*early].take());
                    early.unwrap_or_default()
                }
                TurnSlot::Refused { code, message, .. } => {
                    let failure = CallFailure::told(*code, message.clone());
                    HeardCall::refused(seq, CallEnd::Failure(failure))
                }
            };
            if let Some(told_until) = call.told_until {
                taken.forget_until(told_until);
            }
            taken.counts_from(at);
            self.calls.push(taken);
        }
        self.weight = self.calls.iter().map(HeardCall::weight).sum();
        self.has_header = true;
    }

    /// Whether events of this call are heard.
    pub(super) fn hears(&self, call: CallId) -> bool {
        match self.places.get(&call) {
            Some(place) => !self.calls[*place].has_ended(),
            None => !self.has_header,
        }
    }

    /// Does something to the call at this place that may change what it weighs.
    pub(super) fn with<R>(&mut self, place: usize, act: impl FnOnce(&mut HeardCall) -> R) -> R {
        let call = &mut self.calls[place];
        let before = call.weight();
        let done = act(call);
        self.weight = self.weight - before + call.weight();
        done
    }

    /// The calls, by index once there is a header.
    pub(super) fn calls(&self) -> &[HeardCall] {
        &self.calls
    }

    fn place(&mut self, call: CallId) -> Option<usize> {
        let known = self.places.get(&call).copied();
        if known.is_some() || self.has_header || self.calls.len() >= EARLY_MAX {
            return known;
        }
        self.calls.push(HeardCall::default());
        self.places.insert(call, self.calls.len() - 1);
        Some(self.calls.len() - 1)
    }

    fn leave_out_the_longest(&mut self) {
        let mut longest = 0;
        for (place, call) in self.calls.iter().enumerate() {
            if call.weight() > self.calls[longest].weight() {
                longest = place;
            }
        }
        self.with(longest, HeardCall::break_off);
    }
}

//! Going on where a follower was: the whole fold again, without what the follower has.

use super::{fold::Speech, ids::SpokenPlace, input::SpeakerInput, voice::SpokenEvent};

/// Where a follower goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Resume {
    /// It has nothing yet.
    #[default]
    Start,
    /// It has everything up to this event, which is exact.
    BehindId(SpokenPlace),
    /// It has everything up to this number (`starting_after`). Extensions that have the same number are left out with it.
    BehindNumber(u64),
}

impl Resume {
    /// Whether the follower still needs this event.
    pub fn needs(self, event: &SpokenEvent) -> bool {
        match self {
            Self::Start => true,
            Self::BehindId(place) => event.place > place,
            Self::BehindNumber(number) => event.sequence_number > number,
        }
    }

    /// All that is said because of these messages, from the first one of the session, and that the follower still needs.
    pub fn replay(
        self,
        speech: &mut Speech,
        inputs: impl IntoIterator<Item = SpeakerInput>,
    ) -> Vec<SpokenEvent> {
        let mut needed = Vec::new();
        for input in inputs {
            let spoken = speech.hear(input).events.into_iter();
            needed.extend(spoken.filter(|event| self.needs(event)));
        }
        needed
    }
}

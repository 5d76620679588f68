//! Faults that strike at random, and always the same ones for a seed.

use std::sync::{Mutex, PoisonError};

use super::{Fault, Message};
use crate::seed;

/// The longest that noise delays a message.
const DELAY_MAX_MS: u64 = 1_500;

/// How much of it there is.
#[derive(Debug, Default)]
pub(super) struct Noise(Mutex<Level>);

#[derive(Debug, Default, Clone, Copy)]
struct Level {
    seed: u64,
    per_mille: u64,
}

impl Noise {
    /// From now on this much.
    pub(super) fn set(&self, seed: u64, per_mille: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Level { seed, per_mille };
    }

    /// What happens to the nth of this kind.
    pub(super) fn fault(&self, kind: Message, nth: u64) -> Option<Fault> {
        let Level { seed, per_mille } = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = match kind {
            Message::Publish => "publish",
            Message::PubAck => "pub_ack",
            Message::Deliver => "deliver",
            Message::Ack => "ack",
            Message::Request => "request",
            Message::Reply => "reply",
            Message::Tool | Message::Other => return None,
        };
        if !seed::happens(seed, nth, &format!("noise {name}"), per_mille) {
            return None;
        }
        let salt = |what: &str| format!("noise {name} {what}");
        Some(match seed::below(seed, nth, &salt("fault"), 4) {
            0 => Fault::Drop,
            1 => Fault::Duplicate,
            2 => Fault::Reorder,
            _delayed => {
                let ms = 1 + seed::below(seed, nth, &salt("delay"), DELAY_MAX_MS);
                Fault::Delay(u32::try_from(ms).unwrap_or(u32::MAX))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_as_loud_as_it_is_set_and_the_same_for_a_seed() {
        let struck = |seed: u64, kind| {
            let noise = Noise::default();
            noise.set(seed, 50);
            let faults =
                (1..=2_000).filter_map(|nth| noise.fault(kind, nth).map(|fault| (nth, fault)));
            faults.collect::<Vec<_>>()
        };
        let faults = struck(7, Message::Ack);
        assert!((60..140).contains(&faults.len()), "{}", faults.len());
        assert_eq!(faults, struck(7, Message::Ack));
        assert_ne!(faults, struck(8, Message::Ack));
        assert_ne!(faults, struck(7, Message::Reply));
        for fault in [Fault::Drop, Fault::Duplicate, Fault::Reorder] {
            assert!(faults.iter().any(|(_, one)| *one == fault), "{fault:?}");
        }
        assert!(faults.iter().any(|(_, one)| matches!(one, Fault::Delay(_))));
        assert_eq!(struck(7, Message::Other), []);
    }

    #[test]
    fn there_is_none_at_first() {
        assert_eq!(Noise::default().fault(Message::Ack, 1), None);
    }
}

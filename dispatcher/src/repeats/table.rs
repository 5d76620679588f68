//! How often the same call failed in a run or a session: bounded memory, which forgets.

use std::{collections::HashMap, time::Duration};

use fleet::wire::code::Code;
use tokio::time::Instant;

/// What is the same: a tenant's run or session, a tool and its arguments, as a hash.
pub(crate) type RepeatKey = [u8; 16];

/// How long failures count, from the first of them.
pub(super) const COUNTED_FOR: Duration = Duration::from_secs(15 * 60);
/// How many calls each of the two generations remembers.
const GENERATION_MAX: usize = 25_000;

/// The failures of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failures {
    /// How many there were.
    pub(super) count: u32,
    /// The last one's code.
    pub(super) last: Code,
    first: Instant,
}

/// The calls that failed of late, in two generations: when the young one is full, it becomes the old one, and the old one is
/// forgotten. So at least the last [`GENERATION_MAX`] calls are remembered.
#[derive(Debug, Default)]
pub(super) struct FailureTable {
    young: HashMap<RepeatKey, Failures>,
    old: HashMap<RepeatKey, Failures>,
}

impl FailureTable {
    /// The failures that count still.
    pub(super) fn get(&self, key: &RepeatKey, now: Instant) -> Option<Failures> {
        let found = self.young.get(key).or_else(|| self.old.get(key));
        let counts = |found: &Failures| now.saturating_duration_since(found.first) < COUNTED_FOR;
        found.copied().filter(counts)
    }

    /// It failed.
    pub(super) fn failed(&mut self, key: RepeatKey, code: Code, now: Instant) {
        let before = self.get(&key, now);
        let failures = Failures {
            count: before.map_or(1, |before| before.count.saturating_add(1)),
            last: code,
            first: before.map_or(now, |before| before.first),
        };
        if self.young.len() >= GENERATION_MAX && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, failures);
    }

    /// It succeeded. Returns whether it had failed before.
    pub(super) fn succeeded(&mut self, key: &RepeatKey) -> bool {
        let young = self.young.remove(key).is_some();
        self.old.remove(key).is_some() || young
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> RepeatKey {
        u128::from(n).to_be_bytes()
    }

    #[test]
    fn failures_count_for_a_quarter_of_an_hour_and_until_a_success() {
        let (mut table, began) = (FailureTable::default(), Instant::now());
        let count =
            |table: &FailureTable, at| table.get(&key(1), at).map(|failures| failures.count);
        for n in 1..=3 {
            table.failed(key(1), Code::Unavailable, began + Duration::from_secs(n));
        }
        table.failed(key(2), Code::Timeout, began);
        assert_eq!(count(&table, began), Some(3));
        let (first, edge) = (began + Duration::from_secs(1), Duration::from_millis(1));
        assert_eq!(count(&table, first + COUNTED_FOR - edge), Some(3));
        assert_eq!(count(&table, first + COUNTED_FOR), None);
        table.failed(key(1), Code::Timeout, first + COUNTED_FOR);
        assert_eq!(count(&table, first + COUNTED_FOR), Some(1));
        assert!(table.succeeded(&key(1)) && !table.succeeded(&key(1)));
        assert_eq!(count(&table, began), None);
        assert_eq!(table.get(&key(2), began).unwrap().last, Code::Timeout);
    }

    #[test]
    fn no_more_is_remembered_than_two_generations_and_the_last_one_always() {
        let (mut table, now) = (FailureTable::default(), Instant::now());
        let all = u32::try_from(GENERATION_MAX).unwrap();
        for n in 0..3 * all {
            table.failed(key(n), Code::Timeout, now);
            assert!(table.young.len() + table.old.len() <= 2 * GENERATION_MAX);
        }
        for n in 2 * all..3 * all {
            assert!(table.get(&key(n), now).is_some(), "{n}");
        }
        assert!(table.get(&key(0), now).is_none());
        // What fails again moves to the young generation, and is there once.
        table.failed(key(2 * all), Code::Timeout, now);
        assert_eq!(table.get(&key(2 * all), now).unwrap().count, 2);
        assert!(table.succeeded(&key(2 * all)));
        assert!(table.get(&key(2 * all), now).is_none());
    }
}

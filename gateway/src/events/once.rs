//! Large texts that are in memory once, however many have them: followers of one turn are told the same.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher as _,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use crate::speaker::DoneItem;

/// Shorter texts are not looked for: that would cost more than it saves.
pub(super) const LARGE: usize = 16 * 1024;
/// Entries of texts that nobody has any more, before they are looked for.
const STALE_MAX: usize = 256;

/// What followers of turns are told.
#[derive(Debug, Default)]
pub(crate) struct Stories {
    /// The answers of calls.
    pub(crate) answers: Once<String>,
    /// The items of responses.
    pub(crate) items: Once<DoneItem>,
    /// The events as they are sent.
    pub(crate) events: Once<String>,
}

/// Texts that somebody has.
#[derive(Debug)]
pub(crate) struct Once<T> {
    hasher: RandomState,
    known: Mutex<Known<T>>,
}

#[derive(Debug)]
struct Known<T> {
    /// By their hashes: of two texts with one hash the later is found.
    by_hash: HashMap<u64, Weak<T>>,
    /// With so many entries it is looked for those of texts that nobody has.
    swept_at: usize,
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self {
            hasher: RandomState::default(),
            known: Mutex::new(Known {
                by_hash: HashMap::new(),
                swept_at: STALE_MAX,
            }),
        }
    }
}

impl<T: AsRef<str>> Once<T> {
    /// The same text that somebody has already, or this one.
    pub(crate) fn of(&self, one: T) -> Arc<T> {
        self.shared(Arc::new(one))
    }

    /// The same text that somebody has already, or this one.
    pub(crate) fn shared(&self, one: Arc<T>) -> Arc<T> {
        let text = (*one).as_ref();
        if text.len() < LARGE {
            return one;
        }
        let hash = self.hasher.hash_one(text);
        let found = self.known().by_hash.get(&hash).and_then(Weak::upgrade);
        // Compared without the lock: megabytes take a while.
        if let Some(found) = found.filter(|found| (**found).as_ref() == text) {
            return found;
        }
        let mut known = self.known();
        if known.by_hash.len() >= known.swept_at {
            known.by_hash.retain(|_, text| text.strong_count() > 0);
            known.swept_at = 2 * known.by_hash.len() + STALE_MAX;
        }
        known.by_hash.insert(hash, Arc::downgrade(&one));
        one
    }

    fn known(&self) -> MutexGuard<'_, Known<T>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(first: usize) -> String {
        format!("{first:0>width$}", width = LARGE)
    }

    #[test]
    fn a_large_text_is_there_once_as_long_as_somebody_has_it() {
        let once = Once::default();
        let first = once.of(text(1));
        assert!(Arc::ptr_eq(&first, &once.of(text(1))));
        assert!(!Arc::ptr_eq(&first, &once.of(text(2))));
        let short = once.of("short".to_owned());
        assert!(!Arc::ptr_eq(&short, &once.of("short".to_owned())));
        drop(first);
        let last = once.of(text(1));
        assert_eq!(Arc::strong_count(&last), 1);
    }

    #[test]
    fn what_nobody_has_is_forgotten() {
        let once = Once::default();
        for first in 0..10 * STALE_MAX {
            once.of(text(first));
        }
        assert!(once.known().by_hash.len() <= STALE_MAX);
    }
}

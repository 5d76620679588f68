//! The permit to publish one more pointer, as a value: whatever happens to its call, an unused permit gives its room back when
//! it is dropped.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use fleet::hold::ALLOWANCE_UNKNOWN;

/// The publications of one queue that were allowed and made. The meter holds one reference, each permit another.
#[derive(Debug)]
pub(super) struct Books {
    /// Publications that were allowed so far.
    allowed: AtomicU64,
    /// How many of them were made. The others are still under way, each as a permit.
    made: AtomicU64,
    /// How many may be allowed until the next look at the stream.
    until: AtomicU64,
}

/// The permit to publish one pointer. Dropped unused, it gives its room back.
#[derive(Debug)]
#[must_use = "a permit that is dropped allows nothing"]
pub(crate) struct Permit {
    /// `None` once it was used.
    books: Option<Arc<Books>>,
}

impl Permit {
    /// The pointer was given to the stream, or may have been: the next count of the stream tells.
    pub(crate) fn used(mut self) {
        if let Some(books) = self.books.take() {
            books.made.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(books) = self.books.take() {
            books.give_back(1);
        }
    }
}

impl Default for Books {
    fn default() -> Self {
        Self {
            allowed: AtomicU64::new(0),
            made: AtomicU64::new(0),
            until: AtomicU64::new(ALLOWANCE_UNKNOWN),
        }
    }
}

impl Books {
    /// Allows one more publication if there is room for it.
    pub(super) fn permit(self: &Arc<Self>) -> Option<Permit> {
        // Relaxed: only this counter decides, and no other memory depends on it.
        let allowing = |allowed: u64| {
            let until = self.until.load(Ordering::Relaxed);
            (allowed < until).then_some(allowed + 1)
        };
        self.allowed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, allowing)
            .ok()?;
        Some(Permit {
            books: Some(Arc::clone(self)),
        })
    }

    /// Counts publications that are made without a permit.
    pub(super) fn count(&self, publications: u64) {
        self.allowed.fetch_add(publications, Ordering::Relaxed);
        self.made.fetch_add(publications, Ordering::Relaxed);
    }

    fn give_back(&self, publications: u64) {
        let less = |allowed: u64| Some(allowed.saturating_sub(publications));
        let (Ok(_before) | Err(_before)) =
            self.allowed
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// For how many more there is room now.
    pub(super) fn room(&self) -> u64 {
        let allowed = self.allowed.load(Ordering::Relaxed);
        self.until.load(Ordering::Relaxed).saturating_sub(allowed)
    }

    /// Publications that were allowed so far.
    pub(super) fn allowed(&self) -> u64 {
        self.allowed.load(Ordering::Relaxed)
    }

    /// Publications that were made so far, never more than were allowed.
    pub(super) fn made(&self) -> u64 {
        let made = self.made.load(Ordering::Relaxed);
        made.min(self.allowed.load(Ordering::Relaxed))
    }

    /// Allows `room` publications beyond the `made` ones of the moment when the stream was looked at.
    pub(super) fn allow_until(&self, made: u64, room: u64) {
        self.until
            .store(made.saturating_add(room), Ordering::Relaxed);
    }

    /// How many publications count as under way without a permit. A permit that ends during the count may be among them.
    fn phantoms(self: &Arc<Self>) -> u64 {
        let allowed = self.allowed.load(Ordering::Relaxed);
        let on_their_way = allowed.saturating_sub(self.made.load(Ordering::Relaxed));
        let permits = Arc::strong_count(self).saturating_sub(1);
        on_their_way.saturating_sub(permits as u64)
    }

    /// Checks that every publication under way has a permit. Gives back those for which several looks in a row found none;
    /// returns their number.
    pub(super) fn audit(self: &Arc<Self>, audit: &mut Audit) -> u64 {
        let phantoms = audit.learn(self.phantoms());
        self.give_back(phantoms);
        phantoms
    }
}

/// The findings of the last audits.
#[derive(Debug, Default)]
pub(super) struct Audit {
    /// How many in a row found something.
    times: u32,
    /// The least that any of them found.
    least: u64,
}

impl Audit {
    /// So many audits in a row must agree: permits come and go while they are counted.
    const AGREE: u32 = 3;

    /// Adds a finding; returns the number that is beyond doubt.
    fn learn(&mut self, phantoms: u64) -> u64 {
        if phantoms == 0 {
            *self = Self::default();
            return 0;
        }
        self.least = match self.times {
            0 => phantoms,
            _ => self.least.min(phantoms),
        };
        self.times += 1;
        if self.times < Self::AGREE {
            return 0;
        }
        mem::take(self).least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_that_is_not_used_is_back_when_it_is_dropped() {
        let books = Arc::new(Books::default());
        let permits: Vec<Permit> = (0..100).map_while(|_| books.permit()).collect();
        assert_eq!(permits.len() as u64, ALLOWANCE_UNKNOWN);
        assert!(books.permit().is_none());
        drop(permits);
        assert_eq!((books.allowed(), books.made()), (0, 0));
        assert_eq!(books.room(), ALLOWANCE_UNKNOWN);
    }

    #[test]
    fn a_permit_that_is_used_stays_taken_until_the_stream_is_looked_at() {
        let books = Arc::new(Books::default());
        for _ in 0..10 {
            books.permit().unwrap().used();
        }
        assert_eq!((books.allowed(), books.made()), (10, 10));
        assert_eq!(books.room(), ALLOWANCE_UNKNOWN - 10);
        books.allow_until(books.made(), ALLOWANCE_UNKNOWN);
        assert_eq!(books.room(), ALLOWANCE_UNKNOWN);
    }

    #[test]
    fn a_thread_that_panics_keeps_no_permit() {
        let books = Arc::new(Books::default());
        let door = Arc::clone(&books);
        let door = std::thread::spawn(move || {
            let _permit = door.permit();
            panic!("on its way");
        });
        assert!(door.join().is_err());
        assert_eq!(books.room(), ALLOWANCE_UNKNOWN);
    }

    #[test]
    fn many_doors_share_the_room() {
        let books = Arc::new(Books::default());
        let doors: Vec<_> = (0..4)
            .map(|_| {
                let books = Arc::clone(&books);
                std::thread::spawn(move || {
                    let permits = (0..100).map_while(|_| books.permit());
                    permits.map(Permit::used).count() as u64
                })
            })
            .collect();
        let allowed: u64 = doors.into_iter().map(|door| door.join().unwrap()).sum();
        assert_eq!(allowed, ALLOWANCE_UNKNOWN);
        assert_eq!(books.room(), 0);
    }

    #[test]
    fn books_without_permits_for_what_they_say_are_put_right_by_the_third_audit() {
        let books = Arc::new(Books::default());
        let mut audit = Audit::default();
        // As if thirty permits had been forgotten; two are really out.
        let out = [books.permit().unwrap(), books.permit().unwrap()];
        books.allowed.fetch_add(30, Ordering::Relaxed);
        assert_eq!(books.audit(&mut audit), 0);
        assert_eq!(books.audit(&mut audit), 0);
        assert_eq!(books.room(), ALLOWANCE_UNKNOWN - 32);
        assert_eq!(books.audit(&mut audit), 30);
        assert_eq!(books.room(), ALLOWANCE_UNKNOWN - 2);
        drop(out);
        assert_eq!((books.allowed(), books.made()), (0, 0));
        assert_eq!(books.audit(&mut audit), 0);
    }

    #[test]
    fn permits_that_come_and_go_are_never_written_off() {
        let books = Arc::new(Books::default());
        let mut audit = Audit::default();
        for _ in 0..10 {
            let out = books.permit();
            assert_eq!(books.audit(&mut audit), 0);
            drop(out);
        }
        assert_eq!([5, 7].map(|phantoms| audit.learn(phantoms)), [0, 0]);
        assert_eq!(audit.learn(0), 0, "it was only passing");
        assert_eq!([9, 4, 6].map(|phantoms| audit.learn(phantoms)), [0, 0, 4]);
    }
}

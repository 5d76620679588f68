//! Chance that can be repeated: the same seed draws the same.

/// `SplitMix64`; small, and good enough to choose with.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The stream of one of many parts of a run.
    pub(crate) fn new(seed: u64, part: u64) -> Self {
        let mut chance = Self(seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        chance.next();
        chance
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) const fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Whether something happens that does so `percent` times in a hundred.
    pub(crate) const fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of some, which are not none.
    pub(crate) fn of<'a, T>(&mut self, some: &'a [T]) -> &'a T {
        &some[self.below(some.len())]
    }

    /// One of some that may be none.
    pub(crate) fn pick<T: Clone>(&mut self, some: &[T]) -> Option<T> {
        (!some.is_empty()).then(|| self.of(some).clone())
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

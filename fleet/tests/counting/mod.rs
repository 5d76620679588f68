//! Counting what is allocated, and holding it against what was stored. No time is looked at.
//!
//! A count does not depend on the machine, its load or the speed of its disk. What else happens in the process can only
//! add to it, so the least of a few counts is the work's own.

use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// How often a piece of work is counted.
pub(crate) const TIMES: usize = 5;

/// What a piece of work allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    /// Allocations, growing ones again each time.
    pub(crate) blocks: u64,
    /// Bytes in all of them.
    pub(crate) bytes: u64,
}

impl Count {
    pub(crate) const fn of(blocks: u64, bytes: u64) -> Self {
        Self { blocks, bytes }
    }

    /// A tenth above: rounded down, so that of what allocates less than ten times not one more is let pass.
    const fn limit(self) -> Self {
        Self::of(self.blocks + self.blocks / 10, self.bytes + self.bytes / 10)
    }

    const fn is_within(self, limit: Self) -> bool {
        self.blocks <= limit.blocks && self.bytes <= limit.bytes
    }

    /// The smaller of both, each.
    pub(crate) fn least(self, other: Self) -> Self {
        Self::of(self.blocks.min(other.blocks), self.bytes.min(other.bytes))
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} allocations, {} bytes", self.blocks, self.bytes)
    }
}

/// The counter. There is one in a process; who wants it waits.
pub(crate) struct Counter {
    _profiler: dhat::Profiler,
    _alone: MutexGuard<'static, ()>,
}

impl Counter {
    pub(crate) fn start() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let profiler = dhat::Profiler::builder().testing();
        Self {
            _profiler: profiler.trim_backtraces(Some(4)).build(),
            _alone: alone,
        }
    }

    /// What was allocated so far, by any thread.
    pub(crate) fn now(&self) -> Count {
        let stats = dhat::HeapStats::get();
        Count::of(stats.total_blocks, stats.total_bytes)
    }

    /// What was allocated since then.
    pub(crate) fn since(&self, then: Count) -> Count {
        let now = self.now();
        Count::of(now.blocks - then.blocks, now.bytes - then.bytes)
    }
}

/// A piece of work and what it allocated when it was last looked at closely.
pub(crate) struct Stored {
    pub(crate) what: &'static str,
    pub(crate) count: Count,
}

impl Stored {
    pub(crate) const fn new(what: &'static str, blocks: u64, bytes: u64) -> Self {
        Self {
            what,
            count: Count::of(blocks, bytes),
        }
    }

    /// What is to be said about this count; `None` where it is as it should be.
    pub(crate) fn verdict(&self, counted: Count) -> Option<String> {
        let (what, stored, limit) = (self.what, self.count, self.count.limit());
        let entry = format!("({what:?}, {}, {})", counted.blocks, counted.bytes);
        if !counted.is_within(limit) {
            return Some(format!(
                "{what}: {counted}; the limit is {limit} (stored: {stored}).\n  Find out what allocates more. If it is worth \
                 it, store {entry} in the same commit and say there why."
            ));
        }
        // A limit twice as high as what it bounds lets a doubling pass.
        let is_far_below = counted.blocks < stored.blocks / 2 || counted.bytes < stored.bytes / 2;
        is_far_below.then(|| {
            format!("{what}: {counted}, less than half of what is stored ({stored}).\n  Good: store {entry} in the same commit.")
        })
    }
}

/// Prints every count beside what is stored, then fails if one of them is not as it should be.
#[expect(clippy::print_stdout, reason = "whoever stores a figure reads it here")]
pub(crate) fn judge(stored: &[Stored], counted: &[(&str, Count)]) {
    let mut verdicts = Vec::new();
    for (what, count) in counted {
        let stored = stored.iter().find(|stored| stored.what == *what);
        match stored {
            Some(stored) => {
                println!("{what}: {count}; stored: {}", stored.count);
                verdicts.extend(stored.verdict(*count));
            }
            None => verdicts.push(format!("{what}: {count}; nothing is stored for it")),
        }
    }
    for stored in stored {
        if !counted.iter().any(|(what, _)| *what == stored.what) {
            verdicts.push(format!("{}: is stored and not counted", stored.what));
        }
    }
    assert!(
        verdicts.is_empty(),
        "see docs/performance.md, \"What may not grow unnoticed\"\n{}",
        verdicts.join("\n")
    );
}

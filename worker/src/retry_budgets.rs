//! Retry budgets: how many further attempts this worker may ask for, tool by tool.
//!
//! A tool that says `retry.budget` has a token bucket in each worker: a first attempt brings `budget` tokens, another attempt
//! costs one. So a tool that always fails is asked at most `1 + budget` times for each call, and not `max_attempts` times.

use std::{
    collections::{HashMap, VecDeque},
    sync::Mutex,
};

use fleet::{ids::ToolName, telemetry::metrics};
use tokio::time::Instant;

/// Parts of a token: what is added up has no rounding.
const TOKEN: u64 = 1_000;
/// How many tokens a bucket begins with, and holds at least: a tool that is seldom called is tried again all the same.
const TOKENS_MIN: u64 = 10 * TOKEN;
/// How many seconds of first attempts a bucket holds, if that is more.
const SECONDS: u64 = 10;

/// The buckets of a worker, one for each tool that has a budget and was called.
pub(crate) struct RetryBudgets {
    began: Instant,
    tools: Mutex<HashMap<ToolName, Bucket>>,
}

impl RetryBudgets {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            tools: Mutex::default(),
        }
    }

    /// A first attempt was made.
    pub(crate) fn earn(&self, tool: &ToolName, budget: f64) {
        self.with(tool, |bucket, second| bucket.earn(second, parts(budget)));
    }

    /// Takes a token for another attempt. Returns whether there was one.
    pub(crate) fn take(&self, tool: &ToolName) -> bool {
        self.with(tool, Bucket::take)
    }

    fn with<T>(&self, tool: &ToolName, change: impl FnOnce(&mut Bucket, u64) -> T) -> T {
        let mut tools = self
            .tools
            .lock()
            .expect("no thread panics while holding the budgets");
        if !tools.contains_key(tool) {
            tools.insert(tool.clone(), Bucket::new());
            metrics().has_retry_budget(tool);
        }
        let bucket = tools.get_mut(tool).expect("it was just made");
        change(bucket, self.began.elapsed().as_secs())
    }
}

/// A budget in parts of a token.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a manifest's budget is 0 to 1"
)]
fn parts(budget: f64) -> u64 {
    (budget * TOKEN as f64).round() as u64
}

/// The tokens of a tool.
#[derive(Debug)]
struct Bucket {
    left: u64,
    /// What the last seconds brought, the oldest first.
    brought: VecDeque<(u64, u64)>,
}

impl Bucket {
    const fn new() -> Self {
        Self {
            left: TOKENS_MIN,
            brought: VecDeque::new(),
        }
    }

    fn earn(&mut self, second: u64, parts: u64) {
        match self.brought.back_mut() {
            Some((last, brought)) if *last == second => *brought += parts,
            Some(_) | None => self.brought.push_back((second, parts)),
        }
        self.left += parts;
        self.forget(second);
    }

    fn take(&mut self, second: u64) -> bool {
        self.forget(second);
        let enough = self.left >= TOKEN;
        if enough {
            self.left -= TOKEN;
        }
        enough
    }

    fn forget(&mut self, second: u64) {
        while self
            .brought
            .front()
            .is_some_and(|(old, _)| old + SECONDS <= second)
        {
            self.brought.pop_front();
        }
        let brought = self.brought.iter().map(|(_, parts)| parts).sum();
        self.left = self.left.min(TOKENS_MIN.max(brought));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn taken(bucket: &mut Bucket, second: u64) -> usize {
        std::iter::from_fn(|| bucket.take(second).then_some(())).count()
    }

    #[test]
    fn a_bucket_begins_with_ten_and_gets_what_first_attempts_bring() {
        let mut bucket = Bucket::new();
        assert_eq!(taken(&mut bucket, 0), 10);
        (0..50).for_each(|_| bucket.earn(0, parts(0.2)));
        assert_eq!(taken(&mut bucket, 0), 10);
        (0..4).for_each(|_| bucket.earn(1, parts(0.2)));
        assert_eq!(taken(&mut bucket, 1), 0, "four fifths are no token");
    }

    #[test]
    fn a_bucket_holds_ten_or_what_ten_seconds_brought() {
        let mut bucket = Bucket::new();
        (0..100).for_each(|_| bucket.earn(0, parts(0.2)));
        assert_eq!(
            taken(&mut bucket, 9),
            20,
            "what began it was no more than is held"
        );
        (0..100).for_each(|_| bucket.earn(20, parts(0.2)));
        assert_eq!(taken(&mut bucket, 30), 10);
        assert_eq!(bucket.brought.len(), 0);
    }

    proptest! {
        #[test]
        fn no_more_is_taken_than_ten_and_what_was_brought(
            steps in prop::collection::vec((0_u64..3, prop::bool::ANY), 0..400),
            budget in 0.0_f64..=1.0,
        ) {
            let (mut bucket, mut second, mut brought, mut spent) = (Bucket::new(), 0, 0, 0);
            for (later, earns) in steps {
                second += later;
                if earns {
                    bucket.earn(second, parts(budget));
                    brought += parts(budget);
                } else {
                    spent += u64::from(bucket.take(second)) * TOKEN;
                }
                prop_assert!(spent <= TOKENS_MIN + brought);
                prop_assert!(bucket.brought.len() <= usize::try_from(SECONDS).unwrap());
            }
        }
    }
}

//! So many calls a second, and no more.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The most calls of a step. What is interrupted in the middle of one may be done or not.
const STEP: usize = 100;
/// How many steps a second has, where it has more calls than steps: so a second never has noticeably more than it may.
const STEPS_A_SECOND: u32 = 10;

/// When the next step may begin.
#[derive(Debug)]
pub(super) struct Pace {
    per_call: Duration,
    step: usize,
    next: Instant,
}

impl Pace {
    pub(super) fn new(per_second: u32) -> Self {
        Self {
            per_call: Duration::from_secs(1) / per_second.max(1),
            step: usize::try_from(per_second / STEPS_A_SECOND)
                .map_or(STEP, |step| step.clamp(1, STEP)),
            next: Instant::now(),
        }
    }

    /// How many calls a step has: a tenth of what a second may have, at least one and at most a hundred.
    pub(super) const fn step(&self) -> usize {
        self.step
    }

    /// Waits until so many calls may be asked for. What took longer than it may is not made up for.
    pub(super) async fn before(&mut self, calls: usize) {
        sleep_until(self.next).await;
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        self.next = Instant::now() + self.per_call.saturating_mul(calls);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_second_has_more_calls_than_it_may() {
        for per_second in [1, 3, 5, 20, 200, 1_000, 10_000] {
            let mut pace = Pace::new(per_second);
            let began = Instant::now();
            let mut steps = Vec::new();
            while began.elapsed() < Duration::from_secs(3) {
                pace.before(pace.step()).await;
                steps.push((began.elapsed(), pace.step()));
            }
            for (from, _) in &steps {
                let second = *from..*from + Duration::from_millis(990);
                let calls: usize = steps
                    .iter()
                    .filter_map(|(at, calls)| second.contains(at).then_some(calls))
                    .sum();
                assert!(
                    calls <= per_second as usize,
                    "{calls} in a second, of {per_second}"
                );
            }
        }
    }
}

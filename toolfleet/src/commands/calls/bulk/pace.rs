//! So many calls a second, and no more.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// When the next step may begin.
#[derive(Debug)]
pub(super) struct Pace {
    per_call: Duration,
    next: Instant,
}

impl Pace {
    pub(super) fn new(per_second: u32) -> Self {
        Self {
            per_call: Duration::from_secs(1) / per_second.max(1),
            next: Instant::now(),
        }
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
    async fn steps_of_a_hundred_at_200_a_second_are_half_a_second_apart() {
        let began = Instant::now();
        let mut pace = Pace::new(200);
        for step in 0..4 {
            pace.before(100).await;
            assert_eq!(began.elapsed().as_millis() / 100, 5 * step);
        }
    }
}

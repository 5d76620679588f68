//! Pauses: between attempts of a call, and between attempts to reach a server.
//!
//! The only file that uses the `backoff` crate (docs/decisions/0006-backoff-in-one-module.md).

use std::time::Duration;

use backoff::{ExponentialBackoff, backoff::Backoff};
use sha2::{Digest, Sha256};

use crate::{
    ids::CallId,
    manifest::retry::{RetryPolicy, RetryStrategy},
};

/// The pause after attempt number `attempt` (from 1) failed.
///
/// Exponential growth, with the cap applied last. With `jittered`, a uniform part of it ("full jitter") from a hash of call and
/// attempt, so that every process computes the same pause.
pub fn after_attempt(policy: &RetryPolicy, call: CallId, attempt: u32) -> Duration {
    match policy.strategy {
        RetryStrategy::None => Duration::ZERO,
        RetryStrategy::Fixed => policy.base.min(policy.cap),
        RetryStrategy::Exponential => envelope(policy, attempt),
        RetryStrategy::Jittered => envelope(policy, attempt).mul_f64(fraction(call, attempt)),
    }
}

/// `base × factor^(attempt-1)`, at most `cap`.
fn envelope(policy: &RetryPolicy, attempt: u32) -> Duration {
    let mut backoff = ExponentialBackoff {
        current_interval: policy.base.min(policy.cap),
        initial_interval: policy.base.min(policy.cap),
        multiplier: policy.factor,
        max_interval: policy.cap,
        randomization_factor: 0.0,
        max_elapsed_time: None,
        ..ExponentialBackoff::default()
    };
    let mut pause = Duration::ZERO;
    for _ in 0..attempt {
        pause = backoff
            .next_backoff()
            .expect("a backoff without a total limit does not end");
    }
    pause
}

/// A number in 0..1 that depends on the call and the attempt alone.
fn fraction(call: CallId, attempt: u32) -> f64 {
    let digest = Sha256::new()
        .chain_update(call.0.as_bytes())
        .chain_update(attempt.to_be_bytes())
        .finalize();
    let bits = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}

/// The longest pause between attempts to reach a server that calls wait for.
///
/// When the server returns, the whole fleet waits for the end of this pause. A server that is gone refuses at once, so asking
/// this often costs next to nothing.
pub const SOON: Duration = Duration::from_millis(500);

/// The pauses of a reconnect loop: 100 ms to 5 s, each with a random half, until [`Reconnect::reached`].
#[derive(Debug)]
pub struct Reconnect {
    longest: Duration,
    /// `None` before the first pause: most connections need none.
    pauses: Option<ExponentialBackoff>,
}

impl Default for Reconnect {
    fn default() -> Self {
        Self::up_to(Duration::from_secs(5))
    }
}

impl Reconnect {
    /// Pauses that grow to `longest`.
    pub const fn up_to(longest: Duration) -> Self {
        Self {
            longest,
            pauses: None,
        }
    }

    /// Waits before the next attempt. Cancel-safe.
    pub async fn pause(&mut self) {
        tokio::time::sleep(self.next()).await;
    }

    /// The server answered: the next pause is short again.
    pub fn reached(&mut self) {
        self.pauses = None;
    }

    fn next(&mut self) -> Duration {
        let longest = self.longest;
        let pauses = self.pauses.get_or_insert_with(|| ExponentialBackoff {
            current_interval: Duration::from_millis(100),
            initial_interval: Duration::from_millis(100),
            multiplier: 2.0,
            max_interval: longest,
            randomization_factor: 0.5,
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        });
        pauses
            .next_backoff()
            .expect("a backoff without a total limit does not end")
    }
}

/// The pause before the NATS client's next attempt to connect, by how many have failed.
pub fn reconnect(failed: usize) -> Duration {
    let mut pauses = Reconnect::up_to(SOON);
    let mut pause = Duration::ZERO;
    for _ in 0..failed.min(8) {
        pause = pauses.next();
    }
    pause
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_exponential_pause_doubles_up_to_its_cap() {
        let policy = RetryPolicy {
            strategy: RetryStrategy::Exponential,
            cap: Duration::from_secs(3),
            ..RetryPolicy::default()
        };
        let pauses: Vec<u128> = (1..=5)
            .map(|n| after_attempt(&policy, CallId::generate(), n).as_millis())
            .collect();
        assert_eq!(pauses, [500, 1000, 2000, 3000, 3000]);
    }

    proptest! {
        #[test]
        fn a_jittered_pause_is_within_its_envelope_and_the_same_everywhere(
            id in any::<u128>(), attempt in 1_u32..20, base in 1_u64..10_000, factor in 1.0_f64..10.0, cap in 1_u64..60_000,
        ) {
            let policy = RetryPolicy {
                base: Duration::from_millis(base), factor, cap: Duration::from_millis(cap), ..RetryPolicy::default()
            };
            let call = CallId(uuid::Uuid::from_u128(id));
            let pause = after_attempt(&policy, call, attempt);
            prop_assert!(pause <= policy.cap);
            prop_assert!(pause <= envelope(&policy, attempt));
            prop_assert_eq!(pause, after_attempt(&policy, call, attempt));
        }
    }

    #[test]
    fn no_pause_before_nats_is_tried_again_holds_up_the_fleet_for_a_second() {
        assert_eq!(reconnect(0), Duration::ZERO);
        for failed in 1..100 {
            let pause = reconnect(failed);
            assert!(
                pause >= Duration::from_millis(50) && pause <= SOON.mul_f64(1.5),
                "{failed}: {pause:?}"
            );
        }
    }

    #[test]
    fn full_jitter_spreads_over_the_whole_envelope() {
        let fractions: Vec<f64> = (0..4000).map(|_| fraction(CallId::generate(), 1)).collect();
        for decile in 0..10_u32 {
            let low = f64::from(decile) / 10.0;
            let count = fractions
                .iter()
                .filter(|f| (low..low + 0.1).contains(*f))
                .count();
            assert!((250..=550).contains(&count), "{decile}: {count}");
        }
    }
}

//! The results of a workload in numbers: calls per second, latencies, errors.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;

/// Latencies, in microseconds up to ten minutes, exact to a thousandth.
#[derive(Debug)]
pub(crate) struct Latencies(Histogram<u64>);

const LONGEST: u64 = 600 * 1_000_000;

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are good"))
    }
}

impl Latencies {
    /// One more.
    pub(crate) fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(micros.max(1));
    }

    /// The time within which so many of a hundred were answered, in milliseconds; `None` if there was none.
    pub(crate) fn percentile(&self, percent: f64) -> Option<f64> {
        if self.0.is_empty() {
            return None;
        }
        Some(millis(self.0.value_at_percentile(percent)))
    }

    /// The longest, in milliseconds.
    pub(crate) fn max(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| millis(self.0.max()))
    }
}

#[expect(clippy::cast_precision_loss, reason = "ten minutes fit")]
fn millis(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

/// How often, by code.
pub(crate) type Counts = BTreeMap<String, u64>;

/// Adds calls with this code. There are few unexpected codes.
pub(crate) fn count(counts: &mut Counts, code: &str, times: u64) {
    match counts.get_mut(code) {
        Some(known) => *known += times,
        None => {
            counts.insert(code.to_owned(), times);
        }
    }
}

/// Calls per second.
#[expect(clippy::cast_precision_loss, reason = "no bench makes 2^53 calls")]
pub(crate) fn per_second(calls: u64, took: Duration) -> f64 {
    if took.is_zero() {
        return 0.0;
    }
    calls as f64 / took.as_secs_f64()
}

/// A workload against the mean of the floors before and after it; `None` without a floor.
pub(crate) fn ratio(calls_per_s: f64, floors: &[f64]) -> Option<(f64, f64)> {
    let sum: f64 = floors.iter().sum();
    #[expect(clippy::cast_precision_loss, reason = "there are two")]
    let mean = sum / floors.len().max(1) as f64;
    (mean > 0.0).then(|| (mean, calls_per_s / mean))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_everything_recorded() {
        let mut latencies = Latencies::default();
        assert_eq!((latencies.percentile(50.0), latencies.max()), (None, None));
        for millis in 1..=1000 {
            latencies.record(Duration::from_millis(millis));
        }
        let near = |percent, expected: f64| {
            let found = latencies.percentile(percent).unwrap();
            assert!(
                (found - expected).abs() / expected < 0.002,
                "{percent}: {found}"
            );
        };
        near(50.0, 500.0);
        near(95.0, 950.0);
        near(99.0, 990.0);
        near(100.0, 1000.0);
        latencies.record(Duration::from_secs(10_000));
        assert!(
            latencies.max().unwrap() >= 599_000.0,
            "what is longer counts as the longest"
        );
    }

    #[test]
    fn a_ratio_is_to_the_mean_of_the_neighbours() {
        assert_eq!(ratio(600.0, &[800.0, 1200.0]), Some((1000.0, 0.6)));
        assert_eq!(ratio(600.0, &[1000.0]), Some((1000.0, 0.6)));
        assert_eq!(ratio(600.0, &[]), None);
        assert_eq!(ratio(600.0, &[0.0, 0.0]), None);
    }

    #[test]
    fn a_rate_needs_time() {
        assert!((per_second(500, Duration::from_millis(250)) - 2000.0).abs() < 1e-9);
        assert!(per_second(500, Duration::ZERO).abs() < 1e-9);
    }
}

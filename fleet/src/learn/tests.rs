use std::collections::HashMap;

use proptest::{
    prelude::*,
    test_runner::{RngAlgorithm, TestRng},
};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn bounds(learned: LearnedFrom) -> LearnedTimeout {
    LearnedTimeout {
        learned,
        floor: SECOND / 2,
        ceiling: 60 * SECOND,
        initial: 5 * SECOND,
    }
}

fn took(limit_ms: u64, took_ms: u64, count: u64) -> RunTimes {
    RunTimes {
        limit_ms: rounded(Duration::from_millis(limit_ms)),
        took_ms,
        cut_off: took_ms >= limit_ms,
        count,
    }
}

fn next(now_ms: u64, times: &[RunTimes]) -> Option<(u64, LearnedWhy)> {
    let bounds = bounds(LearnedFrom::P95x2);
    let lesson = lesson(
        &bounds,
        Duration::from_millis(now_ms),
        times.iter().copied(),
    );
    let millis = |timeout: Duration| u64::try_from(timeout.as_millis()).unwrap();
    lesson.next.map(|(timeout, why)| (millis(timeout), why))
}

#[test]
fn run_times_are_kept_to_two_digits() {
    let pairs = [
        (0, 1),
        (1, 1),
        (99, 99),
        (100, 100),
        (101, 110),
        (1_000, 1_000),
        (1_001, 1_100),
        (86_400_000, 87_000_000),
    ];
    for (exact, kept) in pairs {
        assert_eq!(rounded(Duration::from_millis(exact)), kept, "{exact}");
    }
    assert_eq!(rounded(Duration::from_micros(1_001)), 2);
    assert!(rounded(Duration::MAX) >= u64::MAX / 2);
}

#[test]
fn no_timeout_from_ten_samples() {
    assert_eq!(next(5_000, &[took(5_000, 10, 10)]), None);
    assert_eq!(next(5_000, &[took(5_000, 10, SAMPLES_MIN - 1)]), None);
    assert_eq!(
        next(5_000, &[took(5_000, 10, SAMPLES_MIN)]),
        Some((4_200, LearnedWhy::Faster))
    );
}

#[test]
fn it_moves_in_steps_and_within_its_bounds() {
    let cases = [
        // Twice the percentile, but no more than half as long again.
        (took(5_000, 4_000, 1_000), Some((7_500, LearnedWhy::Slower))),
        (took(5_000, 3_000, 1_000), Some((6_000, LearnedWhy::Slower))),
        (took(5_000, 2_500, 1_000), None),
        // Not a tenth less.
        (took(5_000, 2_300, 1_000), None),
        (took(5_000, 2_200, 1_000), Some((4_400, LearnedWhy::Faster))),
        (took(5_000, 5_000, 1_000), Some((7_500, LearnedWhy::CutOff))),
    ];
    for (times, expected) in cases {
        assert_eq!(next(5_000, &[times]), expected, "{times:?}");
    }
    assert_eq!(
        next(560, &[took(560, 10, 1_000)]),
        Some((500, LearnedWhy::Faster))
    );
    assert_eq!(next(500, &[took(500, 10, 1_000)]), None);
    assert_eq!(
        next(50_000, &[took(50_000, 50_000, 1_000)]),
        Some((60_000, LearnedWhy::CutOff))
    );
    assert_eq!(next(60_000, &[took(60_000, 60_000, 1_000)]), None);
}

/// A timeout that a manifest writes to more than two digits is not rounded for nothing.
#[test]
fn what_needs_no_change_stays_as_it_is_written() {
    assert_eq!(next(1_234, &[took(1_234, 600, 1_000)]), None);
}

/// The attempts that were cut off at a shorter timeout say nothing of how long they would have taken.
#[test]
fn what_was_cut_off_earlier_is_no_sample() {
    let earlier = took(1_000, 1_000, 10_000);
    assert_eq!(next(5_000, &[earlier]), None);
    assert_eq!(next(5_000, &[earlier, took(5_000, 2_500, 500)]), None);
    // Those that had more time say what they would have come to.
    assert_eq!(
        next(5_000, &[took(9_000, 6_000, 500)]),
        Some((7_500, LearnedWhy::CutOff))
    );
}

proptest! {
    #[test]
    fn it_never_shrinks_while_more_than_one_in_a_hundred_is_cut_off(
        now_ms in 500_u64..=60_000,
        times in prop::collection::vec((500_u64..=60_000, 1_u64..=60_000, 0_u64..500), 0..40),
        p95 in any::<bool>(),
    ) {
        let bounds = bounds(if p95 { LearnedFrom::P95x2 } else { LearnedFrom::P99x3 });
        let times = times.into_iter().map(|(limit, ms, count)| took(limit, rounded(Duration::from_millis(ms.min(limit))), count));
        let now = Duration::from_millis(now_ms);
        let lesson = lesson(&bounds, now, times);
        let next = lesson.next.map_or(now, |(timeout, _)| timeout);
        prop_assert!(bounds.floor <= next && next <= bounds.ceiling);
        if lesson.longer * 100 > lesson.samples {
            prop_assert!(next >= now);
        }
        if lesson.samples < SAMPLES_MIN {
            prop_assert_eq!(next, now);
        }
        // To two digits, a step is never more than half as long again, and never less than five sixths.
        prop_assert!(next <= now * 5 / 3 && next >= now * 3 / 4, "{:?} to {:?}", now, next);
    }
}

/// A fleet that learns: each step is ten minutes of calls whose run times are lognormal.
struct Learner {
    rng: TestRng,
    bounds: LearnedTimeout,
    now: Duration,
    /// The samples of each step of a day.
    day: Vec<HashMap<(u64, u64, bool), u64>>,
}

impl Learner {
    const STEPS_A_DAY: usize = 144;

    fn new(learned: LearnedFrom) -> Self {
        let bounds = bounds(learned);
        Self {
            rng: TestRng::deterministic_rng(RngAlgorithm::ChaCha),
            now: bounds.initial,
            bounds,
            day: Vec::new(),
        }
    }

    /// A run time with this median, and a 99th percentile of 3.2 times that.
    fn run_time(&mut self, median: Duration) -> Duration {
        let mut uniform = || (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let (one, two) = (uniform(), uniform());
        let normal = (-2.0 * (1.0 - one).ln()).sqrt() * (std::f64::consts::TAU * two).cos();
        median.mul_f64((0.5 * normal).exp())
    }

    /// Ten minutes with so many calls; returns how many of them were cut off.
    fn step(&mut self, median: Duration, calls: u64) -> u64 {
        let limit_ms = u64::try_from(self.now.as_millis()).unwrap();
        let mut samples = HashMap::new();
        for _ in 0..calls {
            let time = self.run_time(median);
            let cut_off = time >= self.now;
            let took_ms = rounded(time.min(self.now));
            *samples.entry((limit_ms, took_ms, cut_off)).or_insert(0) += 1;
        }
        let cut = samples.iter().filter(|((.., cut_off), _)| *cut_off);
        let cut = cut.map(|(_, count)| count).sum();
        self.day.push(samples);
        if self.day.len() > Self::STEPS_A_DAY {
            self.day.remove(0);
        }
        let times = self.day.iter().flatten();
        let times = times.map(|(&(limit_ms, took_ms, cut_off), &count)| RunTimes {
            limit_ms,
            took_ms,
            cut_off,
            count,
        });
        if let Some((timeout, _)) = lesson(&self.bounds, self.now, times).next {
            self.now = timeout;
        }
        cut
    }

    /// So many steps; tells the timeout after each change, and how many of the calls were cut off.
    fn regime(&mut self, name: &str, median: Duration, steps: usize) -> Regime {
        let (mut cut, mut changed, mut values) = (0, 0, vec![self.now]);
        for step in 1..=steps {
            let before = self.now;
            cut += self.step(median, 300);
            if self.now != before {
                changed = step;
                values.push(self.now);
            }
        }
        println!(
            "{name}: the last of {} changes at step {changed} of {steps}, {cut} of {} cut off: {values:?}",
            values.len() - 1,
            300 * steps
        );
        Regime {
            cut,
            changed,
            steps,
        }
    }
}

struct Regime {
    cut: u64,
    /// The last step that changed the timeout.
    changed: usize,
    steps: usize,
}

/// The run times become five times as long, and after two days as short as before.
#[test]
fn no_death_spiral() {
    for learned in [LearnedFrom::P95x2, LearnedFrom::P99x3] {
        let mut learner = Learner::new(learned);
        println!("{learned}");
        let day = 2 * Learner::STEPS_A_DAY;
        let fast = learner.regime("median 0.8 s", SECOND * 4 / 5, day);
        let usual = learner.now;
        let slow = learner.regime("median 4 s", 4 * SECOND, day);
        assert!(
            learner.now > 4 * usual && learner.now < 6 * usual,
            "{:?}",
            learner.now
        );
        let again = learner.regime("median 0.8 s again", SECOND * 4 / 5, day);
        assert!(
            learner.now <= usual * 6 / 5 && learner.now >= usual * 5 / 6,
            "{:?}",
            learner.now
        );
        for regime in [&fast, &slow, &again] {
            assert!(regime.changed < regime.steps, "it never comes to rest");
        }
        let calls = 300 * day as u64;
        assert!(fast.cut * 100 <= calls && again.cut * 100 <= calls);
        assert!(
            slow.changed <= 30,
            "{} steps to the longer timeout",
            slow.changed
        );
    }
}

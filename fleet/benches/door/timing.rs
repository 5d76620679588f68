//! Paired rounds and their medians.

use std::time::{Duration, Instant};

/// One thing to be timed.
pub(crate) type Work<'a> = Box<dyn Fn() + 'a>;

/// How long one piece of work is repeated in one round.
const SLICE: Duration = Duration::from_micros(500);

/// For each piece of work, its time in each round in nanoseconds.
pub(crate) struct Samples(Vec<Vec<f64>>);

/// Runs every piece of work in every round, in turn from the front and from the back.
pub(crate) fn measure(works: &mut [Work<'_>], rounds: usize) -> Samples {
    let repeats: Vec<u32> = works.iter().map(|work| repeats(work)).collect();
    let mut samples = vec![Vec::with_capacity(rounds); works.len()];
    for round in 0..rounds {
        for step in 0..works.len() {
            let at = if round % 2 == 0 {
                step
            } else {
                works.len() - 1 - step
            };
            samples[at].push(once(&works[at], repeats[at]));
        }
    }
    Samples(samples)
}

/// Nanoseconds of one repetition.
fn once(work: &Work<'_>, repeats: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..repeats {
        work();
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(repeats)
}

/// How often a piece of work fits into a slice; finding out warms it up.
fn repeats(work: &Work<'_>) -> u32 {
    let mut count = 1;
    loop {
        let start = Instant::now();
        for _ in 0..count {
            work();
        }
        if start.elapsed() >= SLICE / 2 {
            return count;
        }
        count *= 2;
    }
}

impl Samples {
    pub(crate) fn median(&self, at: usize) -> f64 {
        quantile(self.0[at].clone(), 0.5)
    }

    /// How much longer one takes than another, in the same round.
    pub(crate) fn difference(&self, more: usize, less: usize) -> f64 {
        quantile(self.paired(more, less, |more, less| more - less), 0.5)
    }

    /// How many times as long as another one takes, in the same round.
    pub(crate) fn ratio(&self, over: usize, under: usize) -> f64 {
        quantile(self.paired(over, under, |over, under| over / under), 0.5)
    }

    /// The quartiles of that.
    pub(crate) fn ratio_quartiles(&self, over: usize, under: usize) -> (f64, f64) {
        let ratios = self.paired(over, under, |over, under| over / under);
        (quantile(ratios.clone(), 0.25), quantile(ratios, 0.75))
    }

    fn paired(&self, one: usize, other: usize, of: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let pairs = self.0[one].iter().zip(&self.0[other]);
        pairs.map(|(one, other)| of(*one, *other)).collect()
    }
}

fn quantile(mut samples: Vec<f64>, part: f64) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index into a few hundred samples"
    )]
    let at = ((samples.len() - 1) as f64 * part).round() as usize;
    samples[at]
}

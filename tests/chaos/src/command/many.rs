//! Many runs, one after the other.

use std::{collections::BTreeMap, fs, ops::RangeInclusive};

use anyhow::Result;

use super::{How, print};
use crate::{
    mutants::{self, Mutant, Sight},
    plan::Plan,
    run::{Outcome, run},
};

/// What came of many runs.
#[derive(Debug, Default)]
pub(super) struct Total {
    pub(super) runs: u64,
    /// The seeds that failed, each with its first breaches or with what stopped it.
    pub(super) failed: Vec<(u64, Vec<String>)>,
    pub(super) seconds: u64,
    pub(super) figures: BTreeMap<String, u64>,
    pub(super) struck: BTreeMap<String, u64>,
    pub(super) sometimes: BTreeMap<String, u64>,
    pub(super) slowest_quiet_ms: u64,
}

impl Total {
    fn add(&mut self, outcome: &Outcome) {
        self.runs += 1;
        self.seconds += outcome.plan.seconds;
        if !outcome.verdict.holds() {
            let first = outcome.verdict.breaches.iter().take(print::BREACHES_MAX);
            let first = first.map(ToString::to_string).collect();
            self.failed.push((outcome.plan.seed, first));
        }
        let quiet = outcome.quiet_after_ms.unwrap_or(u64::MAX);
        self.slowest_quiet_ms = self.slowest_quiet_ms.max(quiet);
        let sum = |sums: &mut BTreeMap<String, u64>, name: &str, times: u64| {
            *sums.entry(name.to_owned()).or_default() += times;
        };
        for (name, times) in &outcome.verdict.figures {
            sum(&mut self.figures, name, *times);
        }
        for (name, times) in &outcome.struck {
            sum(&mut self.struck, name, *times);
        }
        for (name, times) in &outcome.verdict.sometimes {
            sum(&mut self.sometimes, name, *times);
        }
    }

    /// What must happen now and then, and did not.
    pub(super) fn never(&self) -> Vec<&str> {
        let never = self.sometimes.iter().filter(|(_, times)| **times == 0);
        never.map(|(name, _)| name.as_str()).collect()
    }
}

/// Runs all seeds. Whether nothing was wrong; with `complete`, also whether everything happened that must now and then.
pub(super) async fn run_all(seeds: RangeInclusive<u64>, how: &How, complete: bool) -> Result<bool> {
    let mut total = Total::default();
    for seed in seeds {
        let plan = Plan::draw(seed, how.seconds, how.mode);
        let options = how.options(&format!("seed-{seed}"))?;
        match run(&plan, &options).await {
            Ok(outcome) => {
                print::outcome(&outcome);
                if outcome.verdict.holds() && !how.keep {
                    fs::remove_dir_all(&options.out)?;
                }
                total.add(&outcome);
            }
            // It proves nothing; the next one may.
            Err(problem) => {
                total.failed.push((seed, vec![format!("{problem:#}")]));
                print::problem(&problem.context(format!("seed {seed}")));
            }
        }
    }
    print::total(&total);
    Ok(total.failed.is_empty() && (!complete || total.never().is_empty()))
}

/// Makes every mistake, until a seed notices. Whether all were noticed that are plain to see, and none that is masked.
pub(super) async fn mutants(
    seeds: RangeInclusive<u64>,
    only: &[String],
    how: &How,
) -> Result<bool> {
    let chosen = mutants::ALL
        .iter()
        .filter(|mutant| only.is_empty() || only.iter().any(|name| name == mutant.name));
    let (mut tried, mut noticed, mut as_expected) = (0_u64, 0_u64, true);
    for mutant in chosen {
        let by = notice(mutant, seeds.clone(), how).await?;
        print::noticed(mutant, by.as_ref());
        tried += 1;
        noticed += u64::from(by.is_some());
        as_expected &= match mutant.sight {
            Sight::Plain => by.is_some(),
            Sight::Rare => true,
            Sight::Masked => by.is_none(),
        };
    }
    print::noticed_in_all(noticed, tried);
    Ok(as_expected)
}

/// The run that notices the mistake.
async fn notice(
    mutant: &'static Mutant,
    seeds: RangeInclusive<u64>,
    how: &How,
) -> Result<Option<Outcome>> {
    for seed in seeds {
        let plan = Plan::draw(seed, how.seconds, how.mode);
        let mut options = how.options(&format!("mutant-{}-{seed}", mutant.name))?;
        options.mutant = Some(mutant);
        let outcome = run(&plan, &options).await?;
        if !how.keep {
            fs::remove_dir_all(&options.out)?;
        }
        // What was not changed cannot be noticed.
        if outcome.verdict.rules().contains(mutant.rule)
            && outcome.rewritten.iter().all(|times| *times > 0)
        {
            return Ok(Some(outcome));
        }
    }
    Ok(None)
}

//! The command line and its output.

mod many;
mod print;

use std::{ops::RangeInclusive, path::PathBuf, process::ExitCode, str::FromStr};

use anyhow::{Context, Result, bail};
use clap::{Args, Parser};

use crate::{
    mutants::{self, Mutant},
    plan::{Kind, Plan},
    run::{Options, run},
    shrink::Shrinking,
};

/// A fleet under fire: real servers and processes, faults from a seed, and an oracle.
#[derive(Debug, Parser)]
#[command(name = "chaos")]
pub enum Command {
    /// Runs one seed after the other and says what came of all of them.
    Run {
        /// The seeds: `7`, or `1-20`.
        #[arg(long, default_value = "1")]
        seeds: Seeds,
        /// How.
        #[command(flatten)]
        how: How,
        /// Fails also if something that must happen now and then did not happen in any of these runs.
        #[arg(long)]
        complete: bool,
    },
    /// Prints a seed's plan.
    Plan {
        /// The seed.
        #[arg(long)]
        seed: u64,
        /// How.
        #[command(flatten)]
        how: How,
    },
    /// Runs a plan that was kept, and says how often it fails.
    Replay {
        /// The plan's file: `plan.json` in the folder of a run.
        #[arg(long)]
        plan: PathBuf,
        /// How often.
        #[arg(long, default_value_t = 1)]
        times: u32,
        /// How.
        #[command(flatten)]
        how: How,
    },
    /// Looks for a smaller plan that fails as well.
    Shrink {
        /// The plan's file.
        #[arg(long)]
        plan: PathBuf,
        /// How many plans are tried at most.
        #[arg(long, default_value_t = 30)]
        tries: u32,
        /// How.
        #[command(flatten)]
        how: How,
    },
    /// Makes a copy of the tree that has the mistakes in sources, to be built and run instead.
    Plant {
        /// Where the copy is; what is there already is brought up to date.
        #[arg(long, default_value = "target/mutants")]
        into: PathBuf,
    },
    /// Makes known mistakes on purpose and says which seed notices each of them.
    Mutants {
        /// The seeds that are tried until one notices.
        #[arg(long, default_value = "1-20")]
        seeds: Seeds,
        /// Only these.
        #[arg(long)]
        only: Vec<String>,
        /// How.
        #[command(flatten)]
        how: How,
    },
}

/// How runs are done.
#[derive(Debug, Clone, Args)]
pub struct How {
    /// For how long clients make calls, in each run.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// What a run is after.
    #[arg(long, value_enum, default_value = "safety")]
    mode: Kind,
    /// A mistake that is made on purpose.
    #[arg(long)]
    mutant: Option<String>,
    /// Without the users and roles that are shipped: at NATS everybody may do everything, and in Postgres all are the superuser.
    #[arg(long)]
    no_roles: bool,
    /// Where files are kept; those of a run that passed are removed.
    #[arg(long, default_value = "target/chaos")]
    out: PathBuf,
    /// Keeps the files of runs that passed as well.
    #[arg(long)]
    keep: bool,
}

/// Seeds from one to another.
#[derive(Debug, Clone)]
pub struct Seeds(RangeInclusive<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        let read = |part: &str| {
            part.parse::<u64>()
                .map_err(|problem| format!("{part:?}: {problem}; write 7, or 1-20"))
        };
        Ok(Self(read(from)?..=read(to)?))
    }
}

impl How {
    fn options(&self, name: &str) -> Result<Options> {
        let mutant = self.mutant.as_deref().map(mutant).transpose()?;
        // Other programs are told where it is, and start elsewhere.
        let out = std::path::absolute(self.out.join(name)).context("where files are kept")?;
        Ok(Options {
            out,
            mutant,
            roles: !self.no_roles,
        })
    }
}

impl Command {
    /// Does what was typed. 0: nothing was wrong; 1: something was; 2: it could not be tried.
    pub fn main() -> ExitCode {
        let command = Self::parse();
        if rustls::crypto::ring::default_provider()
            .install_default()
            .is_err()
        {
            return ExitCode::from(2);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let done = runtime
            .context("start the runtime")
            .and_then(|runtime| runtime.block_on(Box::pin(command.execute())));
        match done {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(problem) => {
                print::problem(&problem);
                ExitCode::from(2)
            }
        }
    }

    async fn execute(self) -> Result<bool> {
        match self {
            Self::Run {
                seeds,
                how,
                complete,
            } => many::run_all(seeds.0, &how, complete).await,
            Self::Plan { seed, how } => {
                print::plan(&Plan::draw(seed, how.seconds, how.mode))?;
                Ok(true)
            }
            Self::Replay { plan, times, how } => replay(&read(&plan)?, times, &how).await,
            Self::Shrink { plan, tries, how } => shrink(read(&plan)?, tries, &how).await,
            Self::Plant { into } => mutants::plant(&into).map(|()| true),
            Self::Mutants { seeds, only, how } => many::mutants(seeds.0, &only, &how).await,
        }
    }
}

async fn replay(plan: &Plan, times: u32, how: &How) -> Result<bool> {
    let mut failed = 0;
    for time in 1..=times {
        let outcome = run(plan, &how.options(&format!("replay-{}-{time}", plan.seed))?).await?;
        print::outcome(&outcome);
        failed += u32::from(!outcome.verdict.breaches.is_empty());
    }
    print::replayed(plan, failed, times);
    Ok(failed == 0)
}

async fn shrink(plan: Plan, tries: u32, how: &How) -> Result<bool> {
    let name = format!("shrink-{}", plan.seed);
    let mut shrinking = Shrinking::new(plan);
    let mut tried = 0;
    while tried < tries
        && let Some(proposed) = shrinking.propose()
    {
        tried += 1;
        let outcome = run(&proposed, &how.options(&name)?).await?;
        let fails = !outcome.verdict.breaches.is_empty();
        print::tried(tried, &proposed, fails);
        shrinking.learn(fails);
    }
    print::plan(shrinking.smallest())?;
    Ok(false)
}

fn read(file: &PathBuf) -> Result<Plan> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no plan", file.display()))
}

fn mutant(name: &str) -> Result<&'static Mutant> {
    let Some(mutant) = Mutant::named(name) else {
        bail!("no mutant is called {name}: see `chaos mutants`");
    };
    Ok(mutant)
}

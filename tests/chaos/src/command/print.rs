//! The output of the commands.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program says what it found"
)]

use std::collections::BTreeMap;

use anyhow::Result;

use super::many::Total;
use crate::{mutants::Mutant, plan::Plan, run::Outcome};

/// The most breaches of one run that are printed; all are in its folder.
pub(super) const BREACHES_MAX: usize = 10;

pub(super) fn problem(problem: &anyhow::Error) {
    eprintln!("chaos: {problem:#}");
}

pub(super) fn plan(plan: &Plan) -> Result<()> {
    println!("{}", serde_json::to_string_pretty(plan)?);
    Ok(())
}

pub(super) fn outcome(outcome: &Outcome) {
    let Outcome { plan, verdict, .. } = outcome;
    let figures: Vec<String> = verdict
        .figures
        .iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let quiet = outcome.quiet_after_ms.map_or_else(
        || "NOT QUIET in time".to_owned(),
        |ms| format!("quiet after {:.1} s", seconds(ms)),
    );
    let verdict_word = if verdict.breaches.is_empty() {
        "ok".to_owned()
    } else {
        format!("{} BREACHES", verdict.breaches.len())
    };
    println!(
        "seed {:>3} | {verdict_word} | {} | {} of {} entries struck, faults {} | {quiet} | {:.0} s",
        plan.seed,
        figures.join(", "),
        outcome.entries_struck,
        plan.entries.len(),
        outcome.struck.values().sum::<u64>(),
        seconds(outcome.took_ms),
    );
    for breach in verdict.breaches.iter().take(BREACHES_MAX) {
        println!("    {breach}");
    }
    if verdict.breaches.len() > BREACHES_MAX {
        println!("    … and {} more", verdict.breaches.len() - BREACHES_MAX);
    }
}

pub(super) fn total(total: &Total) {
    let minutes = total.seconds / 60;
    println!("\n{} runs, {minutes} min of clients at work", total.runs);
    table("counted", &total.figures);
    table("faults", &total.struck);
    table("sometimes", &total.sometimes);
    println!(
        "slowest to be quiet: {:.1} s",
        seconds(total.slowest_quiet_ms)
    );
    let never = total.never();
    if never.is_empty() {
        println!("everything that must happen now and then has happened");
    } else {
        println!("never happened: {}", never.join("; "));
    }
    if total.failed.is_empty() {
        println!("no breach");
    } else {
        // Once more, for of a long log often only the end is kept.
        for (seed, breaches) in &total.failed {
            for breach in breaches {
                println!("seed {seed:>3} | {breach}");
            }
        }
        let seeds: Vec<u64> = total.failed.iter().map(|(seed, _)| *seed).collect();
        println!("BREACHES in seeds {seeds:?}");
    }
}

fn table(title: &str, rows: &BTreeMap<String, u64>) {
    println!("\n{title}");
    for (name, times) in rows {
        println!("  {times:>8}  {name}");
    }
    println!();
}

pub(super) fn replayed(plan: &Plan, failed: u32, times: u32) {
    println!(
        "the plan of seed {} failed {failed} of {times} times",
        plan.seed
    );
}

pub(super) fn tried(number: u32, plan: &Plan, fails: bool) {
    let word = if fails { "fails" } else { "passes" };
    println!("try {number}: {} entries: {word}", plan.entries.len());
}

pub(super) fn noticed(mutant: &Mutant, outcome: Option<&Outcome>) {
    match outcome {
        Some(outcome) => {
            let rules: std::collections::BTreeSet<&str> = outcome
                .verdict
                .breaches
                .iter()
                .map(|breach| breach.rule)
                .collect();
            let rules: Vec<&str> = rules.into_iter().collect();
            println!(
                "mutant {:<32} noticed by seed {:>3}: {}",
                mutant.name,
                outcome.plan.seed,
                rules.join(", ")
            );
        }
        None => println!(
            "mutant {:<32} not noticed ({:?})",
            mutant.name, mutant.sight
        ),
    }
}

pub(super) fn noticed_in_all(noticed: u64, tried: u64) {
    println!("{noticed} of {tried} mistakes were noticed");
}

#[expect(clippy::cast_precision_loss, reason = "printed with one digit")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

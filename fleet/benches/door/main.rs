//! What the door costs: a body of arguments parsed, checked, made canonical and hashed.
//!
//! Beside it, in the same round, runs the floor: `serde_json` into a `Value` and `jsonschema` over it, built and set as
//! the workspace builds and sets them. Rounds are paired, so the noise of the machine meets both alike, and medians are
//! told. Then inputs that mean harm, at one, two and four times a size: their cost per byte must not grow. Last, the way
//! out: what it costs to shorten a large answer.
//!
//! `make bench-arguments`; `SHORT=--short` for fewer rounds. Exits with 1 where a budget is missed.

mod bodies;
mod hostile;
mod large;
mod timing;

use std::{env, process::ExitCode};

use fleet::{
    arguments::{Coercing, Level, Limits, Schema, parse},
    canonical,
};
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;
use sha2::{Digest, Sha256};

use self::{
    bodies::Body,
    timing::{Work, measure},
};

/// How much dearer than the floor a valid body of 1 KiB may be.
const RATIO_MAX: f64 = 2.0;

const READ: Coercing<'_> = Coercing {
    level: Level::Read,
    tool: "place_order",
};

fn main() -> ExitCode {
    let given = |flag: &str| env::args().any(|arg| arg == flag);
    // `cargo bench` passes --bench; without it this is a test that everything here still runs.
    let rounds = match (given("--bench"), given("--short")) {
        (false, _) => 1,
        (true, true) => 60,
        (true, false) => 400,
    };
    let judged = rounds > 1;
    let door = valid(rounds);
    let linear = hostile::table(rounds.div_ceil(8));
    let large = large::table(rounds.div_ceil(8));
    if judged && !(door && linear && large) {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The table of valid bodies; whether the budget holds.
fn valid(rounds: usize) -> bool {
    say("Valid arguments, ns per body (median of paired rounds)\n");
    say(
        "| body | bytes | floor: parse | floor: validate | floor | parse | fit | canonical | hash | \
         hash of the original | door | door / floor | quartiles |",
    );
    say("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut holds = true;
    for body in bodies::all() {
        let ratio = row(&body, rounds);
        if body.is_the_case && ratio > RATIO_MAX {
            holds = false;
        }
    }
    say(&format!(
        "\nThe budget of {RATIO_MAX:.1} for the body of 1 KiB {}.\n",
        if holds { "holds" } else { "IS MISSED" }
    ));
    holds
}

/// Prints the row of a body and answers its ratio.
fn row(body: &Body, rounds: usize) -> f64 {
    let schema: Value = serde_json::from_str(body.schema).expect("the schema is JSON");
    let floor = floor(&schema);
    let ours = Schema::compile_input(&schema).expect("the schema is fine");
    let bytes = body.text.as_bytes();
    let read = || parse(bytes, &Limits::DEFAULT).expect("the body is valid");
    let fit = || ours.fit(read(), READ).expect("the body fits").args;
    let fitted = fit();
    assert_eq!(fitted, read(), "a valid body is not changed");

    // Each does what the one before it does, and one step more.
    let mut works: Vec<Work<'_>> = vec![
        Box::new(|| keep(serde_json::from_slice::<Value>(bytes).expect("it is JSON"))),
        Box::new(|| {
            let value: Value = serde_json::from_slice(bytes).expect("it is JSON");
            assert!(floor.is_valid(&value), "the body is valid");
            keep(value);
        }),
        Box::new(|| keep(read())),
        Box::new(|| keep(fit())),
        Box::new(|| {
            let args = fit();
            keep(canonical::to_text(&args));
        }),
        Box::new(|| {
            let args = fit();
            let text = canonical::to_text(&args);
            keep(canonical::hash_text(&text));
        }),
        Box::new(|| {
            let args = fit();
            let text = canonical::to_text(&args);
            keep(canonical::hash_text(&text));
            keep(<[u8; 32]>::from(Sha256::digest(bytes)));
        }),
    ];
    let samples = measure(&mut works, rounds);
    let step = |at: usize| samples.difference(at, at - 1);
    let ratio = samples.ratio(6, 1);
    let (low, high) = samples.ratio_quartiles(6, 1);
    say(&format!(
        "| {} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | **{ratio:.2}** | {low:.2}–{high:.2} |",
        body.name,
        bytes.len(),
        samples.median(0),
        step(1),
        samples.median(1),
        samples.median(2),
        step(3),
        step(4),
        step(5),
        step(6),
        samples.median(6),
    ));
    ratio
}

/// The validator that [`Schema`] builds, bare.
fn floor(schema: &Value) -> Validator {
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .offline()
        .should_validate_formats(true)
        .with_pattern_options(PatternOptions::regex().size_limit(64 * 1024))
        .build(schema)
        .expect("the schema is fine")
}

fn keep<T>(made: T) {
    drop(std::hint::black_box(made));
}

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
fn say(line: &str) {
    println!("{line}");
}

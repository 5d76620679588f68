//! The run over all tools, and what must hold of it.

use std::thread;

use arguments::{Coercing, Level};
use serde_json::Value;

use crate::{
    damage::{Damage, KINDS, Mends, Source},
    gold::{Gold, draw},
    judge::{Case, Verdict, adds_defaults_alone},
    random::Chance,
    report::{LEVELS, Report, Third},
    tools::{Tool, tools},
    wrapped::is_wrapped,
};

/// Where the drawing begins, unless `MUTATION_SEED` says another number.
const SEED: u64 = 0x0c0e_4ce5;
/// How many seeds are run, one after the other, unless `MUTATION_SEEDS` says another number.
const SEEDS: u64 = 1;
/// Valid objects for each schema, unless `MUTATIONS` says another number.
const MUTATIONS: u64 = 20;
/// Damages to each valid object.
const DAMAGES: usize = 6;
/// Draws for each valid object that is wanted.
const DRAWS: usize = 40;
const THREADS: usize = 2;

#[test]
fn no_damage_becomes_a_third_value() {
    let first = number("MUTATION_SEED").unwrap_or(SEED);
    let seeds = number("MUTATION_SEEDS").unwrap_or(SEEDS);
    let wanted = number("MUTATIONS").unwrap_or(MUTATIONS) as usize;
    let mut report = Report::default();
    for seed in (0..seeds).map(|more| first.wrapping_add(more)) {
        let of_seed = run_all(seed, wanted);
        println!("seed {seed}: {}", of_seed.summary());
        report.add(of_seed);
    }
    println!("{report}");
    hold(&report, first);
}

/// All tools, with schemas grown from the seed among them.
fn run_all(seed: u64, wanted: usize) -> Report {
    let tools = tools(seed);
    assert!(tools.len() >= 100, "only {} schemas", tools.len());
    let mut report = Report::default();
    thread::scope(|scope| {
        let runs: Vec<_> = (0..THREADS)
            .map(|offset| {
                let tools = &tools;
                scope.spawn(move || {
                    let mut report = Report::default();
                    for (part, tool) in tools.iter().enumerate().skip(offset).step_by(THREADS) {
                        let chance = Chance::new(seed, part as u64);
                        report.add(run(tool, chance, wanted));
                    }
                    report
                })
            })
            .collect();
        for run in runs {
            report.add(run.join().expect("no run panics"));
        }
    });
    report
}

/// A number from the environment.
#[expect(
    clippy::disallowed_methods,
    reason = "the size of a test, not a setting"
)]
fn number(name: &str) -> Option<u64> {
    let number = std::env::var(name).ok()?;
    Some(number.parse().expect("the variable is a number"))
}

fn run(tool: &Tool, mut chance: Chance, wanted: usize) -> Report {
    let golds: Vec<Gold> = (0..wanted * DRAWS)
        .filter_map(|_| draw(&tool.schema, &mut chance))
        .take(wanted)
        .collect();
    assert_eq!(golds.len(), wanted, "{} is hard to draw for", tool.name);
    let mut report = Report {
        tools: 1,
        golds: golds.len(),
        ..Report::default()
    };
    let mut drawn = vec![0_usize; KINDS.len()];
    for gold in &golds {
        for level in LEVELS {
            look_at_gold(tool, gold, level, &mut report);
        }
        // Those that are drawn least come first, so that kinds for which few objects have a place come up at all.
        let mut kinds: Vec<usize> = (0..KINDS.len()).collect();
        chance.shuffle(&mut kinds);
        kinds.sort_by_key(|kind| drawn[*kind]);
        let source = Source {
            gold,
            tool: &tool.name,
            schema: &tool.schema,
        };
        let mut left = DAMAGES;
        for kind in kinds {
            let damage = (KINDS[kind].draw)(&source, &mut chance);
            let damaged = damage.and_then(|damage| Some((damage.of_args(&gold.args)?, damage)));
            if let Some((damaged, damage)) = damaged {
                drawn[kind] += 1;
                left -= 1;
                look_at_damaged(tool, gold, kind, &damage, &damaged, &mut report);
            }
            if left == 0 {
                break;
            }
        }
    }
    report
}

fn look_at_gold(tool: &Tool, gold: &Gold, level: Level, report: &mut Report) {
    let how = Coercing {
        level,
        tool: &tool.name,
    };
    let fitted = tool.schema.fit(gold.args.clone(), how).expect("gold fits");
    let untouched = adds_defaults_alone(&gold.args, &fitted)
        && (level != Level::Off || fitted.coercions.is_empty());
    if !untouched {
        report.touched.push(format!(
            "{} {level}: {} became {}",
            tool.name, gold.args, fitted.args
        ));
    }
}

/// What else may have been meant by damaged arguments.
pub(crate) fn variants(tool: &Tool, gold: &Gold, damage: &Damage, damaged: &Value) -> Vec<Value> {
    let unfit = is_wrapped(&tool.schema, damaged, &tool.name) || !tool.schema.is_valid(damaged);
    let meanings = if unfit { damage.meanings() } else { Vec::new() };
    meanings
        .into_iter()
        .filter_map(|part| part.of_args(&gold.args))
        .filter(|args| tool.schema.is_valid(args))
        .collect()
}

fn look_at_damaged(
    tool: &Tool,
    gold: &Gold,
    kind: usize,
    damage: &Damage,
    damaged: &Value,
    report: &mut Report,
) {
    let variants = variants(tool, gold, damage, damaged);
    for (column, level) in LEVELS.into_iter().enumerate() {
        let how = Coercing {
            level,
            tool: &tool.name,
        };
        let case = Case {
            schema: &tool.schema,
            how,
            damaged,
            gold: &gold.args,
            variants: &variants,
        };
        let (verdict, fitted) = case.judge();
        report.count(kind, column, verdict);
        if verdict == Verdict::Third {
            let fitted = fitted.expect("something came out");
            report.thirds.push(Third {
                kind,
                level,
                tool: tool.name.clone(),
                schema: tool.schema.source().clone(),
                gold: gold.args.clone(),
                damaged: damaged.clone(),
                got: fitted.args,
                coercions: fitted.coercions,
            });
        }
    }
}

fn hold(report: &Report, seed: u64) {
    for third in report.shown() {
        println!("{third}");
    }
    for touched in report.touched.iter().take(20) {
        println!("touched although valid: {touched}");
    }
    let mut wrong = Vec::new();
    if !report.touched.is_empty() {
        wrong.push(format!(
            "{} valid objects were touched",
            report.touched.len()
        ));
    }
    let thirds = report.total(Verdict::Third);
    if thirds > 0 {
        wrong.push(format!("{thirds} became a third value"));
    }
    if report.cases() < 5_000 {
        wrong.push(format!("only {} cases", report.cases()));
    }
    for (kind, levels) in KINDS.iter().zip(&report.counts) {
        for (level, counts) in LEVELS.into_iter().zip(levels) {
            let expected = match (kind.mends, level) {
                (Mends::Always, Level::Safe | Level::Read) | (Mends::Read, Level::Read) => {
                    kind.floor..=100
                }
                (Mends::Either, Level::Safe | Level::Read) => 0..=100,
                _ => 0..=0,
            };
            let percent = counts.recovered_percent().unwrap_or(*expected.start());
            if counts.cases() == 0 || !expected.contains(&percent) {
                wrong.push(format!(
                    "{}, {level}: {percent} % mended, expected {expected:?}",
                    kind.name
                ));
            }
            if expected == (0..=0) && counts.of(Verdict::Recovered) > 0 {
                wrong.push(format!(
                    "{}, {level}: {} mended by a guess",
                    kind.name,
                    counts.of(Verdict::Recovered)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "seed {seed}:\n{}", wrong.join("\n"));
}

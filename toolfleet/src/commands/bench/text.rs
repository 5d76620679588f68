//! The tables that the bench prints for people at the end.

use std::collections::BTreeMap;

use toolfleet_load::report::{Measured, Report, Servers};

use crate::commands::output;

/// The tables.
pub(super) fn report(report: &Report) -> String {
    let number = |number: f64| format!("{number:.0}");
    let maybe = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
    };
    let rows = report.workloads.iter().map(|one| {
        vec![
            kind(one),
            one.mode.clone(),
            one.calls.to_string(),
            number(one.calls_per_s),
            maybe(one.accepted_per_s, 0),
            maybe(one.floor_calls_per_s, 0),
            maybe(one.ratio, 2),
            maybe(one.p50_ms, 2),
            maybe(one.p95_ms, 2),
            maybe(one.p99_ms, 2),
            maybe(one.max_ms, 1),
            one.verdict.lost.to_string(),
            one.verdict.doubled.to_string(),
        ]
    });
    let headings = [
        "effect",
        "mode",
        "calls",
        "calls/s",
        "accepted/s",
        "floor/s",
        "ratio",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "max ms",
        "lost",
        "doubled",
    ];
    let mut text = output::table(&headings, &rows.collect::<Vec<_>>());
    text.push('\n');
    text.push_str(&usage(report));
    for one in &report.workloads {
        if one.hits.is_some() {
            text.push_str(&format!(
                "{}: {} runs for {} calls\n",
                one.name, one.runs, one.sent
            ));
        }
        for (what, counts) in [("refused", &one.refused), ("failed", &one.failed)] {
            for (code, times) in counts {
                text.push_str(&format!("{}: {times} {what}: {code}\n", one.name));
            }
        }
    }
    text.push('\n');
    text.push_str(&servers(&report.servers));
    text
}

/// What was called, and what its tool has besides.
fn kind(one: &Measured) -> String {
    let via = (one.via != "nats").then_some(one.via);
    let more = one.with.into_iter().chain(via);
    more.fold(one.effect.clone(), |words, word| format!("{words}, {word}"))
}

fn usage(report: &Report) -> String {
    let mut names: Vec<&String> = report
        .workloads
        .iter()
        .flat_map(|one| one.memory_mib.keys())
        .collect();
    names.sort_unstable();
    names.dedup();
    let rows = names.into_iter().flat_map(|name| {
        report.workloads.iter().map(move |one| {
            let of = |map: &BTreeMap<String, f64>, digits: usize| {
                map.get(name)
                    .map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
            };
            let cpu = one
                .cpu_s
                .get(name)
                .map(|used| used / one.seconds.max(0.001));
            vec![
                name.clone(),
                one.name.clone(),
                of(&one.cpu_s, 2),
                cpu.map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.2}")),
                of(&one.memory_mib, 1),
            ]
        })
    });
    let headings = ["process", "workload", "cpu s", "cpus", "peak MiB"];
    output::table(&headings, &rows.collect::<Vec<_>>())
}

fn servers(servers: &Servers) -> String {
    let settings = servers.postgres.iter();
    let postgres: Vec<String> = settings
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let settings = servers.nats.iter();
    let nats: Vec<String> = settings
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let slow = if servers.optimised {
        ""
    } else {
        "This program was built without optimisation: the figures say little.\n"
    };
    format!(
        "Postgres  {}\nNATS      {}\nworkers {}, CPUs {}\n{slow}",
        postgres.join(" "),
        nats.join(" "),
        servers.workers,
        servers.cpus
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn people_read_tables() {
        let once = Measured {
            name: "once_sync".to_owned(),
            effect: "once".to_owned(),
            mode: "sync".to_owned(),
            via: "nats",
            calls: 10_000,
            calls_per_s: 1_000.0,
            p50_ms: Some(1.5),
            p95_ms: Some(2.5),
            p99_ms: Some(9.0),
            max_ms: Some(12.0),
            memory_mib: BTreeMap::from([("worker_1".to_owned(), 35.25)]),
            cpu_s: BTreeMap::from([("worker_1".to_owned(), 5.0)]),
            seconds: 10.0,
            refused: BTreeMap::from([("overloaded".to_owned(), 3)]),
            ..Measured::default()
        };
        let measured = Report {
            servers: Servers {
                postgres: BTreeMap::from([("fsync".to_owned(), "on".to_owned())]),
                nats: BTreeMap::from([("storage".to_owned(), Value::from("file"))]),
                workers: 1,
                cpus: 2,
                optimised: true,
                ..Servers::default()
            },
            workloads: vec![once],
            ..Report::default()
        };
        insta::assert_snapshot!(report(&measured));
    }
}

//! What the bench says in the end: JSON for programs, tables for people.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::{figures::Counts, floor::FloorRun, processes::Usage, tally::Verdict};
use crate::commands::output;

/// Everything.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) servers: Servers,
    pub(super) workloads: Vec<Measured>,
    /// Every slice of the floor, in the order of the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) floors: Vec<FloorRun>,
}

/// What the figures were measured on.
#[derive(Debug, Serialize)]
pub(super) struct Servers {
    pub(super) postgres: BTreeMap<String, String>,
    pub(super) nats: BTreeMap<String, Value>,
    /// How many there were, where the bench started them or sees them.
    pub(super) dispatchers: Option<usize>,
    pub(super) workers: u16,
    pub(super) cpus: usize,
    /// Whether the bench started the servers.
    pub(super) dev: bool,
    pub(super) optimised: bool,
}

/// One workload.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    pub(super) name: String,
    pub(super) effect: String,
    pub(super) mode: String,
    /// Calls that were answered, or over, in the measured time.
    pub(super) calls: u64,
    pub(super) calls_per_s: f64,
    pub(super) floor_calls_per_s: Option<f64>,
    pub(super) ratio: Option<f64>,
    pub(super) p50_ms: Option<f64>,
    pub(super) p95_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) max_ms: Option<f64>,
    #[serde(flatten)]
    pub(super) verdict: Verdict,
    pub(super) memory_mib: BTreeMap<String, f64>,
    pub(super) cpu_s: BTreeMap<String, f64>,
    pub(super) seconds: f64,
    /// Acceptances a second, where that is not the same.
    pub(super) accepted_per_s: Option<f64>,
    pub(super) refused: Counts,
    pub(super) failed: Counts,
    pub(super) in_flight: Option<usize>,
    pub(super) rate: Option<u32>,
    pub(super) bytes: usize,
    pub(super) result_bytes: u32,
    pub(super) batch: Option<usize>,
    pub(super) tools: u32,
    pub(super) tenants: u32,
    pub(super) sizes: BTreeMap<String, i64>,
    /// Milliseconds at each of [`CURVE`], for the picture.
    #[serde(skip)]
    pub(super) curve: Vec<f64>,
}

/// The percentiles of a curve.
pub(super) const CURVE: [f64; 14] = [
    0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.9, 99.95, 99.99, 100.0,
];

impl Measured {
    /// What it used.
    pub(super) fn used(&mut self, usage: Usage) {
        self.memory_mib = usage.memory_mib;
        self.cpu_s = usage.cpu_s;
    }
}

impl Report {
    /// Whether every success has its effect exactly once, and there was something to look at.
    pub(super) fn is_good(&self) -> bool {
        let whole = |one: &Measured| one.verdict == Verdict::default();
        self.workloads.iter().all(whole)
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let number = |number: f64| format!("{number:.0}");
        let maybe = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let rows = self.workloads.iter().map(|one| {
            vec![
                one.effect.clone(),
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
        text.push_str(&self.usage());
        for one in &self.workloads {
            for (what, counts) in [("refused", &one.refused), ("failed", &one.failed)] {
                for (code, times) in counts {
                    text.push_str(&format!("{}: {times} {what}: {code}\n", one.name));
                }
            }
        }
        text.push('\n');
        text.push_str(&self.servers.text());
        text
    }

    fn usage(&self) -> String {
        let mut names: Vec<&String> = self
            .workloads
            .iter()
            .flat_map(|one| one.memory_mib.keys())
            .collect();
        names.sort_unstable();
        names.dedup();
        let rows = names.into_iter().flat_map(|name| {
            self.workloads.iter().map(move |one| {
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
}

impl Servers {
    fn text(&self) -> String {
        let settings = self.postgres.iter();
        let postgres: Vec<String> = settings
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let settings = self.nats.iter();
        let nats: Vec<String> = settings
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let slow = if self.optimised {
            ""
        } else {
            "This program was built without optimisation: the figures say little.\n"
        };
        format!(
            "Postgres  {}\nNATS      {}\nworkers {}, CPUs {}\n{slow}",
            postgres.join(" "),
            nats.join(" "),
            self.workers,
            self.cpus
        )
    }
}

#[cfg(test)]
pub(super) mod tests {
    use fleet::call::Effect;

    use super::*;

    pub(in crate::commands::bench) fn measured(effect: Effect) -> Measured {
        Measured {
            name: format!("{effect}_sync"),
            effect: effect.to_string(),
            mode: "sync".to_owned(),
            calls: 10_000,
            calls_per_s: 1_000.0,
            floor_calls_per_s: None,
            ratio: None,
            p50_ms: Some(1.5),
            p95_ms: Some(2.5),
            p99_ms: Some(9.0),
            max_ms: Some(12.0),
            verdict: Verdict::default(),
            memory_mib: BTreeMap::from([("worker_1".to_owned(), 35.25)]),
            cpu_s: BTreeMap::from([("worker_1".to_owned(), 5.0)]),
            seconds: 10.0,
            accepted_per_s: None,
            refused: Counts::from([("overloaded".to_owned(), 3)]),
            failed: Counts::new(),
            in_flight: Some(512),
            rate: None,
            bytes: 60,
            result_bytes: 0,
            batch: None,
            tools: 0,
            tenants: 1,
            sizes: BTreeMap::new(),
            curve: CURVE.iter().map(|percent| 1.0 + percent / 10.0).collect(),
        }
    }

    fn report(workloads: Vec<Measured>) -> Report {
        Report {
            servers: Servers {
                postgres: BTreeMap::from([("fsync".to_owned(), "on".to_owned())]),
                nats: BTreeMap::from([("storage".to_owned(), Value::from("file"))]),
                dispatchers: Some(1),
                workers: 1,
                cpus: 2,
                dev: true,
                optimised: true,
            },
            workloads,
            floors: Vec::new(),
        }
    }

    #[test]
    fn people_read_a_table_and_programs_what_was_promised() {
        let report = report(vec![measured(Effect::Once)]);
        insta::assert_snapshot!(report.text());
        let json = serde_json::to_value(&report).unwrap();
        let workload = json["workloads"][0].as_object().unwrap();
        for promised in [
            "name",
            "effect",
            "mode",
            "calls",
            "calls_per_s",
            "floor_calls_per_s",
            "ratio",
            "p50_ms",
            "p95_ms",
            "p99_ms",
            "lost",
            "doubled",
            "memory_mib",
        ] {
            assert!(workload.contains_key(promised), "{promised}");
        }
        assert!(json["servers"].is_object());
    }

    #[test]
    fn one_lost_or_doubled_effect_spoils_all() {
        assert!(report(vec![measured(Effect::Once)]).is_good());
        for (lost, doubled) in [(1, 0), (0, 1)] {
            let mut bad = measured(Effect::Once);
            bad.verdict = Verdict { lost, doubled };
            assert!(!report(vec![measured(Effect::Read), bad]).is_good());
        }
    }
}

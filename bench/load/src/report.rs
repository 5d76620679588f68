//! The results, for programs.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::{figures::Counts, floor::FloorRun, processes::Usage, tally::Verdict};

/// All results.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// The servers that were measured.
    pub servers: Servers,
    /// In the order of the run.
    pub workloads: Vec<Measured>,
    /// Every slice of the floor, in the order of the run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub floors: Vec<FloorRun>,
}

/// The servers that were measured.
#[derive(Debug, Default, Serialize)]
pub struct Servers {
    /// Settings that decide how durable a commit is, by the server's names.
    pub postgres: BTreeMap<String, String>,
    /// Settings that decide how durable a message is.
    pub nats: BTreeMap<String, Value>,
    /// How many dispatchers there were, where the bench started them or sees them.
    pub dispatchers: Option<usize>,
    /// How many workers the bench started.
    pub workers: u16,
    /// Processors of this machine.
    pub cpus: usize,
    /// Whether the bench started the servers.
    pub dev: bool,
    /// Whether this program is a release build.
    pub optimised: bool,
}

/// One workload.
#[derive(Debug, Default, Serialize)]
pub struct Measured {
    /// Effect and mode.
    pub name: String,
    /// What was called.
    pub effect: String,
    /// How it was called.
    pub mode: String,
    /// Calls that were answered, or over, in the measured time.
    pub calls: u64,
    /// Calls a second.
    pub calls_per_s: f64,
    /// Calls a second of the floor, before and after it.
    pub floor_calls_per_s: Option<f64>,
    /// The ratio of the two.
    pub ratio: Option<f64>,
    /// Half of the requests took at most this long.
    pub p50_ms: Option<f64>,
    /// 95 of a hundred took at most this long.
    pub p95_ms: Option<f64>,
    /// 99 of a hundred took at most this long.
    pub p99_ms: Option<f64>,
    /// The longest.
    pub max_ms: Option<f64>,
    /// Lost and doubled effects.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Of how many of a hundred calls the question had been asked before, where some were.
    pub hits: Option<u8>,
    /// How calls reached the fleet: `nats` or `http`.
    pub via: &'static str,
    /// What its tool has besides: `cached`, or a brake.
    pub with: Option<&'static str>,
    /// Calls that were sent, those of the warm-up included.
    pub sent: u64,
    /// How often the tool ran for them.
    pub runs: u64,
    /// The most memory of each process.
    pub memory_mib: BTreeMap<String, f64>,
    /// CPU seconds of each process.
    pub cpu_s: BTreeMap<String, f64>,
    /// How long it was measured.
    pub seconds: f64,
    /// Acceptances per second, where that is not the same.
    pub accepted_per_s: Option<f64>,
    /// Refused calls, by code.
    pub refused: Counts,
    /// Calls that did not succeed, by code.
    pub failed: Counts,
    /// Calls in the air at a time, in a closed loop.
    pub in_flight: Option<usize>,
    /// Calls a second, in an open loop.
    pub rate: Option<u32>,
    /// Size of the arguments.
    pub bytes: usize,
    /// Size of the text in the result.
    pub result_bytes: u32,
    /// Calls in one request, in batches.
    pub batch: Option<usize>,
    /// Copies of each tool.
    pub tools: u32,
    /// How many tenants called.
    pub tenants: u32,
    /// Sizes of tables afterwards, in bytes and rows.
    pub sizes: BTreeMap<String, i64>,
    /// Milliseconds at each of [`CURVE`], for the picture.
    #[serde(skip)]
    pub curve: Vec<f64>,
}

/// The percentiles of a curve.
pub const CURVE: [f64; 14] = [
    0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.9, 99.95, 99.99, 100.0,
];

impl Measured {
    /// Adds CPU time and memory.
    pub(crate) fn used(&mut self, usage: Usage) {
        self.memory_mib = usage.memory_mib;
        self.cpu_s = usage.cpu_s;
    }
}

impl Report {
    /// Whether every success has its effect exactly once, and there was something to compare.
    pub fn is_good(&self) -> bool {
        let whole = |one: &Measured| one.verdict == Verdict::default();
        self.workloads.iter().all(whole)
    }
}

/// A good one, for tests.
#[cfg(test)]
pub(crate) fn sample(effect: fleet::call::Effect) -> Measured {
    Measured {
        name: format!("{effect}_sync"),
        effect: effect.to_string(),
        mode: "sync".to_owned(),
        via: "nats",
        calls: 10_000,
        calls_per_s: 1_000.0,
        p50_ms: Some(1.5),
        p99_ms: Some(9.0),
        seconds: 10.0,
        curve: CURVE.iter().map(|percent| 1.0 + percent / 10.0).collect(),
        ..Measured::default()
    }
}

#[cfg(test)]
mod tests {
    use fleet::call::Effect;

    use super::*;

    fn report(workloads: Vec<Measured>) -> Report {
        Report {
            workloads,
            ..Report::default()
        }
    }

    #[test]
    fn programs_read_what_was_promised() {
        let report = report(vec![sample(Effect::Once)]);
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
        assert!(report(vec![sample(Effect::Once)]).is_good());
        for (lost, doubled) in [(1, 0), (0, 1)] {
            let mut bad = sample(Effect::Once);
            bad.verdict = Verdict { lost, doubled };
            assert!(!report(vec![sample(Effect::Read), bad]).is_good());
        }
    }
}

//! What is printed.

use std::io::{self, Write};

use anyhow::Context;
use serde::Serialize;

use crate::client::{Load, Measured};

/// The figures of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Calls that were answered in the measured time.
    pub calls: u64,
    /// How long that was.
    pub seconds: f64,
    /// The throughput.
    pub calls_per_s: f64,
    /// The median, question to answer.
    pub p50_ms: f64,
    /// 95 of 100 were quicker.
    pub p95_ms: f64,
    /// 99 of 100 were quicker.
    pub p99_ms: f64,
    /// The slowest.
    pub max_ms: f64,
    /// Callers.
    pub in_flight: usize,
    /// Bytes of a call's arguments.
    pub bytes: usize,
    /// Calls per second of `pgbench`; `None` where it was not run.
    pub pgbench_tps: Option<f64>,
    /// CPU seconds of this process in the measured time.
    pub cpu_s: f64,
    /// Calls without an answer.
    pub lost: usize,
}

impl Report {
    /// The figures of what was measured.
    pub fn of(load: &Load, measured: &Measured, pgbench_tps: Option<f64>) -> Self {
        let latencies = &measured.latencies;
        let seconds = load.measured.as_secs_f64();
        let quantile = |part| millis(latencies.value_at_quantile(part));
        #[expect(
            clippy::cast_precision_loss,
            reason = "no run has as many calls as a double has whole numbers"
        )]
        let calls_per_s = latencies.len() as f64 / seconds;
        Self {
            calls: latencies.len(),
            seconds,
            calls_per_s: rounded(calls_per_s),
            p50_ms: quantile(0.5),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            max_ms: millis(latencies.max()),
            in_flight: load.in_flight,
            bytes: load.bytes,
            pgbench_tps: pgbench_tps.map(rounded),
            cpu_s: measured.cpu.as_secs_f64(),
            lost: measured.lost,
        }
    }

    /// Prints it, for people or as JSON.
    ///
    /// # Errors
    ///
    /// Standard output is closed.
    pub fn print(&self, json: bool) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        let printing = if json {
            let text = serde_json::to_string(self).context("write the report")?;
            writeln!(out, "{text}")
        } else {
            self.tell(&mut out)
        };
        printing.context("print the report")
    }

    fn tell(&self, out: &mut impl Write) -> io::Result<()> {
        let Self {
            calls,
            seconds,
            calls_per_s,
            p50_ms,
            p95_ms,
            p99_ms,
            max_ms,
            in_flight,
            bytes,
            pgbench_tps,
            cpu_s,
            lost,
        } = self;
        writeln!(
            out,
            "{calls} calls in {seconds} s, {in_flight} in flight, {bytes} bytes of arguments"
        )?;
        writeln!(out, "calls/s   {calls_per_s}")?;
        writeln!(
            out,
            "latency   p50 {p50_ms} ms, p95 {p95_ms} ms, p99 {p99_ms} ms, max {max_ms} ms"
        )?;
        if let Some(tps) = pgbench_tps {
            writeln!(
                out,
                "pgbench   {tps} calls/s, the same statements, each call by itself"
            )?;
        }
        writeln!(out, "CPU       {cpu_s:.2} s in this process")?;
        writeln!(out, "lost      {lost}")
    }
}

/// Milliseconds of microseconds.
fn millis(micros: u64) -> f64 {
    let micros = u32::try_from(micros).unwrap_or(u32::MAX);
    f64::from(micros) / 1000.0
}

fn rounded(figure: f64) -> f64 {
    (figure * 10.0).round() / 10.0
}

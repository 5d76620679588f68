//! The floor: a separate program that runs the bare statements on the same servers, between the workloads.

use std::{os::unix::fs::PermissionsExt, path::PathBuf, process::Stdio, time::Duration};

use anyhow::{Context, bail};
use fleet::config::ConfigError;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

/// Its name; it is beside this program.
const PROGRAM: &str = "toolfleet-floor";
/// How much longer than its slice it may take, with a `pgbench` in it.
const SLACK: Duration = Duration::from_secs(120);

/// The results of a slice.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FloorRun {
    /// Calls that were answered.
    pub calls: u64,
    /// Calls a second.
    pub calls_per_s: f64,
    /// Half of them took at most this long.
    pub p50_ms: f64,
    /// 95 of a hundred took at most this long.
    pub p95_ms: f64,
    /// 99 of a hundred took at most this long.
    pub p99_ms: f64,
    /// The longest.
    #[serde(default)]
    pub max_ms: Option<f64>,
    /// Transactions a second of Postgres's own program.
    #[serde(default)]
    pub pgbench_tps: Option<f64>,
    /// CPU seconds by process.
    #[serde(default)]
    pub cpu_s: serde_json::Value,
}

/// How it is run.
#[derive(Debug, Clone)]
pub struct Floor {
    /// The program.
    pub program: PathBuf,
    /// Where NATS is.
    pub nats_url: SecretString,
    /// Where Postgres is.
    pub database_url: SecretString,
    /// Calls in the air at a time.
    pub in_flight: usize,
    /// Size of the arguments.
    pub bytes: usize,
    /// How long a slice is measured.
    pub seconds: u64,
    /// How long it runs before that, in seconds.
    pub warm_up: u64,
}

/// The named path, or the one beside this program.
///
/// # Errors
///
/// There is no program.
pub fn find(given: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
    let program = match given {
        Some(program) => program.clone(),
        None => std::env::current_exe()
            .context("find this very program")?
            .with_file_name(PROGRAM),
    };
    let is_program = program
        .metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    if !is_program {
        let what = format!(
            "{} is not a program: build it with `cargo build --release -p toolfleet-floor`, or name it with --floor-program",
            program.display()
        );
        return Err(ConfigError(vec![what]).into());
    }
    Ok(program)
}

impl Floor {
    /// Runs a slice of it.
    pub(crate) async fn run(&self) -> anyhow::Result<FloorRun> {
        let mut command = Command::new(&self.program);
        command
            // Not as arguments: every user of the machine may read those.
            .env("NATS_URL", self.nats_url.expose_secret())
            .env("DATABASE_URL", self.database_url.expose_secret())
            .args(["--in-flight", &self.in_flight.to_string()])
            .args(["--seconds", &self.seconds.to_string()])
            .args(["--warm-up", &self.warm_up.to_string()])
            .args(["--bytes", &self.bytes.to_string()])
            .arg("--json")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let most = Duration::from_secs(self.seconds + self.warm_up) + SLACK;
        let ran = tokio::time::timeout(most, command.output()).await;
        let ran = ran
            .with_context(|| format!("{PROGRAM} did not end within {} s", most.as_secs()))?
            .with_context(|| format!("start {}", self.program.display()))?;
        if !ran.status.success() {
            let said = String::from_utf8_lossy(&ran.stderr);
            bail!("{PROGRAM} failed ({}): {}", ran.status, said.trim());
        }
        let text = String::from_utf8_lossy(&ran.stdout);
        let last = text.lines().rev().find(|line| line.starts_with('{'));
        serde_json::from_str(last.unwrap_or_default())
            .with_context(|| format!("read what {PROGRAM} prints"))
    }
}

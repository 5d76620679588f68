//! What the fleet has learned of a tool's timeout, for people and as JSON.

use std::time::Duration;

use fleet::manifest::{LearnedTimeout, Manifest, Timeout, format_duration};
use fleet_history::{instant, timeouts::KnownTimeout};
use serde::Serialize;

use crate::commands::output::{self, OutputError};

/// The timeout of a version.
#[derive(Debug, Serialize)]
struct ShownTimeout<'a> {
    tool: &'a str,
    version: i32,
    /// What the next attempt is given, unless an operator has set a mode.
    timeout_ms: u64,
    /// As the manifest writes it.
    manifest: &'a Timeout,
    #[serde(flatten)]
    known: &'a KnownTimeout,
}

/// Prints it.
pub(super) fn print(
    manifest: &Manifest,
    known: &KnownTimeout,
    as_json: bool,
) -> Result<(), OutputError> {
    let timeout = now(&manifest.timeout, known);
    if as_json {
        return output::print_json(&ShownTimeout {
            tool: manifest.name.as_str(),
            version: manifest.version,
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            manifest: &manifest.timeout,
            known,
        });
    }
    let text = match &manifest.timeout {
        Timeout::Fixed(_) => format!(
            "{} version {}: {}, as its manifest says",
            manifest.name,
            manifest.version,
            format_duration(timeout)
        ),
        Timeout::Learned(bounds) => told(manifest, bounds, timeout, known),
    };
    output::print(&text)
}

fn now(timeout: &Timeout, known: &KnownTimeout) -> Duration {
    match timeout {
        Timeout::Fixed(timeout) => *timeout,
        Timeout::Learned(bounds) => {
            let learned = known.look.as_ref().and_then(|look| look.timeout_ms);
            learned.map_or(bounds.initial, |ms| bounds.within(millis(ms)))
        }
    }
}

fn told(
    manifest: &Manifest,
    bounds: &LearnedTimeout,
    timeout: Duration,
    known: &KnownTimeout,
) -> String {
    let (floor, ceiling) = (
        format_duration(bounds.floor),
        format_duration(bounds.ceiling),
    );
    let mut text = format!(
        "{} version {}: {}, learned as {} between {floor} and {ceiling}, initially {}\n",
        manifest.name,
        manifest.version,
        format_duration(timeout),
        bounds.learned,
        format_duration(bounds.initial)
    );
    text += &match &known.look {
        None => "No dispatcher has looked at its run times yet.\n".to_owned(),
        Some(look) => format!(
            "Last look {}: {} samples, {} longer than the timeout, p95 {}, p99 {}\n",
            instant(look.looked_at),
            look.samples,
            look.longer,
            told_ms(look.p95_ms),
            told_ms(look.p99_ms)
        ),
    };
    if known.changes.is_empty() {
        return text;
    }
    let headings = [
        "AT", "TIMEOUT", "BEFORE", "WHY", "SAMPLES", "LONGER", "P95", "P99",
    ];
    let rows = known.changes.iter().map(|change| {
        vec![
            instant(change.at),
            told_ms(change.timeout_ms),
            told_ms(change.before_ms),
            change.why.clone(),
            change.samples.to_string(),
            change.longer.to_string(),
            told_ms(change.p95_ms),
            told_ms(change.p99_ms),
        ]
    });
    text + "\n" + &output::table(&headings, &rows.collect::<Vec<_>>())
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

fn told_ms(ms: i64) -> String {
    format_duration(millis(ms))
}

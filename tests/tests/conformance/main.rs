//! Every executor against the suite of the crate `conformance`, each over real tools; and the suite against wrong ones.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod chat;
mod chat_routes;
mod chat_scene;
mod chat_stream;
mod chat_stream_rows;
mod controls;
mod http;
mod mcp;
mod mcp_drains;
mod mcp_ends;
mod mcp_hostile;
mod mcp_lists;
mod mcp_long_lists;
mod mcp_programs;
mod mcp_scene;
mod mcp_streams;
mod native;
mod nats;
mod own_tool;
mod process;
mod sql;
mod transaction;

use std::{
    fs,
    io::{self, Write},
    sync::{Mutex, Once},
};

use conformance::{Behaviour, KEY_ARGUMENT, OUTPUT_LIMIT, Report, SECRET, SECRET_NAME};
use fleet::{call::Effect, manifest::Manifest, secrets::Secrets};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A manifest with this executor; `more` adds or replaces fields.
fn manifest(effect: Effect, executor: &Value, more: &Value) -> Manifest {
    let mut manifest = json!({
        "name": "conformance", "version": 1, "description": "d", "effect": effect.as_str(),
        "input_schema": {"type": "object"}, "executor": executor,
    });
    for (field, value) in more.as_object().unwrap() {
        manifest[field] = value.clone();
    }
    serde_json::from_value(manifest).unwrap()
}

/// What a manifest of this behaviour has besides.
fn fields(behaviour: Behaviour) -> Value {
    match behaviour {
        Behaviour::PutsTheKeyIntoAnArgument => json!({"idempotency": {"argument": KEY_ARGUMENT}}),
        Behaviour::BoundsAnswers => json!({"output_limit": OUTPUT_LIMIT}),
        _plain => json!({}),
    }
}

/// Arguments that do not survive careless hands.
fn exact() -> Value {
    let text = r#"{"integer": 9007199254740993, "decimal": 0.10000000000000000001, "empty": {}, "none": null,
        "text": "\u00fc \ud83d\ude00 \u2028 \"quoted\" \\ back / \u0001", "list": [1, [true], "$1; DROP TABLE x; --"]}"#;
    serde_json::from_str(text).unwrap()
}

/// A folder with the suite's secret.
fn secrets() -> (TempDir, Secrets) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(SECRET_NAME), SECRET).unwrap();
    let secrets = Secrets::new(Some(folder.path().to_owned()));
    (folder, secrets)
}

fn provider() {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        rustls::crypto::ring::default_provider()
            .install_default()
            .expect("nothing else installs one here");
    });
}

/// The columns of the one table, in its order.
const COLUMNS: &[&str] = &[
    "http",
    "chat",
    "process",
    "nats",
    "native",
    "sql",
    "transaction",
    "mcp",
    "mcp, older",
    "mcp, stdio",
    "mcp, a call",
];

/// Every promise is kept or has a reason why it cannot be tested, and a rig does not get away with reasons alone.
fn kept(report: &Report, tested_at_least: usize) {
    show(report);
    let table = conformance::table(std::slice::from_ref(report));
    assert!(report.is_kept(), "\n{table}");
    let tested = report
        .cells()
        .iter()
        .filter(|(_, _, cell)| *cell == conformance::Cell::Kept);
    assert!(tested.count() >= tested_at_least, "\n{table}");
}

/// Prints the table when its last column has come.
fn show(report: &Report) {
    static REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());
    assert!(
        COLUMNS.contains(&report.name()),
        "give it its place in COLUMNS"
    );
    let mut reports = REPORTS.lock().unwrap();
    reports.push(report.clone());
    reports.sort_by_key(|report| COLUMNS.iter().position(|name| *name == report.name()));
    if reports.len() < COLUMNS.len() {
        return;
    }
    let table = format!("\n{}\n", conformance::table(&reports));
    // Written directly: the macros' output is hidden when a test passes, and the table is what this test is run for.
    io::stdout().write_all(table.as_bytes()).unwrap();
}

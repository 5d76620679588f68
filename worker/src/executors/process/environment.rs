//! The environment of a program: a few variables of the machine, its manifest's entries, and the facts of the attempt. Nothing
//! else, for the worker's own environment holds the ledger's password.

use std::{ffi::OsString, path::PathBuf};

use fleet::ids::AttemptId;
use secrecy::{ExposeSecret, SecretString};

use crate::executors::AttemptContext;

/// The variables that every program gets from the worker's own environment.
const INHERITED: [&str; 3] = ["PATH", "LANG", "HOME"];

/// Reads them.
pub(super) fn inherited() -> Vec<(OsString, OsString)> {
    let shared = |name: &OsString| INHERITED.iter().any(|known| name == known);
    std::env::vars_os()
        .filter(|(name, _)| shared(name))
        .collect()
}

/// The variable that only processes of this attempt have.
pub(super) fn marker(attempt: AttemptId) -> String {
    format!("{ATTEMPT_ID}={attempt}")
}

/// The facts of the attempt.
pub(super) fn facts(context: &AttemptContext) -> Vec<(String, String)> {
    let variable =
        |name: &str| format!("TOOLFLEET_{}", name.to_ascii_uppercase().replace('-', "_"));
    let mut facts: Vec<(String, String)> = context
        .facts()
        .into_iter()
        .map(|(name, value)| (variable(name), value))
        .collect();
    facts.push((ATTEMPT_ID.to_owned(), context.attempt_id.to_string()));
    facts.push((
        "TOOLFLEET_IDEMPOTENCY_KEY".to_owned(),
        context.idempotency_key.clone(),
    ));
    let trace = &context.trace;
    let headers = [
        ("TRACEPARENT", &trace.traceparent),
        ("TRACESTATE", &trace.tracestate),
        ("BAGGAGE", &trace.baggage),
    ];
    facts.extend(
        headers
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?))),
    );
    facts
}

/// Sets the whole environment of a command. The facts come last, so a manifest cannot forge them.
pub(super) fn set<'a>(
    command: &mut tokio::process::Command,
    inherited: &[(OsString, OsString)],
    manifest: impl IntoIterator<Item = (&'a String, &'a SecretString)>,
    context: &AttemptContext,
    fifo: Option<PathBuf>,
) {
    command.env_clear();
    command.envs(inherited.iter().map(|(name, value)| (name, value)));
    command.envs(
        manifest
            .into_iter()
            .map(|(name, value)| (name, value.expose_secret())),
    );
    command.envs(facts(context));
    command.envs(fifo.map(|fifo| (EVENTS, fifo)));
    command.envs(context.handed.folder().map(|folder| (FILES, folder)));
}

/// Sets the whole environment of a program that serves many attempts: it is told of none. The id marks its processes.
pub(super) fn set_shared<'a>(
    command: &mut tokio::process::Command,
    inherited: &[(OsString, OsString)],
    manifest: impl IntoIterator<Item = (&'a String, &'a SecretString)>,
    id: AttemptId,
) {
    command.env_clear();
    command.envs(inherited.iter().map(|(name, value)| (name, value)));
    command.envs(
        manifest
            .into_iter()
            .map(|(name, value)| (name, value.expose_secret())),
    );
    command.env(ATTEMPT_ID, id.to_string());
}

/// Where a program writes what it tells while it runs.
const EVENTS: &str = "TOOLFLEET_EVENTS";

/// Where it finds the files of its call.
const FILES: &str = "TOOLFLEET_FILES";

const ATTEMPT_ID: &str = "TOOLFLEET_ATTEMPT_ID";

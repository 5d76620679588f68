//! What processes of ours will read from the environment, looked at before anything is started for them.
//!
//! A variable that they do not understand would end each of them three times, and be found in a log.

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use fleet::{config::ConfigError, telemetry};

use super::variable::refusal;

/// The command line of a process that is started.
#[derive(Debug, Parser)]
#[command(name = "toolfleet")]
struct ChildLine {
    #[command(subcommand)]
    child: ChildCommand,
}

#[derive(Debug, Subcommand)]
enum ChildCommand {
    Dispatcher(Box<dispatcher::Config>),
    Worker(Box<worker::Config>),
}

/// Addresses that are ones: theirs are not known yet.
const PLACES: [&str; 4] = [
    "--database-url",
    "postgres://nobody@localhost/nothing",
    "--nats-url",
    "nats://localhost",
];
/// As [`PLACES`], for what workers alone are told.
const TOOLS: [&str; 2] = ["--tool-database-url", PLACES[1]];

/// Whether a dispatcher would start in this environment.
///
/// # Errors
///
/// A variable says something that it cannot use.
pub(super) fn check_dispatcher() -> anyhow::Result<()> {
    check(&["dispatcher", "--http", "127.0.0.1:0"])
}

/// Whether a worker would start in this environment that is told this, too.
///
/// # Errors
///
/// As for [`check_dispatcher`].
pub(super) fn check_worker(words: &[&str]) -> anyhow::Result<()> {
    check(&[&["worker", "--http", "127.0.0.1:0"], words, &TOOLS].concat())
}

fn check(words: &[&str]) -> anyhow::Result<()> {
    let line: Vec<OsString> = ["toolfleet"]
        .iter()
        .chain(words)
        .chain(&PLACES)
        .map(OsString::from)
        .collect();
    let mut command = ChildLine::command();
    let matches = match command.try_get_matches_from_mut(&line) {
        Ok(matches) => matches,
        Err(problem) => {
            return Err(match refusal(&problem, &command) {
                Some(bad) => bad.into(),
                None => problem.into(),
            });
        }
    };
    let (checked, telemetry) = match ChildLine::from_arg_matches(&matches)?.child {
        ChildCommand::Dispatcher(config) => (config.check(), config.telemetry),
        ChildCommand::Worker(config) => (config.check(), config.telemetry),
    };
    let mut wrong = checked
        .err()
        .map_or_else(Vec::new, |ConfigError(wrong)| wrong);
    if let Err(problem) = telemetry::check(&telemetry) {
        wrong.push(telemetry::report(&problem));
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(ConfigError(wrong).into())
    }
}

//! Checks the environment for processes that this program starts, before it starts anything for them.
//!
//! A variable that they do not understand would end each of them three times, and be found only in a log.

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
    Gateway(Box<gateway::Config>),
}

/// Valid addresses in place of the real ones, which are not known yet.
const PLACES: [&str; 4] = [
    "--database-url",
    "postgres://nobody@localhost/nothing",
    "--nats-url",
    "nats://localhost",
];
/// The same for flags of workers.
const TOOLS: [&str; 2] = ["--tool-database-url", PLACES[1]];

/// Whether a dispatcher would start in this environment.
///
/// # Errors
///
/// A dispatcher cannot use the value of a variable.
pub(super) fn check_dispatcher() -> anyhow::Result<()> {
    check(&["dispatcher", "--http", "127.0.0.1:0"])
}

/// Whether a gateway would start in this environment, on a loopback address and with tokens.
///
/// # Errors
///
/// As for [`check_dispatcher`].
pub(super) fn check_gateway() -> anyhow::Result<()> {
    check(&[
        "gateway",
        "--http",
        "127.0.0.1:0",
        "--listen",
        "127.0.0.1:0",
        "--auth",
        "tokens",
    ])
}

/// Whether a worker would start in this environment with these flags.
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
        ChildCommand::Gateway(config) => (config.check(), config.telemetry),
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

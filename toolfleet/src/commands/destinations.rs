//! Which servers a command line and its environment lead to, and by which setting: for what is said when one is away.

use clap::{ArgMatches, parser::ValueSource};
use fleet::explain::{Destination, Servers};
use secrecy::SecretString;

/// Those that the innermost command was told of.
pub(super) fn servers(matches: &ArgMatches) -> Servers {
    let mut command = matches;
    while let Some((_name, inner)) = command.subcommand() {
        command = inner;
    }
    Servers {
        ledger: place(command, "database_url", Destination::of_postgres),
        bus: place(command, "nats_url", Destination::of_nats),
    }
}

fn place(
    command: &ArgMatches,
    id: &str,
    of: fn(String, &SecretString) -> Option<Destination>,
) -> Option<Destination> {
    // An error: this command has no such setting.
    let url = command.try_get_one::<SecretString>(id).ok().flatten()?;
    let setting = match command.value_source(id) {
        Some(ValueSource::CommandLine) => format!("--{}", id.replace('_', "-")),
        Some(_) | None => id.to_uppercase(),
    };
    of(setting, url)
}

//! Reading the command line.
//!
//! A client command without an address uses the addresses of a fleet that is near (`nearby`), but only if neither an option nor
//! the environment has any address: a mixture of two fleets' addresses would be wrong. So the command line is read twice, first
//! without the settings that are needed only where no `dev` is near.

use std::{env, ffi::OsString};

use anyhow::Context;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches, parser::ValueSource};
use fleet::explain::Servers;

use super::{
    destinations::{Named, servers},
    line::{self, Program},
    nearby::nearest,
    output,
    usage::UsageError,
    variable::{BadVariable, refusal},
};
use crate::dev::DATA_FOLDER;

/// Commands that ask a fleet something; the others run one.
const CLIENTS: [&str; 11] = [
    "bench", "call", "calls", "control", "doctor", "files", "mcp", "models", "tokens", "tools",
    "workers",
];
/// Commands that need a database for many calls alone, and say so themselves.
const FOR_MANY: [(&str, &str); 2] = [("calls", "cancel"), ("calls", "settle")];
const DATABASE: &str = "database_url";
const NATS: &str = "nats_url";
const TOOLS: &str = "tool_database_url";

/// Reads the command line, and which servers it leads to. Ends the process as clap does where it is wrong or asks for help.
///
/// # Errors
///
/// A variable of the environment is not understood, or a client command has no address and no running `dev` is near.
pub fn parse(arguments: &[OsString]) -> anyhow::Result<Parsed> {
    let lenient = for_clients(Program::command(), &|arg| without_address(arg));
    let matches = read_line(lenient.clone(), arguments)?;
    let in_environment = ["DATABASE_URL", "NATS_URL"]
        .into_iter()
        .any(|name| env::var_os(name).is_some());
    if let Some(("bench", bench)) = matches.subcommand() {
        one_fleet(bench)?;
    }
    let (command, file) = match wanted(&lenient, &matches).filter(|_| !in_environment) {
        None => (Program::command(), None),
        Some(wanted) => told(wanted)?,
    };
    let file = file.as_deref();
    let matches = read_line(command.clone(), arguments)?;
    let program = Program::from_arg_matches(&matches).unwrap_or_else(|problem| problem.exit());
    let mut parsed = Parsed {
        program,
        servers: servers(&command, &matches, file),
        named: Named::of(&command, &matches, file),
    };
    if let line::Command::Doctor(doctor) = &mut parsed.program.command {
        doctor.servers = Some(parsed.servers.clone());
    }
    if let line::Command::Calls(calls) = &mut parsed.program.command {
        calls.lead_to(&parsed.servers);
    }
    Ok(parsed)
}

/// A command line, and what messages about it need.
#[derive(Debug)]
pub struct Parsed {
    /// What to do.
    pub program: Program,
    /// Where it leads.
    pub servers: Servers,
    /// Where its settings come from.
    pub named: Named,
}

/// A bench starts a fleet of its own, or is told of one.
fn one_fleet(bench: &ArgMatches) -> Result<(), UsageError> {
    let given = |id: &&str| bench.value_source(id) == Some(ValueSource::CommandLine);
    let other = [DATABASE, TOOLS, NATS, "prefix"].into_iter().find(given);
    match other.filter(|_| bench.get_flag("dev")) {
        None => Ok(()),
        Some(id) => Err(UsageError(format!(
            "--dev makes a fleet of its own: leave out --{}, or --dev",
            id.replace('_', "-")
        ))),
    }
}

fn read_line(mut command: Command, arguments: &[OsString]) -> Result<ArgMatches, BadVariable> {
    let matches = command.try_get_matches_from_mut(arguments);
    matches.map_err(|problem| refusal(&problem, &command).unwrap_or_else(|| problem.exit()))
}

/// The command line with the addresses of the fleet that is near, and its file.
fn told(wanted: Wanted) -> anyhow::Result<(Command, Option<String>)> {
    let here = env::current_dir().context("find the current folder")?;
    let found = nearest(&here);
    for passed in &found.passed_over {
        output::warn(passed);
    }
    let Some((file, state)) = found.fleet else {
        // Without a database nothing can be read; the bus has a default address.
        if wanted.database {
            let what = format!(
                "no address is given: set DATABASE_URL or --database-url, or run it where `toolfleet dev` runs; \
                 neither {} nor a folder above it has a {DATA_FOLDER}/dev.json to use",
                here.display()
            );
            return Err(UsageError(what).into());
        }
        return Ok((Program::command(), None));
    };
    let state = state?;
    output::warn(&format!(
        "no address is given: this is the fleet of {}",
        file.display()
    ));
    let known = [
        (NATS, state.nats_url),
        (DATABASE, state.database_url),
        (TOOLS, state.tool_database_url),
    ];
    // clap needs defaults that live for ever, and this process ends with its command.
    let known = known.map(|(id, url)| (id, &*Box::leak(url.into_boxed_str())));
    let command = for_clients(Program::command(), &|arg| {
        let url = known.iter().find(|(id, _)| arg.get_id() == *id);
        match url {
            // It may contain a password, which no help may show.
            Some((_, url)) => {
                let arg = arg.required(false).hide_default_value(true);
                arg.default_value(*url)
            }
            None => arg,
        }
    });
    Ok((command, Some(file.display().to_string())))
}

/// Which addresses a command needs that was given none.
struct Wanted {
    database: bool,
}

fn wanted(lenient: &Command, matches: &ArgMatches) -> Option<Wanted> {
    let (name, mut at) = matches.subcommand()?;
    // It starts a fleet of its own.
    if !CLIENTS.contains(&name) || (name == "bench" && at.get_flag("dev")) {
        return None;
    }
    let mut command = lenient.find_subcommand(name)?;
    while let Some((name, below)) = at.subcommand() {
        command = command.find_subcommand(name)?;
        at = below;
    }
    let has = |id: &str| command.get_arguments().any(|arg| arg.get_id() == id);
    let is_given = |id: &str| {
        let source = has(id).then(|| at.value_source(id)).flatten();
        // The environment is not this command's alone, and is checked as a whole.
        source == Some(ValueSource::CommandLine)
    };
    let given = is_given(DATABASE) || is_given(NATS);
    let for_many = FOR_MANY.contains(&(name, command.get_name()));
    let database = has(DATABASE) && !for_many;
    ((has(DATABASE) || has(NATS)) && !given).then_some(Wanted { database })
}

/// Changes every argument of every client command.
fn for_clients(program: Command, change: &dyn Fn(Arg) -> Arg) -> Command {
    program.mut_subcommands(|command| {
        if CLIENTS.contains(&command.get_name()) {
            all_below(command, change)
        } else {
            command
        }
    })
}

fn all_below(command: Command, change: &dyn Fn(Arg) -> Arg) -> Command {
    command
        .mut_args(change)
        .mut_subcommands(|below| all_below(below, change))
}

/// An optional address, whose help says where it is looked for.
fn without_address(arg: Arg) -> Arg {
    if arg.get_id() != DATABASE && arg.get_id() != NATS {
        return arg;
    }
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let help = format!(
        "{}. Without any address: that of the nearest {DATA_FOLDER}/dev.json",
        help.trim_end_matches('.')
    );
    arg.required(false).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_client_commands_without_any_address_look_around() {
        let lenient = for_clients(Program::command(), &|arg| without_address(arg));
        let looks = |line: &str| {
            let words = line.split(' ');
            let matches = lenient.clone().try_get_matches_from(words).unwrap();
            wanted(&lenient, &matches).map(|wanted| wanted.database)
        };
        for (line, expected) in [
            ("toolfleet calls list", Some(true)),
            ("toolfleet calls cancel --tool look", Some(false)),
            ("toolfleet calls discard --note x", Some(true)),
            ("toolfleet control log", Some(true)),
            ("toolfleet control pause --tool look --note x", Some(true)),
            ("toolfleet doctor", Some(true)),
            ("toolfleet tokens list", Some(true)),
            ("toolfleet files list", Some(false)),
            ("toolfleet control list", Some(true)),
            ("toolfleet control resume 7 --note x", Some(true)),
            ("toolfleet call look", Some(false)),
            ("toolfleet bench", Some(true)),
            ("toolfleet bench --dev", None),
            ("toolfleet tools lint .", None),
            ("toolfleet calls list --database-url x", None),
            ("toolfleet doctor --nats-url x", None),
            ("toolfleet dev", None),
        ] {
            assert_eq!(looks(line), expected, "{line}");
        }
    }

    #[test]
    fn every_command_runs_a_fleet_or_asks_one() {
        let runs = ["dev", "dispatcher", "worker", "gateway", "migrate"];
        // Of a fleet's own processes, and of none.
        let others = ["nats-config", "bench-worker", "guard"];
        for command in Program::command().get_subcommands() {
            let name = command.get_name();
            let lists = [&CLIENTS[..], &runs, &others];
            let found = lists.iter().filter(|list| list.contains(&name));
            assert_eq!(found.count(), 1, "{name}");
        }
    }
}

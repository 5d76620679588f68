//! Client commands that were told no address: the fleet of the nearest `.toolfleet/dev.json`.
//!
//! Only where neither an option nor the environment has any address: one of this fleet and one of another would be neither.
//! The command line is read twice, first without what is only needed where no `dev` is near.

use std::{
    env,
    ffi::OsString,
    fs::{self, OpenOptions},
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches, parser::ValueSource};
use fleet::explain::Servers;
use nix::{fcntl::OFlag, unistd::geteuid};

use super::{
    Program,
    destinations::{Named, servers},
    exit::UsageError,
    output,
    variable::{BadVariable, refusal},
};
use crate::{
    dev::{DATA_FOLDER, DevState},
    servers::process::command_line,
};

/// Those that ask something of a fleet; the others make one.
const CLIENTS: [&str; 6] = ["bench", "call", "calls", "doctor", "tools", "workers"];
const DATABASE: &str = "database_url";
const NATS: &str = "nats_url";
const TOOLS: &str = "tool_database_url";
/// Far more than a `dev.json` has.
const BYTES_MAX: u64 = 64 * 1024;
/// Far more than a process id has.
const PID_BYTES_MAX: u64 = 32;

/// A `dev` that was killed left its `dev.json` behind.
#[derive(Debug, thiserror::Error)]
#[error(
    "the `toolfleet dev` of {} has ended and left its dev.json: start it again there, or set NATS_URL and DATABASE_URL",
    .0.display()
)]
pub(super) struct DevEnded(PathBuf);

/// Reads the command line, and which servers it leads to; ends the process as clap does where it makes no sense, or asks for
/// help.
///
/// # Errors
///
/// A variable of the environment is not understood, or a client command has no address, and no `dev` that runs is near.
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
    if let super::Command::Doctor(doctor) = &mut parsed.program.command {
        doctor.servers = Some(parsed.servers.clone());
    }
    Ok(parsed)
}

/// A command line, and what is to be said of it when something is wrong.
#[derive(Debug)]
pub struct Parsed {
    /// What to do.
    pub program: Program,
    /// Where it leads.
    pub servers: Servers,
    /// How its settings were given.
    pub named: Named,
}

/// A bench makes a fleet of its own, or is told of one.
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
        // Without a database nothing can be looked at; the bus has a usual place.
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
    // clap keeps defaults for ever, and so does this process, which ends with its command.
    let known = known.map(|(id, url)| (id, &*Box::leak(url.into_boxed_str())));
    let command = for_clients(Program::command(), &|arg| {
        let url = known.iter().find(|(id, _)| arg.get_id() == *id);
        match url {
            // It may have a password, which no help may show.
            Some((_, url)) => {
                let arg = arg.required(false).hide_default_value(true);
                arg.default_value(*url)
            }
            None => arg,
        }
    });
    Ok((command, Some(file.display().to_string())))
}

/// Which addresses a command takes that was given none.
struct Wanted {
    database: bool,
}

fn wanted(lenient: &Command, matches: &ArgMatches) -> Option<Wanted> {
    let (name, mut at) = matches.subcommand()?;
    // A fleet of its own.
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
        // What the environment gives is not this command's alone, and is looked at as a whole.
        source == Some(ValueSource::CommandLine)
    };
    let given = is_given(DATABASE) || is_given(NATS);
    let database = has(DATABASE);
    ((database || has(NATS)) && !given).then_some(Wanted { database })
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

/// An address that need not be given, and says where it is looked for.
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

/// The nearest fleet, and why nearer ones were passed over.
#[derive(Debug, Default)]
struct Found {
    fleet: Option<(PathBuf, Result<DevState, DevEnded>)>,
    passed_over: Vec<String>,
}

/// Looks in this folder and in those above it.
fn nearest(here: &Path) -> Found {
    let mut found = Found::default();
    for folder in here.ancestors() {
        let data = folder.join(DATA_FOLDER);
        let file = data.join("dev.json");
        let state = read(&data, &file).and_then(|state| {
            let with_life = |state| runs(&data).map(|runs| (state, runs));
            state.map(with_life).transpose()
        });
        match state {
            Ok(None) => {}
            Ok(Some((state, true))) => {
                found.fleet = Some((file, Ok(state)));
                break;
            }
            Ok(Some((_left, false))) => {
                found.fleet = Some((file, Err(DevEnded(folder.to_path_buf()))));
                break;
            }
            Err(reason) => {
                let file = file.display();
                found
                    .passed_over
                    .push(format!("{file} is not used: {reason}"));
            }
        }
    }
    found
}

/// What the file says; none when it is not there.
fn read(data: &Path, file: &Path) -> Result<Option<DevState>, String> {
    // Another user's `.toolfleet` may be a link to a folder of ours: what is asked about is the name.
    match fs::symlink_metadata(data) {
        Ok(folder) if folder.is_dir() => trusted("its folder", &folder)?,
        Ok(_other) => return Err("its folder is no real folder".to_owned()),
        Err(reason) if is_absent(&reason) => return Ok(None),
        Err(reason) => return Err(reason.to_string()),
    }
    let Some(text) = content(file, BYTES_MAX)? else {
        return Ok(None);
    };
    let state = serde_json::from_slice(&text);
    state.map(Some).map_err(|reason| reason.to_string())
}

/// What a regular file of ours has, its first `bytes_max` bytes; none when it is not there.
fn content(file: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, String> {
    // Opening a FIFO would wait for its writer, and a link leads to wherever its owner wants.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let open = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits())
        .open(file);
    let open = match open {
        Ok(open) => open,
        Err(reason) if is_absent(&reason) => return Ok(None),
        Err(reason) => return Err(reason.to_string()),
    };
    // Of what is open: another may stand in its place by now.
    let metadata = open.metadata().map_err(|reason| reason.to_string())?;
    if !metadata.is_file() {
        return Err("it is no regular file".to_owned());
    }
    trusted("it", &metadata)?;
    let mut text = Vec::new();
    open.take(bytes_max)
        .read_to_end(&mut text)
        .map_err(|reason| reason.to_string())?;
    Ok(Some(text))
}

fn is_absent(reason: &io::Error) -> bool {
    matches!(
        reason.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Another user who may write it could lead our arguments and results elsewhere.
fn trusted(what: &str, metadata: &fs::Metadata) -> Result<(), String> {
    if metadata.uid() != geteuid().as_raw() {
        return Err(format!("{what} belongs to another user"));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(format!("others may write {what}"));
    }
    Ok(())
}

/// Whether the `dev` of this data folder runs: it writes its process id into its lock.
fn runs(data: &Path) -> Result<bool, String> {
    let lock = content(&data.join("dev.lock"), PID_BYTES_MAX)
        .map_err(|reason| format!("dev.lock: {reason}"))?;
    let pid = String::from_utf8(lock.unwrap_or_default()).unwrap_or_default();
    let pid = pid.trim().parse::<u32>();
    Ok(pid.is_ok_and(|pid| !command_line(pid).is_empty()))
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::{PermissionsExt, symlink},
        sync::mpsc,
        thread,
        time::Duration,
    };

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    fn fleet(folder: &Path, nats_url: &str, pid: u32) -> PathBuf {
        let data = folder.join(DATA_FOLDER);
        fs::create_dir_all(&data).unwrap();
        let state = DevState {
            nats_url: nats_url.to_owned(),
            ..DevState::default()
        };
        let file = data.join("dev.json");
        let lock = data.join("dev.lock");
        fs::write(&file, serde_json::to_vec(&state).unwrap()).unwrap();
        fs::write(&lock, pid.to_string()).unwrap();
        // Whatever the umask of the tests is.
        for (path, mode) in [(&data, 0o755), (&file, 0o600), (&lock, 0o644)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        file
    }

    fn url(found: &Found) -> Option<&str> {
        let (_, state) = found.fleet.as_ref()?;
        Some(&state.as_ref().ok()?.nats_url)
    }

    #[test]
    fn the_nearest_is_taken_that_belongs_to_us_alone() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b/c");
        fs::create_dir_all(&deep).unwrap();
        let of_us = std::process::id();
        fleet(folder.path(), "nats://far", of_us);
        assert_eq!(url(&nearest(&deep)), Some("nats://far"));
        let near = fleet(&folder.path().join("a/b"), "nats://near", of_us);
        assert_eq!(url(&nearest(&deep)), Some("nats://near"));

        let open = fs::Permissions::from_mode(0o666);
        fs::set_permissions(&near, open).unwrap();
        let found = nearest(&deep);
        assert_eq!(url(&found), Some("nats://far"));
        assert!(
            found.passed_over[0].contains("others may write it"),
            "{found:?}"
        );
        fs::set_permissions(&near, fs::Permissions::from_mode(0o600)).unwrap();
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(near.parent().unwrap(), open).unwrap();
        assert!(nearest(&deep).passed_over[0].contains("its folder"));
    }

    /// What is found here; a look that waits for a writer never ends, and fails here.
    fn found_in_time(here: &Path) -> Found {
        let (done, answer) = mpsc::channel();
        let here = here.to_path_buf();
        thread::spawn(move || {
            // A test that waited too long has gone away.
            done.send(nearest(&here)).unwrap_or_default();
        });
        answer
            .recv_timeout(Duration::from_secs(10))
            .expect("the look at the folders ends")
    }

    #[test]
    fn what_is_no_regular_file_is_passed_over_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a");
        fleet(folder.path(), "nats://far", std::process::id());
        for name in ["dev.json", "dev.lock"] {
            let planted = fleet(&deep, "nats://near", std::process::id());
            let planted = planted.with_file_name(name);
            fs::remove_file(&planted).unwrap();
            mkfifo(&planted, Mode::from_bits_truncate(0o600)).unwrap();
            let found = found_in_time(&deep);
            assert_eq!(url(&found), Some("nats://far"), "{name}");
            assert!(
                found.passed_over[0].contains("no regular file"),
                "{found:?}"
            );
            fs::remove_dir_all(deep.join(DATA_FOLDER)).unwrap();
        }
    }

    #[test]
    fn a_link_to_a_fleet_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let of_another = fleet(elsewhere.path(), "nats://another", std::process::id());
        fleet(folder.path(), "nats://far", std::process::id());
        let deep = folder.path().join("a");
        fs::create_dir(&deep).unwrap();
        let link = deep.join(DATA_FOLDER);
        symlink(of_another.parent().unwrap(), &link).unwrap();
        assert_eq!(url(&nearest(&deep)), Some("nats://far"));

        fs::remove_file(&link).unwrap();
        let planted = fleet(&deep, "nats://near", std::process::id());
        fs::remove_file(&planted).unwrap();
        symlink(&of_another, &planted).unwrap();
        assert_eq!(url(&nearest(&deep)), Some("nats://far"));
    }

    #[test]
    fn what_a_group_may_write_is_not_ours_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = fleet(folder.path(), "nats://near", std::process::id());
        for name in ["dev.json", "dev.lock"] {
            let path = file.with_file_name(name);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
            assert_eq!(url(&nearest(folder.path())), None, "{name}");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        assert_eq!(url(&nearest(folder.path())), Some("nats://near"));
    }

    #[test]
    fn a_dev_that_has_ended_is_no_fleet_and_is_not_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a");
        fleet(folder.path(), "nats://far", std::process::id());
        // Process ids end at 2^22.
        fleet(&deep, "nats://near", 1 << 23);
        let found = nearest(&deep);
        let (_, state) = found.fleet.unwrap();
        let said = state.unwrap_err().to_string();
        assert!(
            said.contains("has ended") && said.contains("toolfleet dev"),
            "{said}"
        );
    }

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
            ("toolfleet doctor", Some(true)),
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
}

//! The way in: a guard, or a subcommand on a runtime whose failure becomes one line and an exit code.

use std::{io::Write, process::ExitCode, time::Duration};

use fleet::explain::Servers;
use tokio::runtime;

use crate::commands::{self, Named, Parsed};

/// How long what still blocks a thread may hold up the end of the process.
const LEFTOVERS_MAX: Duration = Duration::from_secs(1);

/// All of the program.
///
/// # Panics
///
/// TLS was set up before it.
pub fn main() -> ExitCode {
    // Before anything else: a guard has no runtime, and the kernel's facts about its children are all it knows.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|verb| verb == "guard")
    {
        return worker::guard::main();
    }
    let arguments: Vec<_> = std::env::args_os().collect();
    let Parsed {
        program,
        servers,
        named,
    } = match commands::parse(&arguments) {
        Ok(parsed) => parsed,
        Err(problem) => return refuse(&problem, &Servers::default(), &Named::default()),
    };
    rustls::crypto::ring::default_provider()
        .install_default()
        .expect("nothing has installed a provider before main");
    // One thread, for a process of a fleet waits for others nearly all of its time, and what takes long or blocks has threads of
    // its own. Tasks then run in the order in which they are woken, so those that send are not followed at once by the
    // one that writes, and a write takes what all of them had to say.
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(problem) => {
            let problem = anyhow::Error::new(problem).context("start the runtime");
            return refuse(&problem, &servers, &named);
        }
    };
    let ended = runtime.block_on(program.command.run());
    runtime.shutdown_timeout(LEFTOVERS_MAX);
    ended.unwrap_or_else(|problem| refuse(&problem, &servers, &named))
}

/// Says what went wrong, in one line, and how the process ends.
fn refuse(problem: &anyhow::Error, servers: &Servers, named: &Named) -> ExitCode {
    match commands::exit_code(problem) {
        commands::OK => ExitCode::SUCCESS,
        exit => {
            let line = commands::describe(problem, servers, named);
            // Standard error is closed: the exit code has to do.
            writeln!(std::io::stderr(), "toolfleet: {line}").unwrap_or_default();
            ExitCode::from(exit)
        }
    }
}

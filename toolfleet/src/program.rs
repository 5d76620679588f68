//! The entry point: a guard, or a subcommand on a runtime whose error becomes one line and an exit code.

use std::{io::Write, process::ExitCode, time::Duration};

use fleet::explain::Servers;
use tokio::runtime;

use crate::commands::{self, Named, Parsed};

/// How long a blocked thread may delay the end of the process.
const LEFTOVERS_MAX: Duration = Duration::from_secs(1);

/// The whole program.
///
/// # Panics
///
/// TLS was set up before.
pub fn main() -> ExitCode {
    // Before anything else: a guard needs no runtime, and starts fast.
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
    // One thread: a process of a fleet waits for others nearly all of its time, and work that takes long or blocks has threads
    // of its own. Tasks then run in the order in which they are woken. So a task that writes runs after all tasks that send,
    // and one write takes what all of them sent.
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

/// Prints what went wrong, in one line, and returns the exit code.
fn refuse(problem: &anyhow::Error, servers: &Servers, named: &Named) -> ExitCode {
    match commands::exit_code(problem) {
        commands::OK => ExitCode::SUCCESS,
        exit => {
            let line = commands::describe(problem, servers, named);
            // Standard error is closed; then only the exit code tells.
            writeln!(std::io::stderr(), "toolfleet: {line}").unwrap_or_default();
            ExitCode::from(exit)
        }
    }
}

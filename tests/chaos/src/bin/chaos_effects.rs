//! The world outside the fleet: the services of HTTP and NATS tools, and the program of process tools.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use fleet_chaos::{
    effects::{process, service},
    login::{Login, Who},
};
use tokio::runtime;

/// Tools of a chaos run.
#[derive(Parser)]
struct Line {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Serves HTTP and NATS tools as long as the standard input is open.
    Serve {
        /// The file of effects.
        #[arg(long)]
        file: PathBuf,
        /// Where NATS is, without users.
        #[arg(long, required_unless_present = "run")]
        nats_url: Option<String>,
        /// The folder of the run, which has the users.
        #[arg(long, requires = "nats_port")]
        run: Option<PathBuf>,
        /// The port of nats-server there.
        #[arg(long)]
        nats_port: Option<u16>,
    },
    /// Runs a process tool.
    Tool {
        /// Which one.
        name: String,
        /// The file of effects.
        #[arg(long)]
        file: PathBuf,
    },
    /// What a process tool leaves behind.
    #[command(hide = true)]
    Linger {
        name: String,
        #[arg(long)]
        file: PathBuf,
        #[arg(long)]
        arguments: String,
    },
}

fn main() -> ExitCode {
    let Line { verb } = Line::parse();
    match run(verb) {
        Ok(code) => code,
        Err(problem) => {
            // Standard error is closed; then only the exit code tells.
            writeln!(io::stderr(), "{problem:#}").unwrap_or_default();
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    let mut runtime = match verb {
        Verb::Serve { .. } => runtime::Builder::new_multi_thread(),
        // One program per call: the fewer threads the better.
        Verb::Tool { .. } | Verb::Linger { .. } => runtime::Builder::new_current_thread(),
    };
    let runtime = runtime.worker_threads(4).enable_all().build()?;
    match verb {
        Verb::Serve {
            file,
            nats_url,
            run,
            nats_port,
        } => {
            let login = match (run, nats_port) {
                (Some(run), Some(port)) => Who::Service.login(&run, port)?,
                _ => Login::anonymous(nats_url.unwrap_or_default()),
            };
            runtime.block_on(service::serve(file, &login))?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Tool { name, file } => runtime.block_on(process::run(&name, &file)),
        Verb::Linger {
            name,
            file,
            arguments,
        } => {
            runtime.block_on(process::linger(&name, &file, &arguments))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

//! `toolfleet mcp serve`: one client of MCP, which starts this program and talks to it over a pipe. It asks dispatchers, as any program
//! would.

use std::{io, os::fd::AsFd, path::PathBuf, process::ExitCode};

use anyhow::Context;
use fleet::{
    call::Language,
    config::{BusArgs, ParentArgs},
    ids::Label,
    invisible::first_invisible,
    process::{asked_to_stop, finish},
    telemetry::{self, TelemetryOptions},
};
use gateway::{McpContent, PipeClient, serve_pipe};
use tokio::{fs::File, io::BufReader, net::UnixStream};

use crate::commands::{
    actor, connect,
    words::{self, one_of},
};

/// What `mcp serve` is told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A client starts it and writes a message a line. Its calls are cancelled when it closes its end; SIGTERM leaves them alone.\n\
                  Logs go to standard error. The rights are those of the user at NATS: there are no tokens. docs/mcp.md has more."
)]
pub struct Serve {
    /// Who asks, for the history, and for the keys of calls that the client gives none; the system user's name without it
    #[arg(long, value_name = "NAME", value_parser = name)]
    principal: Option<String>,
    /// Who calls
    #[arg(long, default_value = "default")]
    tenant: Label,
    /// The language of messages
    #[arg(long, default_value = "en", value_parser = one_of::<Language>(Language::ALL, Language::as_str))]
    language: Language,
    /// A folder with resources and prompts, read at the start: docs/mcp.md
    #[arg(long, value_name = "DIR")]
    mcp_content: Option<PathBuf>,
    #[command(flatten)]
    bus: BusArgs,
    #[command(flatten)]
    telemetry: TelemetryOptions,
}

impl Serve {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        // Before anything else: a signal while it connects stops it, too.
        let stop = asked_to_stop(ParentArgs { parent_pipe: false })?;
        let telemetry = telemetry::start("mcp", &self.telemetry)?;
        let served = self.serve(stop).await;
        finish(telemetry).await;
        served?;
        Ok(ExitCode::SUCCESS)
    }

    async fn serve(self, stop: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
        let client = PipeClient {
            principal: self.principal.unwrap_or_else(actor::user),
            tenant: self.tenant,
            language: self.language,
            content: McpContent::of(self.mcp_content.as_deref())?,
        };
        let bus = connect::bus(&self.bus).await?;
        let input = BufReader::new(input().context("read standard input")?);
        let output = output().context("write to standard output")?;
        Box::pin(serve_pipe(client, &bus, input, output, stop)).await?;
        Ok(())
    }
}

/// Standard input. A thread of its own reads it: the runtime would wait for its own blocking read when it shuts down.
fn input() -> io::Result<UnixStream> {
    let (mut from, to) = std::os::unix::net::UnixStream::pair()?;
    std::thread::spawn(move || {
        // An end of either side is the end of both.
        io::copy(&mut io::stdin().lock(), &mut from).ok();
    });
    to.set_nonblocking(true)?;
    UnixStream::from_std(to)
}

fn output() -> io::Result<File> {
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    Ok(File::from_std(output.into()))
}

/// A name that can be seen: a cancellation by another one is refused.
fn name(text: &str) -> Result<String, String> {
    let name = words::name(text)?;
    match first_invisible(&name) {
        None if !name.trim().is_empty() => Ok(name),
        None | Some(_) => Err("a name has characters that can be seen".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_be_seen() {
        assert_eq!(name("ann").unwrap(), "ann");
        for wrong in ["", " ", "a\nb", "a\u{200b}b", &"a".repeat(129)] {
            assert!(name(wrong).is_err(), "{wrong:?}");
        }
    }
}

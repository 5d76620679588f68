//! A stand-in for the program, with just enough to try `dev`.

use std::{convert::Infallible, io::Write, net::SocketAddr, process::ExitCode};

use clap::{Parser, Subcommand};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use toolfleet::dev::{self, DevHooks, DevOptions, Screen};

#[derive(Parser)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Dev(DevOptions),
    Migrate,
    #[command(alias = "worker")]
    Dispatcher(Process),
}

#[derive(clap::Args)]
struct Process {
    #[arg(long)]
    http: SocketAddr,
    #[arg(long)]
    parent_pipe: bool,
    #[arg(long)]
    name: Option<String>,
    #[arg(long)]
    concurrency: Option<u32>,
    #[arg(long)]
    drain_timeout: Option<String>,
    #[arg(long)]
    secrets: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let run = async {
        match Command::parse().verb {
            Verb::Dev(options) => {
                let hooks = DevHooks {
                    migrate: |_| Box::pin(async { Ok(()) }),
                    apply_tools: |_, _| Box::pin(async { Ok(vec!["applied".to_owned()]) }),
                    worker_died: |_, _| Box::pin(async { Ok(()) }),
                };
                dev::run(
                    options,
                    hooks,
                    Screen::new(std::io::stdout()),
                    asked_to_stop(),
                )
                .await
            }
            Verb::Migrate => Ok(()),
            Verb::Dispatcher(process) => {
                tokio::select! {
                    failed = serve(process.http) => failed.map(|never| match never {}),
                    () = asked_to_stop() => Ok(()),
                    () = dev::parent_gone(), if process.parent_pipe => Ok(()),
                }
            }
        }
    };
    match run.await {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            writeln!(std::io::stderr(), "{problem:#}").unwrap_or_default();
            ExitCode::FAILURE
        }
    }
}

async fn serve(address: SocketAddr) -> anyhow::Result<Infallible> {
    let listener = TcpListener::bind(address).await?;
    loop {
        let (mut connection, _) = listener.accept().await?;
        let mut request = [0; 1024];
        let _size = connection.read(&mut request).await?;
        connection
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await?;
    }
}

async fn asked_to_stop() {
    let mut terminate = signal(SignalKind::terminate()).expect("the runtime handles signals");
    let mut interrupt = signal(SignalKind::interrupt()).expect("the runtime handles signals");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

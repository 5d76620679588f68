//! The command line; what is made, measured and removed.

use std::{io::Write, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, bail};
use clap::Parser;
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};

use crate::{
    bus,
    client::{self, Callers, Load, Measured},
    dispatcher::Dispatcher,
    pgbench,
    report::Report,
    store::Store,
    worker::{self, Worker},
};

/// Measures what a durable call costs at least on these servers
///
/// Uses a schema `toolfleet_floor` and a stream `TOOLFLEET_FLOOR` of its own, which are made anew and removed at the end.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// Where nats-server is, with JetStream
    #[arg(
        long,
        env = "NATS_URL",
        default_value = "nats://127.0.0.1:4222",
        hide_env_values = true
    )]
    nats_url: String,
    /// Where Postgres is, as a `postgres://` URL
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: String,
    /// Callers, each of which asks again as soon as it is answered
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..=8192))]
    in_flight: u16,
    /// How long to measure
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Seconds before that, which do not count
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=3600))]
    warm_up: u64,
    /// Bytes of a call's arguments
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(11..=524_288))]
    bytes: u32,
    /// Also run the same statements, call by call, with pgbench: this one, or the one that is found
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "pgbench")]
    pgbench: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The whole program.
///
/// # Panics
///
/// TLS was set up before.
pub fn main() -> ExitCode {
    let options = Options::parse();
    match measure_and_say(&options) {
        Ok(exit) => exit,
        Err(problem) => {
            note(&format!("{problem:#}"));
            ExitCode::FAILURE
        }
    }
}

fn measure_and_say(options: &Options) -> anyhow::Result<ExitCode> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .expect("nothing has installed a provider before main");
    let runtime = runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    let report = runtime.block_on(run(options))?;
    report.print(options.json)?;
    Ok(if report.lost == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Makes, measures and removes; everything is removed whatever happened.
async fn run(options: &Options) -> anyhow::Result<Report> {
    let mut terminated = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let client = bus::connect(&options.nats_url, "client").await?;
    let mut store = Store::create(&options.database_url).await?;
    let measured = tokio::select! {
        measured = measure(options, &client, &mut store) => measured,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        _ = terminated.recv() => Err(anyhow::anyhow!("terminated")),
    };
    let stream_removed = bus::remove_stream(&client).await;
    let tables_removed = store.remove().await;
    let report = measured?;
    stream_removed.and(tables_removed)?;
    Ok(report)
}

async fn measure(
    options: &Options,
    client: &async_nats::Client,
    store: &mut Store,
) -> anyhow::Result<Report> {
    bus::make_stream(client).await?;
    let load = Load {
        in_flight: options.in_flight.into(),
        bytes: usize::try_from(options.bytes)?,
        warm_up: Duration::from_secs(options.warm_up),
        measured: Duration::from_secs(options.seconds),
    };
    let measured = calls(options, client, store, &load).await?;
    let pgbench_tps = match &options.pgbench {
        Some(named) => compare(options, named, store, &load).await?,
        None => None,
    };
    Ok(Report::of(&load, &measured, pgbench_tps))
}

/// All parts at once, until the callers are done.
async fn calls(
    options: &Options,
    client: &async_nats::Client,
    store: &Store,
    load: &Load,
) -> anyhow::Result<Measured> {
    let dispatcher = Dispatcher::new(bus::connect(&options.nats_url, "dispatcher").await?).await?;
    let worker = bus::connect(&options.nats_url, "worker").await?;
    let worker = Worker::new(worker, load.in_flight).await?;
    let (accepting, answering) = dispatcher.split(store.lane().await?);
    let (claiming, completing) = worker.split(store.lane().await?, store.lane().await?);
    let mut parts = JoinSet::new();
    parts.spawn(accepting);
    parts.spawn(answering);
    parts.spawn(claiming);
    parts.spawn(completing);
    let callers = Callers::new(client.clone(), load).await?;
    let mut asking = JoinSet::new();
    let load = load.clone();
    asking.spawn(async move { callers.run(&load).await });
    tokio::select! {
        Some(measured) = asking.join_next() => measured?,
        Some(ended) = parts.join_next() => match ended? {
            Ok(()) => bail!("a part ended by itself"),
            Err(problem) => Err(problem),
        },
    }
}

/// The same statements by `pgbench`, if it is here.
async fn compare(
    options: &Options,
    named: &std::path::Path,
    store: &mut Store,
    load: &Load,
) -> anyhow::Result<Option<f64>> {
    let beside_server = store.programs().await;
    let Some(program) = pgbench::find(named, beside_server) else {
        note("there is no pgbench here, so it is left out; name it with --pgbench PATH");
        return Ok(None);
    };
    store.empty().await?;
    let args = client::arguments(load.bytes);
    let (url, seconds) = (&options.database_url, options.seconds);
    match pgbench::run(&program, url, &args, worker::RESULT, seconds).await {
        Ok(tps) => Ok(Some(tps)),
        Err(problem) => {
            note(&format!("pgbench is left out: {problem:#}"));
            Ok(None)
        }
    }
}

fn note(line: &str) {
    // Standard error is closed; the exit code and the missing figure remain.
    writeln!(std::io::stderr(), "toolfleet-floor: {line}").unwrap_or_default();
}

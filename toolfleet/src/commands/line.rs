//! The command line: every subcommand, and what it does.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use super::{
    bench, call, calls, control, dev, dispatcher, doctor, files, gateway, mcp, migrate, models,
    nats_config, tokens, tools, worker, workers,
};
use crate::dev::DevOptions;

/// Takes tool calls out of AI agents: checks them, commits them to Postgres, runs them, records what happened
#[derive(Debug, Parser)]
#[command(
    name = "toolfleet",
    version,
    after_help = "Exit codes: 0 ok, 1 the thing asked for failed, 2 usage, 64 bad configuration, 69 a server is not reachable"
)]
pub struct Program {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run everything for one person: Postgres, nats-server, a dispatcher, workers, a folder of tools
    Dev(DevOptions),
    /// Run a dispatcher: answers callers, commits calls, publishes them to workers; SIGTERM stops it
    Dispatcher(Box<::dispatcher::Config>),
    /// Run a worker: runs the calls of its queues and records what came of them; SIGTERM drains it
    Worker(Box<::worker::Config>),
    /// Run a gateway: the same contract over HTTP, for curl, browsers and programs without NATS; SIGTERM stops it
    Gateway(Box<::gateway::Config>),
    /// Bring the schema of the database up to date; safe to repeat, and for several at once
    Migrate(migrate::Migrate),
    /// Write the users of nats-server, each with the rights of its role, for a fleet and its tenants
    NatsConfig(Box<nats_config::NatsConfig>),
    /// Check what the fleet stands on, a line each with what to do; rebuild the stream of pointers
    Doctor(Box<doctor::Doctor>),
    /// Apply tool manifests, check them, show what is there
    #[command(subcommand)]
    Tools(tools::Tools),
    /// Serve the fleet's tools over MCP, and see the MCP servers whose tools are the fleet's
    #[command(subcommand)]
    Mcp(mcp::Mcp),
    /// Submit a call and print its envelope, or a file of calls; exit code 1 when the envelope says `is_error`
    #[command(after_help = BULK_HELP)]
    Call(Box<call::Call>),
    /// Look at calls, take them back, settle those in doubt, make them again
    #[command(subcommand)]
    Calls(calls::Calls),
    /// Hand in files for calls, list them, get and delete them
    #[command(subcommand)]
    Files(files::Files),
    /// Show what models were asked and what that has cost: calls, failures, times, tokens, money
    Models(models::Models),
    /// See who is alive, and declare who is gone
    #[command(subcommand)]
    Workers(workers::Workers),
    /// Say what may run now, over the whole fleet: pause calls, resume them, see who did so and why
    #[command(subcommand)]
    Control(control::Control),
    /// Say who may come over HTTP: make tokens, see them, revoke them
    #[command(subcommand)]
    Tokens(tokens::Tokens),
    /// Load a fleet and measure it: calls a second, latencies, CPU and memory, lost and doubled effects
    Bench(Box<bench::BenchArgs>),
    /// A worker with the tools of `bench`
    #[command(hide = true)]
    BenchWorker(Box<bench::BenchWorker>),
}

const BULK_HELP: &str = "\
With --bulk, each line has the fields of a batch's calls: tool, args, idempotency_key, deadline_ms, run, run_deadline,
session, priority, tool_version, language, cache_control, meta, files, traceparent, tracestate, baggage. The flags above hold for
lines that do not say otherwise. A line without idempotency_key gets a key of its place and its text, so the same command,
sent again after Ctrl-C or an error, finds what was accepted and sends the rest; keep the lines in their places meanwhile.
A line with \"idempotency_key\": null has none and is a new call every time. Exit code 1 when a line was refused, or when
--wait-all found a call that did not succeed. docs/batches.md has more.";

impl Command {
    /// Runs the subcommand.
    ///
    /// # Errors
    ///
    /// It failed; [`exit_code`](super::exit_code) says what kind of failure it is.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Dev(options) => Box::pin(dev::run(options)).await,
            Self::Dispatcher(config) => Box::pin(dispatcher::run(*config)).await,
            Self::Worker(config) => Box::pin(worker::run(*config)).await,
            Self::Gateway(config) => Box::pin(gateway::run(*config)).await,
            Self::Migrate(migrate) => migrate.run().await,
            Self::NatsConfig(config) => config.run(),
            Self::Doctor(doctor) => Box::pin(doctor.run()).await,
            Self::Tools(tools) => Box::pin(tools.run()).await,
            Self::Mcp(mcp) => Box::pin(mcp.run()).await,
            Self::Call(call) => Box::pin(call.run()).await,
            Self::Calls(calls) => Box::pin(calls.run()).await,
            Self::Files(files) => Box::pin(files.run()).await,
            Self::Models(models) => Box::pin(models.run()).await,
            Self::Workers(workers) => Box::pin(workers.run()).await,
            Self::Control(control) => Box::pin(control.run()).await,
            Self::Tokens(tokens) => Box::pin(tokens.run()).await,
            Self::Bench(bench) => Box::pin(bench.run()).await,
            Self::BenchWorker(worker) => Box::pin(worker.run()).await,
        }
    }
}

//! The flags of `toolfleet dev`.

use std::path::PathBuf;

/// What `dev` is told.
#[derive(Debug, Clone, clap::Args)]
pub struct DevOptions {
    /// Where everything is kept: databases, ports, passwords, logs, secrets, dev.json. Client commands find `.toolfleet`
    #[arg(long, value_name = "DIR", default_value = ".toolfleet")]
    pub data: PathBuf,
    /// Tool manifests (*.yaml, *.yml, *.json) to apply; a changed file is applied as the next version
    #[arg(long, value_name = "DIR")]
    pub tools: Option<PathBuf>,
    /// How many workers, each a process of its own; none means that calls wait
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(0..=64))]
    pub workers: u16,
    /// How many dispatchers, each a process of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub dispatchers: u16,
    /// How many gateways, each a process of its own; none means that nobody is served over HTTP
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=16))]
    pub gateways: u16,
    /// The port of nats-server on 127.0.0.1; 0 takes a free one. Without it that of the last run, at first 14222, or a free one
    #[arg(long, value_name = "PORT")]
    pub nats_port: Option<u16>,
    /// The port of Postgres on 127.0.0.1; 0 takes a free one. Without it that of the last run, at first 15432, or a free one
    #[arg(long, value_name = "PORT")]
    pub postgres_port: Option<u16>,
    /// The HTTP port of the first dispatcher on 127.0.0.1; 0 takes a free one. Without it that of the last run, at first 18080,
    /// or a free one
    #[arg(long, value_name = "PORT")]
    pub http_port: Option<u16>,
    /// The port of the first gateway on 127.0.0.1; 0 takes a free one. Without it that of the last run, at first 8233, or a free
    /// one
    #[arg(long, value_name = "PORT")]
    pub gateway_port: Option<u16>,
    /// How many calls each worker runs at the same time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub concurrency: u32,
    /// The program that has the `dispatcher`, `worker` and `gateway` subcommands; this very program when none is given.
    #[arg(skip)]
    pub program: Option<PathBuf>,
}

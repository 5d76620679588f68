//! The flags of `toolfleet bench`.

use std::path::PathBuf;

use fleet::{
    call::{Effect, Priority},
    config::{BusArgs, secret},
};
use secrecy::SecretString;
use toolfleet_load::{Brake, Mode, Via};

use crate::commands::words::one_of;

/// What `bench` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct BenchArgs {
    /// Measure a fleet of its own: Postgres, nats-server and dispatchers with their defaults, in a temporary folder
    #[arg(long)]
    pub(super) dev: bool,
    /// With --dev: how many dispatchers, each a process of its own
    #[arg(long, value_name = "N", default_value_t = 1, requires = "dev", value_parser = clap::value_parser!(u16).range(1..=16))]
    pub(super) dispatchers: u16,
    /// How many workers the bench starts, each a process of its own with the defaults of a worker
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) workers: u16,
    /// What to call, separated by commas: read, idempotent, once, transaction; one after the other
    #[arg(long, value_name = "EFFECTS", value_delimiter = ',', default_value = "read,idempotent,once,transaction", value_parser = one_of::<Effect>(Effect::ALL, Effect::as_str))]
    pub(super) effect: Vec<Effect>,
    /// How calls reach the fleet, one after the other for each effect: nats, http, mcp, mcp-without-keys, separated by commas; all
    /// but nats are for callers who wait
    #[arg(
        long,
        value_name = "WAYS",
        value_delimiter = ',',
        default_value = "nats"
    )]
    pub(super) via: Vec<Via>,
    /// How calls are made
    #[arg(long, default_value = "sync")]
    pub(super) mode: Mode,
    /// Calls in the air at a time: the next goes out when one is answered
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = in_flight)]
    pub(super) in_flight: usize,
    /// Calls a second, whether the earlier ones were answered or not; latencies count from the intended start
    #[arg(long, value_name = "R", conflicts_with = "in_flight", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) rate: Option<u32>,
    /// With --mode batch: calls in one request
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) batch: u32,
    /// Size of the arguments
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(60..=65_536))]
    pub(super) bytes: u32,
    /// Size of the text in the result
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=65_536))]
    pub(super) result_bytes: u32,
    /// How long each tool takes, in milliseconds; a transaction takes what it takes
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(super) tool_ms: u32,
    /// How many of a hundred calls go wrong: one attempt does nothing and is repeated, the tool says no, or it takes 200 ms
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(super) failures: u8,
    /// How many of a hundred reads ask what was asked before; reads are then measured twice, without and with a cache
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=99))]
    pub(super) hits: u8,
    /// Measure each effect again with each of these in its manifest, which then holds nothing up; separated by commas
    #[arg(long, value_name = "BRAKES", value_delimiter = ',')]
    pub(super) with: Vec<Brake>,
    /// How many tenants call, in turn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(super) tenants: u32,
    /// Which of a tenant's calls go first; normal without it
    #[arg(long, value_parser = one_of::<Priority>(Priority::ALL, Priority::as_str))]
    pub(super) priority: Option<Priority>,
    /// So many more copies of each tool, which are called in turn
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub(super) tools: u32,
    /// Put so many finished calls into the history before anything is measured
    #[arg(long, value_name = "N", default_value_t = 0, requires = "dev", value_parser = clap::value_parser!(u64).range(0..=100_000_000))]
    pub(super) history: u64,
    /// Let so many calls of another tenant stay open meanwhile, in a queue without workers
    #[arg(long, value_name = "N", default_value_t = 0, requires = "dev", value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(super) held: u64,
    /// Before each workload, submit so many reads of another tenant to the same queue, which are run meanwhile
    #[arg(long, value_name = "N", default_value_t = 0, requires = "dev", value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub(super) backlog: u64,
    /// How long each workload is measured
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(super) seconds: u64,
    /// How long each workload runs before it is measured
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub(super) warm_up: u64,
    /// Run the bare statements on the same servers before and after each workload: the program toolfleet-floor
    #[arg(long)]
    pub(super) floor: bool,
    /// Where that program is; beside this one without it
    #[arg(long, value_name = "PATH", requires = "floor")]
    pub(super) floor_program: Option<PathBuf>,
    /// How long each slice of the floor is measured; as long as a workload, at most 5 s, without it
    #[arg(long, value_name = "N", requires = "floor", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(super) floor_seconds: Option<u64>,
    /// The PostgreSQL database of the fleet
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_parser = secret)]
    pub(super) database_url: Option<SecretString>,
    /// The same database as sql tools see it; without it no transactions are measured
    #[arg(long, env = "WORKER_TOOL_DATABASE_URL", hide_env_values = true, value_parser = secret)]
    pub(super) tool_database_url: Option<SecretString>,
    /// The gateway for --via http and mcp, as `http://host:port`; with --dev one of its own
    #[arg(long, value_name = "URL", env = "TOOLFLEET_GATEWAY_URL")]
    pub(super) gateway_url: Option<String>,
    /// A token for it with the scope `call`, for every tenant
    #[arg(long, value_name = "TOKEN", env = "TOOLFLEET_TOKEN", hide_env_values = true, value_parser = secret)]
    pub(super) gateway_token: Option<SecretString>,
    #[command(flatten)]
    pub(super) bus: BusArgs,
    /// Draw latencies and throughput into this file
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,
    /// Print JSON instead of tables, and no progress
    #[arg(long)]
    pub(super) json: bool,
}

const HELP: &str = "\
Examples:
  toolfleet bench --dev --floor
  toolfleet bench --dev --effect once --in-flight 1
  toolfleet bench --dev --effect once --rate 5000 --seconds 60 --json
  toolfleet bench --dev --effect read --hits 90 --floor
  toolfleet bench --dev --effect once --with breaker,rate_limit
  toolfleet bench --dev --effect once --via nats,http,mcp --in-flight 64
  toolfleet bench --dev --effect idempotent --mode batch --batch 1000

Without --dev it loads the fleet of --nats-url and --database-url: use one that no program depends on. It applies tools named
bench_…, starts workers for their queue, and keeps effects of transactions in the table toolfleet_bench.effects. What it
leaves behind are those tools, that table, empty, and the history of its calls.

Exit code 1 when a call that succeeded had no effect, or one had it twice. docs/bench.md says what the figures mean.";

fn in_flight(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=50_000) => Ok(number),
        _other => Err("it is a number from 1 to 50000".to_owned()),
    }
}

/// The most bytes of the arguments of one batch: a batch may have 8 MiB with everything around them.
pub(super) const BATCH_BYTES: u32 = 6 * 1024 * 1024;

//! `toolfleet bench`: load against a fleet, what it came to, and whether every effect happened exactly once.
//!
//! `stage` is what is measured, `tools` and `serve` are the bench's own tools and workers. `workload` makes requests, `load`
//! sends them and reads answers, `measure` does that for one workload; `figures` and `processes` count. `effects` is the
//! ledger of what really happened, `tally` holds what callers were told against it. `floor` is the bare program beside it,
//! `report` what is said in the end.

mod answer;
mod effects;
mod figures;
mod floor;
mod ledger;
mod load;
mod measure;
mod nats;
mod picture;
mod processes;
mod progress;
mod report;
mod serve;
mod stage;
mod tally;
mod tools;
mod workload;

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Duration,
};

use anyhow::{Context, bail};
use fleet::{
    call::{Effect, Priority},
    config::{BusArgs, ConfigError, ParentArgs, secret},
    explain::chain,
    process::{self, asked_to_stop},
};
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

pub(super) use self::serve::BenchWorker;
use self::{
    floor::{Floor, FloorRun},
    ledger::Ledger,
    measure::Bench,
    progress::Progress,
    report::{Report, Servers},
    stage::{Place, Stage},
    workload::{Mode, Workload},
};
use super::{
    children,
    exit::{FAILED, OK, UsageError},
    output,
    words::one_of,
};
use crate::servers::find::{self, Ground};

/// What `bench` is told.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct BenchArgs {
    /// Measure a fleet of its own: Postgres, nats-server and dispatchers with their defaults, in a temporary folder
    #[arg(long)]
    dev: bool,
    /// With --dev: how many dispatchers, each a process of its own
    #[arg(long, value_name = "N", default_value_t = 1, requires = "dev", value_parser = clap::value_parser!(u16).range(1..=16))]
    dispatchers: u16,
    /// How many workers the bench starts, each a process of its own with the defaults of a worker
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// What to call, separated by commas: read, idempotent, once, transaction; one after the other
    #[arg(long, value_name = "EFFECTS", value_delimiter = ',', default_value = "read,idempotent,once,transaction", value_parser = one_of::<Effect>(Effect::ALL, Effect::as_str))]
    effect: Vec<Effect>,
    /// How calls are made
    #[arg(long, default_value = "sync")]
    mode: Mode,
    /// Calls in the air at a time: the next goes out when one is answered
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = in_flight)]
    in_flight: usize,
    /// Calls a second, whether the earlier ones were answered or not; latencies count from the intended start
    #[arg(long, value_name = "R", conflicts_with = "in_flight", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// With --mode batch: calls in one request
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1000))]
    batch: u32,
    /// Size of the arguments
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(60..=65_536))]
    bytes: u32,
    /// Size of the text in the result
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=65_536))]
    result_bytes: u32,
    /// How many of a hundred calls go wrong: one attempt does nothing and is repeated, the tool says no, or it takes 200 ms
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    failures: u8,
    /// How many tenants call, in turn
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    tenants: u32,
    /// Which of a tenant's calls go first; normal without it
    #[arg(long, value_parser = one_of::<Priority>(Priority::ALL, Priority::as_str))]
    priority: Option<Priority>,
    /// So many more copies of each tool, which are called in turn
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    tools: u32,
    /// Put so many finished calls into the history before anything is measured
    #[arg(long, value_name = "N", default_value_t = 0, requires = "dev", value_parser = clap::value_parser!(u64).range(0..=100_000_000))]
    history: u64,
    /// Let so many calls of another tenant stay open meanwhile, in a queue that nobody serves
    #[arg(long, value_name = "N", default_value_t = 0, requires = "dev", value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    held: u64,
    /// Before each workload, submit so many reads of another tenant to the same queue, which are run meanwhile
    #[arg(long, value_name = "N", default_value_t = 0, requires = "dev", value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    backlog: u64,
    /// How long each workload is measured
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// How long each workload runs before it is measured
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=3600))]
    warm_up: u64,
    /// Run the bare statements on the same servers before and after each workload: the program toolfleet-floor
    #[arg(long)]
    floor: bool,
    /// Where that program is; beside this one without it
    #[arg(long, value_name = "PATH", requires = "floor")]
    floor_program: Option<PathBuf>,
    /// How long each slice of the floor is measured; as long as a workload, at most 5 s, without it
    #[arg(long, value_name = "N", requires = "floor", value_parser = clap::value_parser!(u64).range(1..=3600))]
    floor_seconds: Option<u64>,
    /// The PostgreSQL database of the fleet
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, value_parser = secret)]
    database_url: Option<SecretString>,
    /// The same database as sql tools see it; without it no transactions are measured
    #[arg(long, env = "WORKER_TOOL_DATABASE_URL", hide_env_values = true, value_parser = secret)]
    tool_database_url: Option<SecretString>,
    #[command(flatten)]
    bus: BusArgs,
    /// Draw latencies and throughput into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON instead of tables, and no progress
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Examples:
  toolfleet bench --dev --floor
  toolfleet bench --dev --effect once --in-flight 1
  toolfleet bench --dev --effect once --rate 5000 --seconds 60 --json
  toolfleet bench --dev --effect idempotent --mode batch --batch 1000

Without --dev it loads the fleet of --nats-url and --database-url: use one that nobody depends on. It applies tools named
bench_…, starts workers for their queue, and keeps effects of transactions in the table toolfleet_bench.effects. What it
leaves behind are those tools, that table, empty, and the history of its calls.

Exit code 1 when a call that succeeded had no effect, or one had it twice. docs/bench.md says what the figures mean.";

fn no_database() -> UsageError {
    UsageError("say which fleet: DATABASE_URL, or --dev for one of its own".to_owned())
}

/// Whether a picture can be put there; what is there stays until there is one.
fn can_be_drawn(file: &Path) -> Result<(), ConfigError> {
    let was_there = file.exists();
    let opened = OpenOptions::new().append(true).create(true).open(file);
    let drawn = opened.and_then(|_empty| match was_there {
        true => Ok(()),
        false => std::fs::remove_file(file),
    });
    drawn.map_err(|problem| {
        ConfigError(vec![format!(
            "--svg is {}, which cannot be written: {}; name a file that this user may write",
            file.display(),
            chain(&problem)
        )])
    })
}

/// Bytes of the arguments of one batch, of the 8 MiB that a batch may have with all that is around them.
const BATCH_BYTES: u32 = 6 * 1024 * 1024;

fn in_flight(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=50_000) => Ok(number),
        _other => Err("it is a number from 1 to 50000".to_owned()),
    }
}

impl BenchArgs {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        if self.mode == Mode::Batch && self.batch * self.bytes > BATCH_BYTES {
            let what = format!("a batch may have {BATCH_BYTES} bytes: lower --batch or --bytes");
            return Err(UsageError(what).into());
        }
        let floor = match self.floor {
            true => Some(floor::find(self.floor_program.as_ref())?),
            false => None,
        };
        self.check().await?;
        let stop = CancellationToken::new();
        let asked = asked_to_stop(ParentArgs::default())?;
        let mut progress = Progress::new(self.json);
        let mut running = Box::pin(self.on_stage(floor, &mut progress, &stop));
        tokio::select! {
            ended = &mut running => return ended,
            () = asked => stop.cancel(),
        }
        running.await
    }

    /// Whether everything that it was told can be used, before anything is started.
    async fn check(&self) -> anyhow::Result<()> {
        let mut wrong = Vec::new();
        let mut note = |checked: Result<(), ConfigError>| {
            if let Err(ConfigError(sentences)) = checked {
                wrong.extend(sentences);
            }
        };
        let temporary = std::env::temp_dir();
        if !temporary.is_dir() {
            let what = format!(
                "TMPDIR is {}, which is not a folder; name one for temporary files",
                temporary.display()
            );
            note(Err(ConfigError(vec![what])));
        }
        if let Some(file) = &self.svg {
            note(can_be_drawn(file));
        }
        if !self.dev {
            let database = self.database_url.as_ref().ok_or_else(no_database)?;
            note(process::check_postgres_url("DATABASE_URL", database));
            if let Some(tools) = &self.tool_database_url {
                note(process::check_postgres_url(
                    "WORKER_TOOL_DATABASE_URL",
                    tools,
                ));
            }
        }
        if !wrong.is_empty() {
            return Err(ConfigError(wrong).into());
        }
        let prefix = self.bus.prefix.as_str();
        // As its workers are told, whatever the environment says.
        children::check_worker(&[
            "--queues",
            tools::QUEUE,
            "--name",
            "bench",
            "--prefix",
            prefix,
        ])?;
        if self.dev {
            children::check_dispatcher()?;
            let ground = Ground::of_this_process();
            find::nats_server(&ground).await?;
            find::postgres_bin(&ground).await?;
        } else {
            process::check_bus_url(&self.bus)?;
        }
        Ok(())
    }

    /// Sets the stage, measures, and clears it whatever came of that.
    async fn on_stage(
        &self,
        floor: Option<PathBuf>,
        progress: &mut Progress,
        stop: &CancellationToken,
    ) -> anyhow::Result<ExitCode> {
        progress.step("starting");
        let (mut stage, mut ledger) = if self.dev {
            let Some(stage) = Stage::of_its_own(self.dispatchers, stop).await? else {
                return Ok(ExitCode::from(FAILED));
            };
            match Ledger::open(&stage.place.database_url).await {
                Ok(ledger) => (stage, ledger),
                Err(problem) => {
                    stage.stop().await;
                    return Err(problem);
                }
            }
        } else {
            let place = Place {
                database_url: self.database_url.clone().ok_or_else(no_database)?,
                tool_database_url: self.tool_database_url.clone(),
                bus: self.bus.clone(),
            };
            let mut ledger = Ledger::open(&place.database_url).await?;
            (Stage::that_runs(place, &mut ledger).await?, ledger)
        };
        let measuring = Box::pin(self.measure(&mut stage, &mut ledger, floor, progress));
        let measured = stop.run_until_cancelled(measuring).await;
        progress.end();
        let cleared = ledger.clear_table().await;
        stage.stop().await;
        let Some(report) = measured else {
            bail!("it was stopped before the end");
        };
        let report = report?;
        if let Err(problem) = cleared {
            output::warn(&format!("the table of effects is not emptied: {problem:#}"));
        }
        if let Some(file) = &self.svg {
            let drawn = std::fs::write(file, picture::svg(&report.workloads));
            drawn.with_context(|| format!("write {}", file.display()))?;
        }
        if self.json {
            output::print_json(&report)?;
        } else {
            output::print(&report.text())?;
        }
        let exit = if report.is_good() { OK } else { FAILED };
        Ok(ExitCode::from(exit))
    }

    async fn measure(
        &self,
        stage: &mut Stage,
        ledger: &mut Ledger,
        floor: Option<PathBuf>,
        progress: &mut Progress,
    ) -> anyhow::Result<Report> {
        let bus = stage.bus().await?;
        let effects = self.effects(stage)?;
        if let Some(tools) = &stage.place.tool_database_url {
            ledger.make_table(tools).await?;
        }
        self.apply(stage, &bus).await?;
        stage.start_workers(self.workers).await?;
        let mut servers = self.servers(stage, ledger).await?;
        if self.history > 0 {
            let what = format!("{} calls of history", self.history);
            progress.step(&what);
            ledger.make_history(self.history, |_calls| {}).await?;
        }
        let run = uuid::Uuid::new_v4().as_fields().0;
        let floor = floor.map(|program| self.floor_of(stage, program));
        let mut bench = Bench {
            stage: &*stage,
            bus: &bus,
            ledger,
            progress,
            warm_up: Duration::from_secs(self.warm_up),
            seconds: Duration::from_secs(self.seconds),
            backlog: self.backlog,
        };
        if self.held > 0 {
            let any = self.workload(run, 0, Effect::Read);
            bench
                .park(&any.beside(measure::BESIDE, self.held, true))
                .await?;
        }
        let (mut workloads, mut floors) = (Vec::new(), Vec::<FloorRun>::new());
        for (number, effect) in (1..).zip(effects) {
            if let (Some(floor), true) = (&floor, floors.is_empty()) {
                bench.progress.step("floor");
                floors.push(floor.run().await?);
            }
            let workload = self.workload(run, number, effect);
            let mut measured = Box::pin(bench.measure(&workload)).await?;
            if let Some(floor) = &floor {
                bench.progress.step("floor");
                floors.push(floor.run().await?);
                let neighbours = floors.iter().rev().take(2);
                let neighbours: Vec<f64> = neighbours.map(|one| one.calls_per_s).collect();
                if let Some((mean, ratio)) = figures::ratio(measured.calls_per_s, &neighbours) {
                    measured.floor_calls_per_s = Some((mean * 10.0).round() / 10.0);
                    measured.ratio = Some((ratio * 1000.0).round() / 1000.0);
                }
            }
            workloads.push(measured);
        }
        // Only now there is a stream for sure.
        servers.nats = nats::settings(&bus, stage.is_its_own()).await;
        Ok(Report {
            servers,
            workloads,
            floors,
        })
    }

    /// What can be measured here.
    fn effects(&self, stage: &Stage) -> anyhow::Result<Vec<Effect>> {
        let mut effects = self.effect.clone();
        if stage.place.tool_database_url.is_none() {
            effects.retain(|effect| *effect != Effect::Transaction);
            if effects.is_empty() {
                let what = "transactions need --tool-database-url".to_owned();
                return Err(UsageError(what).into());
            }
            if effects.len() < self.effect.len() {
                output::warn("without --tool-database-url no transactions are measured");
            }
        }
        Ok(effects)
    }

    async fn apply(&self, stage: &Stage, bus: &fleet::bus::connect::Bus) -> anyhow::Result<()> {
        let faulty = self.failures > 0;
        let called = |name: &str| {
            let mut effects = self.effect.iter();
            effects.any(|effect| tools::name(*effect, 0, faulty) == name)
        };
        let manifests = tools::manifests(self.tools, called)?;
        let mut connection = super::connect::writer(&stage.place.database_url).await?;
        tools::apply_all(&mut connection, bus, &manifests)
            .await
            .context("apply the tools of the bench")
    }

    async fn servers(&self, stage: &Stage, ledger: &mut Ledger) -> anyhow::Result<Servers> {
        let dispatchers = stage.watched.iter();
        let dispatchers = dispatchers
            .filter(|one| one.name.starts_with("dispatcher"))
            .count();
        Ok(Servers {
            postgres: ledger.settings().await?,
            nats: Default::default(),
            dispatchers: Some(dispatchers).filter(|seen| *seen > 0),
            workers: self.workers,
            cpus: thread::available_parallelism().map_or(0, usize::from),
            dev: stage.is_its_own(),
            optimised: !cfg!(debug_assertions),
        })
    }

    fn floor_of(&self, stage: &Stage, program: PathBuf) -> Floor {
        Floor {
            program,
            nats_url: stage.place.bus.nats_url.clone(),
            database_url: stage.place.database_url.clone(),
            in_flight: self.in_flight,
            bytes: self.bytes as usize,
            seconds: self.floor_seconds.unwrap_or(self.seconds.min(5)),
            warm_up: self.warm_up.min(1),
        }
    }

    fn workload(&self, run: u32, number: u32, effect: Effect) -> Workload {
        Workload {
            effect,
            mode: self.mode,
            run,
            number,
            in_flight: self.in_flight,
            rate: self.rate,
            batch: self.batch as usize,
            bytes: self.bytes as usize,
            result_bytes: self.result_bytes,
            failures: self.failures,
            tenants: self.tenants,
            copies: self.tools,
            priority: self.priority,
            tenant: "bench",
            parked: false,
            limit: None,
        }
    }
}

//! The worker: runs the calls of its queues and records what came of them.
//!
//! # Tools of one's own
//!
//! Implement [`Tool`] and give it to [`Worker::builder`]: the result is a program that is otherwise what `toolfleet worker` is.
//! It takes the same flags, applies its tools when it starts, and drains on SIGTERM.
//!
//! ```no_run
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//! use worker::{Effect, Tool, ToolContext, ToolError, Worker};
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Transfer {
//!     /// The account to take from, such as DE-001.
//!     from: String,
//!     /// How much, in cents.
//!     cents: u64,
//! }
//!
//! #[derive(Serialize, JsonSchema)]
//! struct Receipt {
//!     number: String,
//! }
//!
//! struct Bank;
//!
//! impl Tool for Bank {
//!     type Args = Transfer;
//!     type Output = Receipt;
//!     const NAME: &'static str = "transfer";
//!     const VERSION: i32 = 1;
//!     const EFFECT: Effect = Effect::Once;
//!     const DESCRIPTION: &'static str = "Transfers money out of an account.";
//!
//!     async fn call(&self, transfer: Transfer, context: ToolContext) -> Result<Receipt, ToolError> {
//!         if transfer.cents == 0 {
//!             return Err(ToolError::business("there is nothing to transfer"));
//!         }
//!         // Whatever goes wrong from here on leaves the effect unknown: `?` says so.
//!         let number = send(&transfer.from, transfer.cents, context.idempotency_key()).await?;
//!         Ok(Receipt { number })
//!     }
//! }
//! # async fn send(_: &str, _: u64, key: &str) -> std::io::Result<String> { Ok(key.to_owned()) }
//!
//! fn main() -> std::process::ExitCode {
//!     Worker::builder().tool(Bank).run()
//! }
//! ```
//!
//! [`tool`] says what each result means, `docs/executors/native.md` what becomes of it in the fleet.
//!
//! # Inside
//!
//! Deliver, gate, claim, ack, execute, complete, reply: `attempt` is the whole of it; read that first. `stage` has what goes
//! from step to step; `gate`, `intercept`, `executors`, `conclude` and `dispose` are its parts, `heartbeat` keeps the lease, `leave` gives it back, `neighbours` fences those of this
//! machine that are gone; `cancel` hears that a call is to stop, `progress` tells how far one is, `late` records what came too
//! late to decide; `programs` has the slots of process tools, `inability` tells which tools could not run here; `guard` is the small process that runs between the worker and a process tool; `builder` and `apply` are for
//! tools of one's own.

mod answer;
mod apply;
mod appointments;
mod attempt;
mod builder;
mod cancel;
mod claim;
mod complete;
mod conclude;
mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
mod dispose;
mod execute;
pub mod executors;
mod gate;
pub mod guard;
mod heartbeat;
mod inability;
mod intake;
mod intercept;
mod late;
mod leave;
mod neighbours;
mod programs;
mod progress;
mod put_back;
mod redact;
mod reply;
mod running;
mod stage;
pub mod tool;
mod waiting;
mod worker;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

pub use builder::{Builder, Worker};
pub use config::Config;
pub use fleet::call::Effect;
use fleet::{
    bus::{BusError, connect::Bus, events::Events, prefix::PrefixClaim},
    config::ConfigError,
    explain::{Destination, Located},
    fencing::FencingError,
    http::{self, HttpState, Readiness},
    ids::WorkerId,
    lease::Lease,
    obstacle::{Lack, Obstacle},
    registry::Registry,
    said,
    secrets::Secrets,
    store::{
        StoreError,
        ledger::{Claiming, Completing},
        migrate,
        session::Postgres,
        sweep, tool_role,
        workers::{self, WorkerRow},
    },
    telemetry::report,
};
use secrecy::SecretString;
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

pub use crate::tool::{Tool, ToolContext, ToolError};
use crate::{
    executors::{
        Executors, LINGER_MAX, http::HttpExecutor, nats::NatsExecutor, process::ProcessExecutor,
        sql::SqlExecutor,
    },
    programs::Programs,
    put_back::PuttingBack,
    reply::Replies,
    running::Attempts,
};

/// Why a worker cannot start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The settings do not fit together.
    #[error("bad configuration")]
    Config(#[from] ConfigError),
    /// Postgres.
    #[error("ledger")]
    Store(#[from] StoreError),
    /// Postgres, as sql tools reach it.
    #[error("the database of sql tools")]
    Tools(#[source] Located),
    /// NATS.
    #[error("bus")]
    Bus(#[from] BusError),
    /// A part of the process ended by itself, most likely by a panic: going on without it would be limping.
    #[error("a part of the process ended by itself")]
    PartEnded,
    /// Its lock cannot be made.
    #[error("lock")]
    Lock(#[from] FencingError),
    /// The address for probes, or the machine's name.
    #[error("system")]
    System(#[from] std::io::Error),
    /// HTTP tools cannot be run here.
    #[error("http tools")]
    Http(#[from] executors::http::HttpExecutorError),
}

/// Runs a worker until `shutdown` is done and what it runs has ended.
///
/// Order of the start: server and schema, NATS, ground, prefix, tools, lock, registration, heartbeat, intake. Order of the stop, in two
/// speeds: first `intake` (nothing new is pulled, what was not claimed goes back), then, when the drain timeout is over,
/// `work` (running attempts are told to end); then everything is written, and the row says what it leaves behind.
///
/// # Errors
///
/// It cannot start, or its prefix turns out to be another ledger's; otherwise it waits for whatever is missing once it runs.
pub async fn run(
    config: Config,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    config.check()?;
    run_with(config, Builder::default(), listener, shutdown).await
}

async fn run_with(
    config: Config,
    built: Builder,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let state_dir = config.state_dir()?;
    let readiness = Readiness::new(["postgres", "nats", "lease"]);
    let (intake, stop) = (CancellationToken::new(), CancellationToken::new());
    let (mut tasks, mut lanes) = (JoinSet::new(), JoinSet::new());

    let postgres = Postgres::new(
        &config.store.database_url,
        &format!("toolfleet {}", config.name),
    )?;
    postgres.check_server().await?;
    migrate::check_schema(&postgres).await?;
    if let Some(url) = &config.tool_database_url {
        check_tools(&postgres, url).await?;
    }
    let bus = Bus::connect(
        &config.bus.nats_url,
        &config.name,
        config.bus.prefix.clone(),
    )
    .await?;
    // What a tool's service sends can break a connection: the fleet's own must not break with it.
    let tools_bus = Bus::connect(
        &config.bus.nats_url,
        &format!("{} tools", config.name),
        config.bus.prefix.clone(),
    )
    .await?;
    let prefix = PrefixClaim::new(bus.clone(), postgres.name().await?);
    postgres.recalled(prefix.recall().await?);
    // The first connection that may deal with lost writes, before anything is read or written.
    let mut connection = postgres.connect().await?;
    let mark = postgres.mark();
    prefix
        .hold(&mark.expect("a process that has connected knows a mark"))
        .await?;
    apply::apply(&mut connection, &bus, &built.manifests, &config.name).await?;
    let pool = postgres.pool(4);
    let registry = Registry::default();
    registry.refresh(&pool).await?;

    let id = WorkerId::generate();
    // Before anybody can know of it: a worker in the ledger without a lock could never be proven gone.
    let lock = Arc::new(state_dir.hold(id)?);
    let row = WorkerRow {
        worker_id: id,
        name: config.name.clone(),
        host: host_name()?,
        pid: i32::try_from(std::process::id()).unwrap_or(i32::MAX),
        queues: config.queues.clone(),
        concurrency: i32::try_from(config.concurrency).unwrap_or(i32::MAX),
    };
    let registered_at = Instant::now();
    workers::register(&mut connection, &row).await?;
    let process = match &config.guard_program {
        Some(guard) => ProcessExecutor::new(guard.clone(), vec!["guard".into()], Arc::clone(&lock)),
        None => ProcessExecutor::without_guard(),
    };
    let worker = Arc::new(worker::Worker {
        id,
        name: config.name.clone(),
        bus: bus.clone(),
        events: Events::start(&bus, &mut lanes),
        replies: Replies::start(&bus, &mut lanes),
        pool: pool.clone(),
        registry: registry.clone(),
        claiming: Claiming::start(id, &postgres, &mut lanes),
        completing: Completing::start(&postgres, &mut lanes),
        executors: Executors {
            http: HttpExecutor::new()?,
            process,
            nats: NatsExecutor::new(tools_bus.clone()).holding(Arc::clone(&lock)),
            sql: SqlExecutor::new(config.tool_database_url.clone()),
            native: built.native.holding(Arc::clone(&lock)),
        },
        secrets: Secrets::new(config.secrets.clone()),
        work: CancellationToken::new(),
        lease: Mutex::new(Some((
            Lease::renewed(registered_at),
            postgres.quarantines(),
        ))),
        postgres: postgres.clone(),
        endings: Semaphore::new(config.concurrency),
        programs: Programs::new(config.programs(), config.concurrency),
        putting_back: PuttingBack::start(pool.clone(), no_program_slot(&config), &mut lanes),
        attempts: Attempts::default(),
        given_up: Mutex::new(HashMap::new()),
    });
    tasks.spawn(cancel::listen(Arc::clone(&worker), stop.clone()).await?);
    tasks.spawn(registry.keep_fresh(pool, bus.clone(), stop.clone()));
    tasks.spawn(heartbeat::run(
        Arc::clone(&worker),
        postgres.clone(),
        intake.clone(),
        stop.clone(),
    ));
    tasks.spawn(inability::run(
        Arc::clone(&worker),
        config.queues.clone(),
        stop.clone(),
    ));
    tasks.spawn(neighbours::run(
        Arc::clone(&worker),
        state_dir.clone(),
        stop.clone(),
    ));
    let state = HttpState::new(readiness.clone()).instance(config.http.instance);
    tasks.spawn(serve_probes(listener, state, stop.clone()));
    tasks.spawn(watch(Arc::clone(&worker), readiness, stop.clone()));

    tracing::info!(worker = %id, name = config.name, "worker is ready");
    let (mut ended, mut held) = (true, Ok(()));
    // A task: on a runtime of several threads, whoever is polled by the one that waits for the end is woken by a system call each time.
    let mut task = JoinSet::new();
    task.spawn({
        let (worker, config, intake) = (Arc::clone(&worker), config.clone(), intake.clone());
        async move { intake::run(worker, &config, intake).await }
    });
    // Whether it ended in order. After a panic what it ran may go on, and nothing may be said of it.
    let mut working = Box::pin(async move { matches!(task.join_next().await, Some(Ok(()))) });
    tokio::select! {
        // In order: declared gone, it has stopped by itself, and what it ran is over.
        in_order = &mut working => if !in_order {
            return Err(leave::in_disorder(lock));
        },
        Some(_ended) = lanes.join_next() => return Err(leave::in_disorder(lock)),
        Some(_ended) = tasks.join_next() => return Err(leave::in_disorder(lock)),
        until = prefix.held_until(shutdown) => {
            held = until;
            tracing::info!("worker takes nothing new and finishes what it runs");
            leave::announce(&postgres, id).await;
            intake.cancel();
            worker.programs.close();
            let in_time = timeout(config.drain_timeout, &mut working).await;
            if in_time == Ok(false) {
                return Err(leave::in_disorder(lock));
            }
            if in_time.is_err() {
                tracing::warn!("the drain timeout is over; what still runs is told to end");
                worker.work.cancel();
                // What does not end by then is left to the sweep: this process is about to be gone.
                let lingering = timeout(LINGER_MAX + Duration::from_secs(10), &mut working);
                ended = lingering.await == Ok(true);
                if !ended {
                    tracing::error!("attempts are left behind; the sweep decides about them");
                }
            }
        }
    }
    drop(working);
    leave::give_back(&worker, &postgres).await;
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    drop(worker);
    // Every sender is gone now, so the lanes end when they have written what they hold.
    while lanes.join_next().await.is_some() {}
    let own = if ended {
        Arc::into_inner(lock)
    } else {
        leave::hold_to_the_end(lock);
        None
    };
    leave::leave(&postgres, id, own, &state_dir).await;
    tokio::join!(bus.flush(), tools_bus.flush());
    Ok(held?)
}

/// What a call is told that finds no slot for its program.
fn no_program_slot(config: &Config) -> Obstacle {
    let all = config.programs();
    let what = said!(
        "all of its {all} slots for programs are taken",
        "它的 {all} 个程序槽位都被占用"
    );
    Obstacle::new(Lack::ProgramSlot, &what, &config.name)
}

/// Refuses to run sql tools on a connection from which they could reach the ledger.
async fn check_tools(ledger: &Postgres, url: &SecretString) -> Result<(), RunError> {
    let setting = "WORKER_TOOL_DATABASE_URL";
    let found = match (
        tool_role::unfit(ledger, url).await,
        Destination::of_postgres(setting, url),
    ) {
        (Ok(found), _) => found,
        (Err(source), Some(place)) => return Err(RunError::Tools(Located { place, source })),
        (Err(source), None) => return Err(source.into()),
    };
    if found.is_empty() {
        return Ok(());
    }
    let found = found.iter();
    let sentences = found.map(|finding| format!("{setting}: {finding}"));
    Err(ConfigError(sentences.collect()).into())
}

async fn serve_probes(listener: TcpListener, state: HttpState, stop: CancellationToken) {
    if let Err(error) = http::serve(listener, state, stop.cancelled_owned()).await {
        tracing::error!(error = report(&error), "probes are not answered any more");
    }
}

/// Says in `/readyz` whether both servers answer, Postgres on ground that is safe, and the lease is fresh.
async fn watch(worker: Arc<worker::Worker>, readiness: Readiness, stop: CancellationToken) {
    while !stop.is_cancelled() {
        readiness.set("lease", worker.may_start());
        let asked = timeout(Duration::from_secs(2), sweep::answers(&worker.pool));
        let (nats, answered) = tokio::join!(worker.bus.answers(), asked);
        readiness.set("nats", nats);
        readiness.set(
            "postgres",
            answered.unwrap_or(false) && !worker.postgres.refuses(),
        );
        stop.run_until_cancelled(tokio::time::sleep(Duration::from_secs(1)))
            .await;
    }
}

fn host_name() -> Result<String, std::io::Error> {
    let name = nix::unistd::gethostname().map_err(std::io::Error::from)?;
    Ok(name.to_string_lossy().into_owned())
}

//! The worker: deliver, gate, claim, ack, execute, complete, reply.
//!
//! `attempt` is the whole of it; read that first. `gate`, `executors`, `conclude` and `dispose` are its parts,
//! `heartbeat` keeps the lease, `leave` gives it back, `neighbours` fences those of this machine that are gone; `cancel` hears
//! that a call is to stop, `late` keeps what came too late to decide; `guard` is the small process that runs between the
//! worker and a process tool.

mod answer;
mod attempt;
mod cancel;
mod claim;
mod complete;
mod conclude;
mod config;
#[cfg(feature = "conformance")]
pub mod conformance;
mod discreet;
mod dispose;
mod execute;
pub mod executors;
mod gate;
pub mod guard;
mod heartbeat;
mod late;
mod leave;
mod neighbours;
mod running;
mod worker;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

pub use config::Config;
use fleet::{
    bus::{
        BusError,
        connect::Bus,
        mark,
        pull::{Delivered, Puller},
    },
    config::ConfigError,
    fencing::FencingError,
    http::{self, HttpState, Readiness},
    ids::WorkerId,
    lease::Lease,
    registry::Registry,
    secrets::Secrets,
    store::{
        StoreError,
        ledger::{Claiming, Completing},
        migrate,
        session::Postgres,
        sweep,
        workers::{self, WorkerRow},
    },
    telemetry::report,
};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    executors::{
        Executors, LINGER_MAX, http::HttpExecutor, native::NativeExecutor, nats::NatsExecutor,
        process::ProcessExecutor, sql::SqlExecutor,
    },
    running::Attempts,
    worker::Worker,
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
/// Order of the start: server and schema, NATS, ground, tools, lock, registration, heartbeat, intake. Order of the stop, in two
/// speeds: first `intake` (nothing new is pulled, what was not claimed goes back), then, when the drain timeout is over,
/// `work` (running attempts are told to end); then everything is written, and the row says what it leaves behind.
///
/// # Errors
///
/// It cannot start; once it runs it waits for whatever is missing.
pub async fn run(
    config: Config,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    config.check()?;
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
    let bus = Bus::connect(
        &config.bus.nats_url,
        &config.name,
        config.bus.prefix.clone(),
    )
    .await?;
    postgres.recalled(mark::recall(&bus).await?);
    // The first connection that may deal with lost writes, before anything is read or written.
    let mut connection = postgres.connect().await?;
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
    let guard = config
        .guard_program
        .clone()
        .unwrap_or_else(|| "/proc/self/exe".into());
    let worker = Arc::new(Worker {
        id,
        bus: bus.clone(),
        pool: pool.clone(),
        registry: registry.clone(),
        claiming: Claiming::start(id, &postgres, &mut lanes),
        completing: Completing::start(&postgres, &mut lanes),
        executors: Executors {
            http: HttpExecutor::new()?,
            process: ProcessExecutor::new(guard, vec!["guard".into()], Arc::clone(&lock)),
            nats: NatsExecutor::default(),
            sql: SqlExecutor::default(),
            native: NativeExecutor::default(),
        },
        secrets: Secrets::new(config.secrets.clone()),
        work: CancellationToken::new(),
        lease: Mutex::new(Some((
            Lease::renewed(registered_at),
            postgres.quarantines(),
        ))),
        postgres: postgres.clone(),
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
    tasks.spawn(neighbours::run(
        Arc::clone(&worker),
        state_dir.clone(),
        stop.clone(),
    ));
    tasks.spawn(serve_probes(listener, readiness.clone(), stop.clone()));
    tasks.spawn(watch(Arc::clone(&worker), readiness, stop.clone()));

    tracing::info!(worker = %id, name = config.name, "worker is ready");
    let mut ended = true;
    let mut working = Box::pin(deliver(Arc::clone(&worker), &config, intake.clone()));
    tokio::select! {
        // Declared gone: it has stopped by itself, and what it ran is over.
        () = &mut working => {}
        Some(_ended) = lanes.join_next() => return Err(leave::in_disorder(lock)),
        Some(_ended) = tasks.join_next() => return Err(leave::in_disorder(lock)),
        () = shutdown => {
            tracing::info!("worker takes nothing new and finishes what it runs");
            leave::announce(&postgres, id).await;
            intake.cancel();
            if timeout(config.drain_timeout, &mut working).await.is_err() {
                tracing::warn!("the drain timeout is over; what still runs is told to end");
                worker.work.cancel();
                // What does not end by then is left to the sweep: this process is about to be gone.
                ended = timeout(LINGER_MAX + Duration::from_secs(10), &mut working).await.is_ok();
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
    bus.flush().await;
    Ok(())
}

/// Pulls messages and runs an attempt for each until `intake` is cancelled and all of them have ended.
async fn deliver(worker: Arc<Worker>, config: &Config, intake: CancellationToken) {
    let slots = Arc::new(Semaphore::new(config.concurrency));
    let share = config.concurrency.div_ceil(config.queues.len());
    let (sender, mut delivered) = mpsc::channel::<Delivered>(config.concurrency);
    let mut pullers = JoinSet::new();
    for queue in &config.queues {
        let puller = Puller::new(&worker.bus, queue, Arc::clone(&slots), share);
        let (bus, sender, intake) = (worker.bus.clone(), sender.clone(), intake.clone());
        pullers.spawn(async move {
            if let Err(error) = puller.run(&bus, sender, intake).await {
                tracing::error!(
                    error = report(&error),
                    "a queue is not pulled from any more"
                );
            }
        });
    }
    drop(sender);
    let mut attempts = JoinSet::new();
    loop {
        tokio::select! {
            message = delivered.recv() => match message {
                Some(message) if intake.is_cancelled() => message.acker.again_after(Duration::ZERO).await,
                Some(message) => drop(attempts.spawn(attempt::run(Arc::clone(&worker), message))),
                None => break,
            },
            Some(ended) = attempts.join_next(), if !attempts.is_empty() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "an attempt's task ended abnormally; the sweep decides about its call");
                }
            }
        }
    }
    while pullers.join_next().await.is_some() {}
    while attempts.join_next().await.is_some() {}
}

async fn serve_probes(listener: TcpListener, readiness: Readiness, stop: CancellationToken) {
    if let Err(error) =
        http::serve(listener, HttpState::new(readiness), stop.cancelled_owned()).await
    {
        tracing::error!(error = report(&error), "probes are not answered any more");
    }
}

/// Says in `/readyz` whether both servers answer, Postgres on ground that is safe, and the lease is fresh.
async fn watch(worker: Arc<Worker>, readiness: Readiness, stop: CancellationToken) {
    while !stop.is_cancelled() {
        readiness.set("nats", worker.bus.is_connected());
        readiness.set("lease", worker.may_start());
        let answered = timeout(Duration::from_secs(2), sweep::answers(&worker.pool)).await;
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

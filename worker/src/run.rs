//! A worker from its start to its end: the order in which its parts start and stop.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use fleet::{
    bus::{connect::Bus, events::Events, excess, prefix::PrefixClaim, rights::NatsRole},
    config::ConfigError,
    explain::{Destination, Located},
    fencing::WorkerLock,
    http::{self, HttpState, Readiness},
    ids::WorkerId,
    lease::Lease,
    manifest::Manifest,
    obstacle::{Lack, Obstacle},
    registry::Registry,
    said,
    secrets::Secrets,
    store::{
        ledger::{Claiming, Completing},
        migrate,
        rights::{self, Duty},
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

use crate::{
    apply, cancel,
    config::Config,
    error::RunError,
    executors::{
        LINGER_MAX, StartContext,
        http::{HttpExecutor, HttpExecutorError},
        native::NativeExecutor,
        nats::NatsExecutor,
        process::{ProcessExecutor, Sandboxes},
        registry::Executors,
        sql::SqlExecutor,
    },
    heartbeat, inability, intake, leave, neighbours,
    programs::Programs,
    put_back::PuttingBack,
    reply::Replies,
    running::Attempts,
    worker::WorkerProcess,
};

/// What a program adds to its worker.
#[derive(Debug, Default)]
pub(crate) struct Additions {
    /// Its handlers.
    pub(crate) native: NativeExecutor,
    /// Their manifests, which are applied at the start.
    pub(crate) manifests: Vec<Manifest>,
    /// Executors of its own kinds.
    pub(crate) executors: Executors,
}

/// Runs a worker until `shutdown` resolves and its attempts have ended.
///
/// Order of the start: server and schema, NATS, lost writes, prefix, tools, lock, executors, registration, heartbeat, intake.
/// Order of the stop, in two speeds: first `intake` (nothing new is pulled, unclaimed calls go back), then, when the drain
/// timeout is over, `work` (running attempts are told to end); then the executors stop, everything is written, and the row says
/// what the worker leaves behind.
///
/// # Errors
///
/// It cannot start, or its prefix turns out to be another ledger's. Once it runs, it waits for a server that is missing.
pub async fn run(
    config: Config,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    config.check()?;
    run_with(config, Additions::default(), listener, shutdown).await
}

pub(crate) async fn run_with(
    config: Config,
    additions: Additions,
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
    rights::tell_beyond(&postgres, &config.store.database_url, Duty::Worker).await;
    if let Some(url) = &config.tool_database_url {
        check_tools(&postgres, url).await?;
    }
    let bus = Bus::connect(&config.bus, &config.name).await?;
    let role = NatsRole::Worker {
        queues: &config.queues,
        services: &[],
    };
    excess::tell(&bus, &config.bus, role).await;
    // What services answer, however much it is, and the fleet's own messages do not wait for each other.
    let tools_bus = Bus::connect(&config.bus, &format!("{} tools", config.name)).await?;
    let prefix = PrefixClaim::new(bus.clone(), postgres.name().await?);
    postgres.recalled(prefix.recall().await?);
    // The first connection that may act on lost writes, before anything is read or written.
    let mut connection = postgres.connect().await?;
    let watermark = postgres.watermark();
    prefix
        .hold(&watermark.expect("a process that has connected knows a watermark"))
        .await?;
    apply::apply(&mut connection, &bus, &additions.manifests, &config.name).await?;
    let pool = postgres.pool(4);
    let registry = Registry::default();
    registry.refresh(&pool).await?;

    let id = WorkerId::generate();
    // Before the worker is registered: a registered worker without a lock could never be proven gone.
    let lock = Arc::new(state_dir.hold(id)?);
    let executors = executors(&config, &tools_bus, additions, &lock)?;
    let start = StartContext {
        worker: config.name.clone(),
        lock: Arc::clone(&lock),
    };
    executors.start(&start).await?;
    drop(start);
    let row = WorkerRow {
        worker_id: id,
        name: config.name.clone(),
        host: host_name()?,
        pid: i32::try_from(std::process::id()).unwrap_or(i32::MAX),
        queues: config.queues.clone(),
        concurrency: i32::try_from(config.concurrency).unwrap_or(i32::MAX),
        sandbox: serde_json::json!(Sandboxes::find(config.sandbox)),
    };
    let registered_at = Instant::now();
    workers::register(&mut connection, &row).await?;
    let worker = Arc::new(WorkerProcess {
        id,
        name: config.name.clone(),
        bus: bus.clone(),
        events: Events::start(&bus, &mut lanes),
        replies: Replies::start(&bus, &mut lanes),
        pool: pool.clone(),
        registry: registry.clone(),
        claiming: Claiming::start(id, &postgres, &mut lanes),
        completing: Completing::start(&postgres, &mut lanes),
        executors,
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
    // Spawned: polled from the `select!` below it would cost a futex wake per event.
    let mut task = JoinSet::new();
    task.spawn({
        let (worker, config, intake) = (Arc::clone(&worker), config.clone(), intake.clone());
        async move { intake::run(worker, &config, intake).await }
    });
    // Whether it ended in order. After a panic its attempts may go on, and the row may say nothing about them.
    let mut working = Box::pin(async move { matches!(task.join_next().await, Some(Ok(()))) });
    tokio::select! {
        // It ended in order: declared gone, it has stopped by itself, and its attempts are over.
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
                // Attempts that do not end by then are left to the sweep: this process is about to end.
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
    worker.executors.stop().await;
    drop(worker);
    // Every sender is dropped now, so the lanes end when they have written what they hold.
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

/// Every executor of this worker: the built-in kinds, and those of the worker's own program.
fn executors(
    config: &Config,
    tools_bus: &Bus,
    additions: Additions,
    lock: &Arc<WorkerLock>,
) -> Result<Executors, HttpExecutorError> {
    let process = match &config.guard_program {
        Some(guard) => ProcessExecutor::new(guard.clone(), vec!["guard".into()], Arc::clone(lock)),
        None => ProcessExecutor::without_guard(),
    };
    let process = process.demanding(config.sandbox);
    Ok(additions
        .executors
        .with("http", HttpExecutor::new(config.egress.egress())?)
        .with("process", process)
        .with(
            "nats",
            NatsExecutor::new(tools_bus.clone()).holding(Arc::clone(lock)),
        )
        .with("sql", SqlExecutor::new(config.tool_database_url.clone()))
        .with("native", additions.native.holding(Arc::clone(lock))))
}

/// Why a call without a program slot waits.
fn no_program_slot(config: &Config) -> Obstacle {
    let all = config.programs();
    let what = said!(
        "all of its {all} slots for programs are taken",
        "它的 {all} 个程序槽位都被占用"
    );
    Obstacle::new(Lack::ProgramSlot, &what, &config.name)
}

/// Refuses to run sql tools with a role that could reach the ledger.
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

/// Says in `/readyz` whether both servers answer, Postgres is safe to write to, and the lease is fresh.
async fn watch(worker: Arc<WorkerProcess>, readiness: Readiness, stop: CancellationToken) {
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

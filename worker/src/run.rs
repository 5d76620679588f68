//! A worker from its start to its end: the order in which its parts start and stop.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};

use fleet::{
    bus::{connect::Bus, events::Events, prefix::PrefixClaim, rights::NatsRole},
    config::ConfigError,
    explain::{Destination, Located},
    fencing::{StateDir, WorkerLock},
    http::{HttpState, Readiness},
    ids::WorkerId,
    lease::Lease,
    manifest::Manifest,
    obstacle::{Lack, Obstacle},
    process::{
        join::{Joined, join, ledger},
        probes,
    },
    registry::Registry,
    said,
    secrets::Secrets,
    store::{
        answers::Looking,
        file_keys::KnownFileKeys,
        ledger::{Claiming, Completing},
        rights::Duty,
        session::Postgres,
        token_secrets, tool_role,
        workers::{self, WorkerRow},
    },
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
    apply,
    brake_counts::{FallbackCounts, LargeResultCounts},
    breaker::{desk::BreakerDesk, reporter},
    cancel,
    config::Config,
    error::RunError,
    executors::{
        LINGER_MAX, StartContext,
        chat::{ChatExecutor, ModelEdits},
        http::{HttpExecutor, HttpExecutorError},
        mcp::McpExecutor,
        native::NativeExecutor,
        nats::NatsExecutor,
        process::{ProcessExecutor, Sandboxes},
        registry::Executors,
        sql::SqlExecutor,
    },
    handover::{Handover, folder::FileFolders, urls::FileUrls},
    heartbeat, inability, intake,
    lacks::SaidLacks,
    leave,
    mcp_discover::McpDiscover,
    neighbours,
    onion::{self, Chain, Hearing, Link},
    programs::Programs,
    put_back::PuttingBack,
    reply::Replies,
    retry_budgets::RetryBudgets,
    run_times::RunTimeCounts,
    running::Attempts,
    timeouts,
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
    /// Its interceptors.
    pub(crate) interceptors: Chain,
}

/// How long attempts that were told to end may take beyond what an executor lets its tool linger.
const LEFT_BEHIND_AFTER: Duration = Duration::from_secs(10);

/// Runs a worker until `shutdown` resolves and its attempts have ended.
///
/// Order of the start: server and schema, the role of sql tools, NATS, lost writes, prefix, tools, lock, executors, registration,
/// heartbeat, intake. Order of the stop, in two speeds: first `intake` (nothing new is pulled, unclaimed calls go back), then, when
/// the drain timeout is over, `work` (running attempts are told to end); then the executors stop, everything is written, and the
/// row says what the worker leaves behind.
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
    let postgres = ledger(&config.store, &config.name, Duty::Worker).await?;
    if let Some(url) = &config.tool_database_url {
        check_tools(&postgres, url).await?;
    }
    let role = NatsRole::Worker {
        queues: &config.queues,
        services: &[],
    };
    let joined = join::<RunError>(postgres, &config.bus, &config.name, role).await?;
    let started = Started::start(config, additions, joined, state_dir, listener).await?;
    started.until(shutdown).await
}

/// A worker that takes calls.
struct Started {
    config: Config,
    worker: Arc<WorkerProcess>,
    lock: Arc<WorkerLock>,
    state_dir: StateDir,
    prefix: PrefixClaim,
    /// What services answer, however much it is, and the fleet's own messages do not wait for each other.
    tools_bus: Bus,
    /// Cancelled when nothing new is taken.
    intake: CancellationToken,
    /// Cancelled when everything beside the attempts ends.
    stop: CancellationToken,
    tasks: JoinSet<()>,
    lanes: JoinSet<()>,
}

impl Started {
    async fn start(
        config: Config,
        mut additions: Additions,
        joined: Joined,
        state_dir: StateDir,
        listener: TcpListener,
    ) -> Result<Self, RunError> {
        let Joined {
            postgres,
            mut connection,
            bus,
            prefix,
        } = joined;
        let tools_bus = Bus::connect(&config.bus, &format!("{} tools", config.name)).await?;
        apply::apply(&mut connection, &bus, &additions.manifests, &config.name).await?;
        let pool = postgres.pool(4);
        let registry = Registry::default();
        registry.refresh(&pool).await?;
        let completion_tokens = token_secrets::completion_secret(&mut connection).await?;

        let id = WorkerId::generate();
        // Before the worker is registered: a registered worker without a lock could never be proven gone.
        let lock = Arc::new(state_dir.hold(id)?);
        let interceptors = mem::take(&mut additions.interceptors).in_order();
        additions.native.add_built_in(&pool, &registry);
        let programs = Programs::new(config.programs(), config.concurrency);
        let breaker_desk = BreakerDesk {
            registry: registry.clone(),
            pool: pool.clone(),
            bus: bus.clone(),
            counts: Arc::default(),
        };
        let model_edits: Arc<ModelEdits> = Arc::default();
        let built_in = BuiltIn {
            breakers: &breaker_desk,
            tools_bus: &tools_bus,
            lock: &lock,
            programs: &programs,
            model_edits: &model_edits,
        };
        let executors = executors(&config, additions, built_in)?;
        let start = StartContext {
            worker: config.name.clone(),
            lock: Arc::clone(&lock),
        };
        executors.start(&start).await?;
        drop(start);
        let registered_at = Instant::now();
        workers::register(&mut connection, &row(&config, id, &interceptors)?).await?;
        let mut lanes = JoinSet::new();
        let worker = Arc::new(WorkerProcess {
            id,
            name: config.name.clone(),
            events: Events::start(&bus, &registry, &mut lanes),
            replies: Replies::start(&bus, &mut lanes),
            looking: Looking::start(format!("worker {id}"), &postgres, &mut lanes),
            cache: Arc::default(),
            fallbacks: FallbackCounts::default(),
            large_results: LargeResultCounts::default(),
            model_edits,
            claiming: Claiming::start(id, &postgres, &mut lanes),
            completing: Completing::start(&postgres, &mut lanes),
            executors,
            secrets: Secrets::new(config.secrets.clone()),
            handover: Handover::new(
                FileFolders::new(),
                FileUrls::new(config.gateway_url.clone(), KnownFileKeys::new(pool.clone())),
            ),
            file_quota: config.file_quota(),
            completion_tokens,
            interceptors,
            // As many as there may be attempts, and as many again.
            hearing: Hearing::new(2 * config.concurrency.max(64)),
            work: CancellationToken::new(),
            lease: Mutex::new(Some((
                Lease::renewed(registered_at),
                postgres.quarantines(),
            ))),
            endings: Semaphore::new(config.concurrency),
            programs,
            putting_back: PuttingBack::start(pool.clone(), no_program_slot(&config), &mut lanes),
            lacks: SaidLacks::default(),
            breakers: Arc::clone(&breaker_desk.counts),
            breaker_desk,
            retry_budgets: RetryBudgets::new(),
            run_times: RunTimeCounts::default(),
            attempts: Attempts::default(),
            given_up: Mutex::new(HashMap::new()),
            bus,
            pool,
            registry,
            postgres,
        });
        let mut started = Self {
            config,
            worker,
            lock,
            state_dir,
            prefix,
            tools_bus,
            intake: CancellationToken::new(),
            stop: CancellationToken::new(),
            tasks: JoinSet::new(),
            lanes,
        };
        started.keep().await?;
        started.probe(listener);
        tracing::info!(worker = %id, name = started.config.name, "worker is ready");
        Ok(started)
    }

    /// Starts what goes on beside the attempts.
    async fn keep(&mut self) -> Result<(), RunError> {
        let (worker, stop, tasks) = (&self.worker, &self.stop, &mut self.tasks);
        tasks.spawn(cancel::listen(Arc::clone(worker), stop.clone()).await?);
        let registry = worker.registry.clone();
        tasks.spawn(registry.keep_fresh(worker.pool.clone(), worker.bus.clone(), stop.clone()));
        tasks.spawn(heartbeat::run(
            Arc::clone(worker),
            worker.postgres.clone(),
            self.intake.clone(),
            stop.clone(),
        ));
        tasks.spawn(reporter::run(Arc::clone(worker), stop.clone()));
        tasks.spawn(timeouts::run(Arc::clone(worker), stop.clone()));
        let queues = self.config.queues.clone();
        tasks.spawn(inability::run(Arc::clone(worker), queues, stop.clone()));
        tasks.spawn(onion::report::run(Arc::clone(worker), stop.clone()));
        let state_dir = self.state_dir.clone();
        tasks.spawn(neighbours::run(Arc::clone(worker), state_dir, stop.clone()));
        Ok(())
    }

    fn probe(&mut self, listener: TcpListener) {
        let readiness = Readiness::new(["postgres", "nats", "lease"]);
        let state = HttpState::new(readiness.clone()).instance(self.config.http.instance);
        let (worker, stop, tasks) = (&self.worker, &self.stop, &mut self.tasks);
        tasks.spawn(probes::serve(listener, state, stop.clone()));
        tasks.spawn(probes::watch_servers(
            worker.bus.clone(),
            worker.postgres.clone(),
            worker.pool.clone(),
            readiness.clone(),
            stop.clone(),
        ));
        tasks.spawn(watch_lease(Arc::clone(worker), readiness, stop.clone()));
    }

    async fn until(mut self, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        // Spawned: polled from the `select!` below it would cost a futex wake per event.
        let mut task = JoinSet::new();
        task.spawn({
            let (worker, config) = (Arc::clone(&self.worker), self.config.clone());
            let intake = self.intake.clone();
            async move { intake::run(worker, &config, intake).await }
        });
        // Whether it ended in order. After a panic its attempts may go on, and the row may say nothing about them.
        let mut working = Box::pin(async move { matches!(task.join_next().await, Some(Ok(()))) });
        let (mut ended, mut held) = (true, Ok(()));
        tokio::select! {
            // It ended in order: declared gone, it has stopped by itself, and its attempts are over.
            in_order = &mut working => if !in_order {
                return Err(leave::in_disorder(self.lock));
            },
            Some(_ended) = self.lanes.join_next() => return Err(leave::in_disorder(self.lock)),
            Some(_ended) = self.tasks.join_next() => return Err(leave::in_disorder(self.lock)),
            until = self.prefix.held_until(shutdown) => {
                held = until;
                match self.drain(&mut working).await {
                    Some(in_time) => ended = in_time,
                    None => return Err(leave::in_disorder(self.lock)),
                }
            }
        }
        drop(working);
        self.stop(ended).await;
        Ok(held?)
    }

    /// Takes nothing new and waits for `working`, the intake with its attempts. Whether the attempts ended in time; `None` after
    /// a panic.
    async fn drain(&mut self, mut working: impl Future<Output = bool> + Unpin) -> Option<bool> {
        tracing::info!("worker takes nothing new and finishes what it runs");
        leave::announce(&self.worker.postgres, self.worker.id).await;
        self.intake.cancel();
        self.worker.programs.close();
        if let Ok(in_order) = timeout(self.config.drain_timeout, &mut working).await {
            return in_order.then_some(true);
        }
        tracing::warn!("the drain timeout is over; what still runs is told to end");
        self.worker.work.cancel();
        // Attempts that do not end by then are left to the sweep: this process is about to end.
        let lingering = timeout(LINGER_MAX + LEFT_BEHIND_AFTER, working).await;
        let ended = lingering == Ok(true);
        if !ended {
            tracing::error!("attempts are left behind; the sweep decides about them");
        }
        Some(ended)
    }

    /// Stops what is beside the attempts, and says in the worker's row what it leaves behind.
    async fn stop(mut self, ended: bool) {
        let (id, bus) = (self.worker.id, self.worker.bus.clone());
        let postgres = self.worker.postgres.clone();
        self.worker.hearing.finish().await;
        leave::give_back(&self.worker, &postgres).await;
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        self.worker.executors.stop().await;
        drop(self.worker);
        // Every sender is dropped now, so the lanes end when they have written what they hold.
        while self.lanes.join_next().await.is_some() {}
        let own = if ended {
            Arc::into_inner(self.lock)
        } else {
            leave::hold_to_the_end(self.lock);
            None
        };
        leave::leave(&postgres, id, own, &self.state_dir).await;
        tokio::join!(bus.flush(), self.tools_bus.flush());
    }
}

/// What the table of workers says of this one.
fn row(config: &Config, id: WorkerId, interceptors: &[Link]) -> Result<WorkerRow, std::io::Error> {
    let host = nix::unistd::gethostname()?;
    Ok(WorkerRow {
        worker_id: id,
        name: config.name.clone(),
        host: host.to_string_lossy().into_owned(),
        pid: i32::try_from(std::process::id()).unwrap_or(i32::MAX),
        queues: config.queues.clone(),
        concurrency: i32::try_from(config.concurrency).unwrap_or(i32::MAX),
        sandbox: serde_json::json!(Sandboxes::find(config.sandbox)),
        interceptors: interceptors
            .iter()
            .map(|own| own.active.about.row())
            .collect(),
    })
}

/// What the built-in executors use of their worker.
#[derive(Clone, Copy)]
struct BuiltIn<'a> {
    breakers: &'a BreakerDesk,
    tools_bus: &'a Bus,
    lock: &'a Arc<WorkerLock>,
    programs: &'a Programs,
    model_edits: &'a Arc<ModelEdits>,
}

/// Every executor of this worker: the built-in kinds, and those of the worker's own program.
fn executors(
    config: &Config,
    mut additions: Additions,
    built_in: BuiltIn<'_>,
) -> Result<Executors, HttpExecutorError> {
    let BuiltIn {
        breakers,
        tools_bus,
        lock,
        programs,
        model_edits,
    } = built_in;
    let BreakerDesk { registry, pool, .. } = breakers;
    let process = match &config.guard_program {
        Some(guard) => ProcessExecutor::new(guard.clone(), vec!["guard".into()], Arc::clone(lock)),
        None => ProcessExecutor::without_guard(),
    };
    let process = process.demanding(config.sandbox);
    let mcp = McpExecutor::new(breakers.registry.clone(), config.egress.egress(), &process)?
        .taking_slots_of((*programs).clone());
    let secrets = Secrets::new(config.secrets.clone());
    additions
        .native
        .add_discoverer(McpDiscover::over(mcp.clone(), secrets));
    Ok(additions
        .executors
        .with("http", HttpExecutor::new(config.egress.egress())?)
        .with(
            "chat",
            ChatExecutor::new(config.egress.egress(), pool.clone(), registry.clone())?
                .asking(breakers.clone())
                .counting(Arc::clone(model_edits)),
        )
        .with("process", process)
        .with("mcp", mcp)
        .with(
            "nats",
            NatsExecutor::new((*tools_bus).clone()).holding(Arc::clone(lock)),
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

/// Says in `/readyz` whether the lease is fresh.
async fn watch_lease(worker: Arc<WorkerProcess>, readiness: Readiness, stop: CancellationToken) {
    while !stop.is_cancelled() {
        readiness.set("lease", worker.may_start());
        stop.run_until_cancelled(tokio::time::sleep(Duration::from_secs(1)))
            .await;
    }
}

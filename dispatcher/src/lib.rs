//! The dispatcher: accept, validate, commit, publish, answer; and the sweep.
//!
//! The modules stand in the order in which a call meets them:
//!
//! - `service` hears NATS and makes a `request` of each message that may be answered where it asks for it (`replies`); `rates`
//!   bound what a tenant sends, `slots` the requests in hand, and share them among tenants; `endpoints` is the table of verbs, `door` the data that all of them work on;
//! - `accept` is the verb `call`: `check` checks the arguments, `admission` decides whether the call comes in and whether it
//!   waits (by `quota`, `running` and `meter`), `commit` writes its row (`key` hashes its key, `pending` reads the ledger's reply),
//!   `publish` rings the bell, `replay` answers for calls that exist already;
//! - `waiters` are the callers that wait, `expiry` knows which calls expire soon, `answer` and `refusal` are what callers get,
//!   `respond` sends it;
//! - the other verbs: `batch` brings many calls to the same door, `get`, `listing`, `cancel` and `settle` read a short `form`;
//!   `news` publishes what they decide;
//! - `sweep` runs beside all of this and finds what was lost.

mod config;

// A request comes in.
mod service;

mod rates;
mod replies;
mod request;
mod slots;

mod endpoints;

mod door;

// `call`.
mod accept;
mod check;

mod admission;
mod meter;
mod quota;
mod running;

mod commit;
mod key;
mod pending;
mod publish;
mod replay;

// Callers that wait, and what they get.
mod waiters;

mod expiry;

mod answer;
mod refusal;
mod respond;

// The other verbs.
mod batch;

mod form;
mod get;
mod listing;

mod cancel;
mod settle;

mod news;

// Lost calls are found.
mod sweep;

use std::{sync::Arc, time::Duration};

pub use config::Config;
use fleet::{
    bus::{
        BusError, connect::Bus, events::Events, excess, prefix::PrefixClaim, publish::Publisher,
        rights::NatsRole, topology,
    },
    config::ConfigError,
    http::{self, HttpState, Readiness},
    ids::DispatcherId,
    registry::Registry,
    store::{
        PgPool, StoreError,
        ledger::{Accepting, Completing},
        migrate, release,
        rights::{self, Duty},
        session::Postgres,
        snapshot::{self, SnapshotWatch},
        sweep as swept,
    },
    telemetry::{LedgerFigures, metrics, report},
};
use futures_util::FutureExt;
pub use quota::{BadQuotas, TenantQuotas};
pub use replies::{BadReplies, Replies};
use tokio::{
    net::TcpListener,
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    door::Door, expiry::Expiry, meter::Meter, quota::Quota, rates::Rates, running::Running,
    service::Endpoints, slots::Slots, sweep::Sweep, waiters::Waiters,
};

/// Why a dispatcher cannot start, or had to stop.
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
    /// A part of the process ended by itself, most likely by a panic. The process does not go on without it.
    #[error("a part of the process ended by itself")]
    PartEnded,
    /// The address for probes.
    #[error("http")]
    Http(#[from] std::io::Error),
}

/// How long requests in hand may take after `shutdown`. A caller that still waits then asks again with its key.
const GRACE: Duration = Duration::from_secs(5);

/// Runs a dispatcher until `shutdown` resolves.
///
/// Order of the start: server and schema, NATS, lost writes, prefix, tools, stream, waiters, service, sweep. Order of the stop:
/// intake, the requests in hand, the sweep, the ledger's lanes.
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
    let readiness = Readiness::new(["postgres", "nats", "service"]);
    let (intake, work, stop) = (
        CancellationToken::new(),
        CancellationToken::new(),
        CancellationToken::new(),
    );
    let mut tasks = JoinSet::new();

    let postgres = Postgres::new(
        &config.store.database_url,
        &format!("toolfleet {}", config.name),
    )?;
    postgres.check_server().await?;
    migrate::check_schema(&postgres).await?;
    rights::tell_beyond(&postgres, &config.store.database_url, Duty::Dispatcher).await;
    let bus = Bus::connect(&config.bus, &config.name).await?;
    excess::tell(&bus, &config.bus, NatsRole::Dispatcher { tenants: None }).await;
    readiness.set("nats", true);
    let prefix = PrefixClaim::new(bus.clone(), postgres.name().await?);
    postgres.recalled(prefix.recall().await?);
    // The first connection that may act on lost writes, before anything is read or written.
    drop(postgres.connect().await?);
    let watermark = postgres.watermark();
    prefix
        .hold(&watermark.expect("a process that has connected knows a watermark"))
        .await?;
    let pool = postgres.pool(config.read_connections);
    readiness.set("postgres", true);

    let registry = Registry::default();
    registry.refresh(&pool).await?;
    tasks.spawn(
        registry
            .clone()
            .keep_fresh(pool.clone(), bus.clone(), stop.clone()),
    );
    let default_queue = "default"
        .parse()
        .expect("the default queue has a valid name");
    topology::ensure(&bus, &[default_queue]).await?;

    let dispatcher = DispatcherId::generate();
    let (publisher, count_answers) = Publisher::new(&bus).await?;
    tasks.spawn(
        stop.clone()
            .run_until_cancelled_owned(count_answers)
            .map(drop),
    );
    let meter = Meter::default();
    let running = Running::new(config.tenant_running, meter.clone());
    if running.most().is_some() {
        // Before the first request: a tenant's share of the slots depends on it.
        meter.slots_are(release::slots(&pool).await?);
    }
    let (expiry, asked) = Expiry::new();
    let waiters = Waiters::new(expiry.clone());
    tasks.spawn(
        waiters
            .clone()
            .listen(bus.clone(), dispatcher, running.clone(), stop.clone())
            .await?,
    );
    tasks.spawn(waiters.clone().poll(pool.clone(), stop.clone()));
    let mut lanes = JoinSet::new();
    let accepting = Accepting::start(&postgres, &mut lanes);
    let completing = Completing::start(&postgres, &mut lanes);
    let events = Events::start(&bus, &mut lanes);
    let sweep = Sweep {
        running: running.clone(),
        meter: meter.clone(),
        expiry: expiry.clone(),
        waiters: waiters.clone(),
        bus: bus.clone(),
        postgres: postgres.clone(),
        pool: pool.clone(),
        publisher: publisher.clone(),
        events: events.clone(),
        completing,
        registry: registry.clone(),
        prefix: prefix.clone(),
        dispatcher,
        history_days: (config.history_days > 0).then_some(config.history_days),
    };
    sweep.start(&mut tasks, &stop, asked);
    let quota = Quota::new(config.limits(), pool.clone());
    tasks.spawn(
        stop.clone()
            .run_until_cancelled_owned(quota.clone().keep())
            .map(drop),
    );
    let scrape = gauges(pool.clone());
    let state = HttpState::new(readiness.clone())
        .instance(config.http.instance)
        .before_scrape(scrape);
    let (http_stop, watched) = (stop.clone(), bus.clone());
    tasks.spawn(async move {
        if let Err(error) = http::serve(listener, state, http_stop.cancelled_owned()).await {
            tracing::error!(error = report(&error), "probes are not answered any more");
        }
    });
    tasks.spawn(watch_connections(
        watched,
        postgres.clone(),
        pool.clone(),
        readiness.clone(),
        stop.clone(),
    ));

    let slots = Slots::new(config.requests_max, config.bytes_max);
    let door = Arc::new(Door {
        rates: Rates::new(
            config.tenant_calls_per_second,
            config.tenant_bytes_per_second,
        ),
        bus: bus.clone(),
        replies: config.replies,
        pool,
        registry,
        accepting,
        quota,
        publisher,
        events,
        waiters,
        meter,
        running,
        expiry,
        dispatcher,
    });
    let endpoints = Endpoints::start(&bus).await?;
    // Ready means that callers are heard, so NATS must know the endpoints by now.
    bus.round_trip().await?;
    readiness.set("service", true);
    tracing::info!(%dispatcher, name = config.name, "dispatcher is ready");
    // Spawned: polled from the main `select!` it would cost a futex wake per event.
    let mut serving = JoinSet::new();
    serving.spawn(endpoints.serve(door, slots, intake.clone(), work.clone()));
    let held = tokio::select! {
        Some(_ended) = serving.join_next() => return Err(RunError::PartEnded),
        Some(_ended) = lanes.join_next() => return Err(RunError::PartEnded),
        Some(_ended) = tasks.join_next() => return Err(RunError::PartEnded),
        held = prefix.held_until(shutdown) => {
            tracing::info!("dispatcher takes no new requests");
            readiness.set("service", false);
            intake.cancel();
            if held.is_err() {
                // The prefix is another ledger's now: nothing is published or purged any more.
                stop.cancel();
            }
            if timeout(GRACE, serving.join_next()).await.is_err() {
                work.cancel();
                // Without NATS the endpoints never hear that they have ended.
                if timeout(Duration::from_secs(1), serving.join_next()).await.is_err() {
                    tracing::debug!("the NATS service was left as it was");
                }
            }
            held
        }
    };
    drop(serving);
    stop.cancel();
    while tasks.join_next().await.is_some() {}
    // Every sender is dropped now, so the lanes end when they have written what they hold.
    while lanes.join_next().await.is_some() {}
    bus.flush().await;
    tracing::info!(%dispatcher, "dispatcher has stopped");
    Ok(held?)
}

/// Says in `/readyz` whether both servers answer, and whether Postgres is safe to write to.
async fn watch_connections(
    bus: Bus,
    postgres: Postgres,
    pool: PgPool,
    readiness: Readiness,
    stop: CancellationToken,
) {
    loop {
        let asked = timeout(Duration::from_secs(2), swept::answers(&pool));
        let (nats, answered) = tokio::join!(bus.answers(), asked);
        readiness.set("nats", nats);
        readiness.set("postgres", answered.unwrap_or(false) && !postgres.refuses());
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// Fills the gauges that need the ledger, at a scrape only. They read every open call. Where that takes long, the figures are
/// kept for a while, so that reading them takes at most a twentieth of the time.
fn gauges(pool: PgPool) -> http::BeforeScrape {
    let state = Arc::new(tokio::sync::Mutex::new((
        Instant::now(),
        SnapshotWatch::default(),
    )));
    Arc::new(move || {
        let (pool, state) = (pool.clone(), Arc::clone(&state));
        Box::pin(async move {
            let (rests_until, watch) = &mut *state.lock().await;
            let began = Instant::now();
            if began < *rests_until {
                return;
            }
            match figures(&pool, watch).await {
                Ok(figures) => metrics().counted(figures),
                Err(error) => tracing::debug!(error = report(&error), "figures were not read"),
            }
            let took = began.elapsed();
            if took > FIGURES_AT_ONCE {
                *rests_until = Instant::now() + took * FIGURES_REST;
            }
        })
    })
}

async fn figures(pool: &PgPool, watch: &mut SnapshotWatch) -> Result<LedgerFigures, StoreError> {
    let holder = snapshot::oldest(pool).await?;
    Ok(LedgerFigures {
        oldest_snapshot: watch.age(holder.as_ref(), Instant::now()),
        ..swept::figures(pool).await?
    })
}

/// Figures that take no longer than this are read at every scrape.
const FIGURES_AT_ONCE: Duration = Duration::from_millis(50);
/// Other figures are kept for this many times as long as they took.
const FIGURES_REST: u32 = 20;

//! A dispatcher from its start to its end: the order in which its parts start and stop.

use std::{sync::Arc, time::Duration};

use fleet::{
    bus::{
        connect::Bus, events::Events, prefix::PrefixClaim, publish::Publisher, rights::NatsRole,
        topology,
    },
    http::{HttpState, Readiness},
    ids::DispatcherId,
    process::{
        join::{Joined, join, ledger},
        probes,
    },
    registry::Registry,
    store::{
        ledger::{Accepting, Completing},
        release,
        rights::Duty,
        session::Postgres,
        token_secrets,
    },
};
use futures_util::FutureExt;
use tokio::{net::TcpListener, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config, door::Door, error::RunError, expiry::Expiry, files::room::FileRoom,
    gauges::gauges, meter::Meter, quota::Quota, rates::Rates, repeats::Repeats, running::Running,
    service::Endpoints, slots::Slots, sweep::Sweep, waiters::Waiters,
};

/// How long requests in hand may take after `shutdown`. A caller that still waits then asks again with its key.
const GRACE: Duration = Duration::from_secs(5);

/// How long NATS may take to forget the endpoints.
const FORGET_MAX: Duration = Duration::from_secs(1);

/// Runs a dispatcher until `shutdown` resolves.
///
/// Order of the start: server and schema, NATS, lost writes, prefix, tools, stream, waiters, sweep, service. Order of the stop:
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
    let postgres = ledger(&config.store, &config.name, Duty::Dispatcher).await?;
    let role = NatsRole::Dispatcher { tenants: None };
    let joined = join::<RunError>(postgres, &config.bus, &config.name, role).await?;
    let name = config.name.clone();
    let started = Started::start(config, joined, listener).await?;
    tracing::info!(dispatcher = %started.dispatcher, name, "dispatcher is ready");
    started.until(shutdown).await
}

/// A dispatcher that serves.
struct Started {
    bus: Bus,
    prefix: PrefixClaim,
    dispatcher: DispatcherId,
    readiness: Readiness,
    /// Cancelled when no further request is taken.
    intake: CancellationToken,
    /// Cancelled when the requests in hand have had their time.
    work: CancellationToken,
    /// Cancelled when everything beside the requests ends.
    stop: CancellationToken,
    serving: JoinSet<()>,
    tasks: JoinSet<()>,
    lanes: JoinSet<()>,
}

impl Started {
    async fn start(
        config: Config,
        joined: Joined,
        listener: TcpListener,
    ) -> Result<Self, RunError> {
        let Joined {
            postgres,
            mut connection,
            bus,
            prefix,
        } = joined;
        let tokens = token_secrets::secrets(&mut connection).await?;
        drop(connection);
        let mut started = Self {
            bus: bus.clone(),
            prefix: prefix.clone(),
            dispatcher: DispatcherId::generate(),
            readiness: Readiness::new(["postgres", "nats", "service"]),
            intake: CancellationToken::new(),
            work: CancellationToken::new(),
            stop: CancellationToken::new(),
            serving: JoinSet::new(),
            tasks: JoinSet::new(),
            lanes: JoinSet::new(),
        };
        let pool = postgres.pool(config.read_connections);
        let registry = Registry::default();
        registry.refresh(&pool).await?;
        let default_queue = "default"
            .parse()
            .expect("the default queue has a valid name");
        topology::ensure(&bus, &[default_queue]).await?;

        let (publisher, count_answers) = Publisher::new(&bus).await?;
        started.spawn_until_stop(count_answers);
        let meter = Meter::default();
        let running = Running::new(config.tenant_running, meter.clone());
        if running.most().is_some() {
            // Before the first request: a tenant's share of the slots depends on it.
            meter.slots_are(release::slots(&pool).await?);
        }
        let (expiry, asked) = Expiry::new();
        let door = Door {
            rates: Rates::new(
                config.tenant_calls_per_second,
                config.tenant_bytes_per_second,
            ),
            replies: config.replies.clone(),
            accepting: Accepting::start(&postgres, &mut started.lanes),
            completing: Completing::start(&postgres, &mut started.lanes),
            tokens,
            quota: Quota::new(config.limits(), pool.clone()),
            file_quota: config.file_quota(),
            file_room: FileRoom::default(),
            events: Events::start(&bus, &registry, &mut started.lanes),
            waiters: Waiters::new(expiry.clone()),
            meter,
            running,
            repeats: Repeats::default(),
            dispatcher: started.dispatcher,
            bus,
            pool,
            registry,
            publisher,
            expiry,
        };
        let sweep = Sweep {
            running: door.running.clone(),
            meter: door.meter.clone(),
            expiry: door.expiry.clone(),
            waiters: door.waiters.clone(),
            bus: door.bus.clone(),
            pool: door.pool.clone(),
            publisher: door.publisher.clone(),
            events: door.events.clone(),
            registry: door.registry.clone(),
            dispatcher: door.dispatcher,
            completing: door.completing.clone(),
            postgres: postgres.clone(),
            prefix,
            history_days: (config.history_days > 0).then_some(config.history_days),
        };
        started.keep(&door).await?;
        sweep.start(&mut started.tasks, &started.stop, asked);
        started.probe(&config, &door, postgres, listener);
        let slots = Slots::new(config.requests_max, config.bytes_max);
        started.serve(Arc::new(door), slots).await?;
        Ok(started)
    }

    fn spawn_until_stop(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks
            .spawn(self.stop.clone().run_until_cancelled_owned(task).map(drop));
    }

    /// Keeps what the door knows true: the tools, the quotas, what becomes of awaited calls.
    async fn keep(&mut self, door: &Door) -> Result<(), RunError> {
        let stop = &self.stop;
        self.tasks.spawn(door.registry.clone().keep_fresh(
            door.pool.clone(),
            door.bus.clone(),
            stop.clone(),
        ));
        self.tasks.spawn(
            door.waiters
                .clone()
                .listen(
                    door.bus.clone(),
                    door.dispatcher,
                    door.running.clone(),
                    stop.clone(),
                )
                .await?,
        );
        self.tasks
            .spawn(door.waiters.clone().poll(door.pool.clone(), stop.clone()));
        let repeats = door.repeats.clone();
        let hearing = repeats.listen(&door.bus, door.dispatcher, stop.clone());
        self.tasks.spawn(hearing.await?);
        self.spawn_until_stop(door.quota.clone().keep());
        Ok(())
    }

    fn probe(&mut self, config: &Config, door: &Door, postgres: Postgres, listener: TcpListener) {
        let state = HttpState::new(self.readiness.clone())
            .instance(config.http.instance)
            .before_scrape(gauges(door.pool.clone(), door.registry.clone()));
        let stop = &self.stop;
        self.tasks
            .spawn(probes::serve(listener, state, stop.clone()));
        self.tasks.spawn(probes::watch_servers(
            door.bus.clone(),
            postgres,
            door.pool.clone(),
            self.readiness.clone(),
            stop.clone(),
        ));
    }

    async fn serve(&mut self, door: Arc<Door>, slots: Slots) -> Result<(), RunError> {
        let endpoints = Endpoints::start(&self.bus).await?;
        // Ready means that callers are heard, so NATS must know the endpoints by now.
        self.bus.round_trip().await?;
        self.readiness.set("service", true);
        // Spawned: polled from the main `select!` it would cost a futex wake per event.
        let (intake, work) = (self.intake.clone(), self.work.clone());
        self.serving
            .spawn(endpoints.serve(door, slots, intake, work));
        Ok(())
    }

    async fn until(mut self, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        let dispatcher = self.dispatcher;
        let held = tokio::select! {
            Some(_ended) = self.serving.join_next() => return Err(RunError::PartEnded),
            Some(_ended) = self.lanes.join_next() => return Err(RunError::PartEnded),
            Some(_ended) = self.tasks.join_next() => return Err(RunError::PartEnded),
            held = self.prefix.held_until(shutdown) => held,
        };
        tracing::info!("dispatcher takes no new requests");
        self.readiness.set("service", false);
        self.intake.cancel();
        if held.is_err() {
            // The prefix is another ledger's now: nothing is published or purged any more.
            self.stop.cancel();
        }
        if timeout(GRACE, self.serving.join_next()).await.is_err() {
            self.work.cancel();
            // Without NATS the endpoints never hear that they have ended.
            if timeout(FORGET_MAX, self.serving.join_next()).await.is_err() {
                tracing::debug!("the NATS service was left as it was");
            }
        }
        drop(self.serving);
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        // Every sender is dropped now, so the lanes end when they have written what they hold.
        while self.lanes.join_next().await.is_some() {}
        self.bus.flush().await;
        tracing::info!(%dispatcher, "dispatcher has stopped");
        Ok(held?)
    }
}

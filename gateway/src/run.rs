//! A gateway from its start to its end: the order in which its parts start and stop.

use std::{sync::Arc, time::Duration};

use fleet::{
    bus::{connect::Bus, excess, rights::NatsRole},
    http::{HttpState, Readiness},
    process::probes,
    store::{
        file_keys::KnownFileKeys,
        migrate,
        rights::{self, Duty},
        session::Postgres,
    },
    telemetry::metrics,
    tokens::KnownTokens,
};
use tokio::{net::TcpListener, task::JoinSet, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    api::router,
    ask::Dispatchers,
    auth::Authority,
    body::BodyRoom,
    config::{Auth, Config},
    desk::CallDesk,
    edge::{
        hosts::Expected,
        listener::Serving,
        peers::{Peers, PeersMax},
        revoked::let_go_of_revoked,
        unread::UnreadAnswers,
    },
    error::RunError,
    events::{keeper::Keeper, once::Stories, places::StreamPlaces, sessions::Sessions},
    files::Files,
    looks::Looks,
    mcp::{McpContent, client_sessions::ClientSessions, tool_bell::ToolBell},
    models::smallest::WholeStreams,
    state::Gateway,
    turns::waited::AnswersWaited,
    views::STATEMENT_MAX,
};

/// Connections for statements about calls that are named by their ids.
const CALL_CONNECTIONS: u32 = 2;
/// How long requests in hand may take after `shutdown`.
const GRACE: Duration = Duration::from_secs(4);
/// How long what outlives requests may take after that.
const TASKS_MAX: Duration = Duration::from_millis(500);

/// Runs a gateway until `shutdown` resolves: callers are served on `callers`, or where the settings say, probes on `probes`.
///
/// Order of the start: Postgres, NATS, the inbox, the listener. Order of the stop, within five seconds: it is not ready, takes no
/// connection, answers requests that wait with where their calls stand, and ends streams. No call is cancelled by it.
///
/// # Errors
///
/// It cannot start. Once it runs, it waits for a server that is missing.
pub async fn run(
    config: Config,
    callers: Option<TcpListener>,
    probes: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), RunError> {
    config.check()?;
    let url = &config.store.database_url;
    let postgres = Postgres::new(url, &format!("toolfleet {}", config.name))?;
    migrate::check_schema(&postgres).await?;
    rights::tell_beyond(&postgres, url, Duty::Gateway).await;
    let bus = Bus::connect(&config.bus, &config.name).await?;
    excess::tell(&bus, &config.bus, NatsRole::Gateway).await;
    let callers = match callers {
        Some(callers) => callers,
        None => bind(&config).await?,
    };
    let started = Started::start(&config, &postgres, bus, callers, probes).await?;
    tracing::info!(name = config.name, "gateway is ready");
    started.until(shutdown).await
}

async fn bind(config: &Config) -> Result<TcpListener, RunError> {
    let address = config.listen;
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        tracing::info!(%address, "listening for callers");
        Ok(listener)
    };
    bound
        .await
        .map_err(|source| RunError::Bind { address, source })
}

/// A gateway that serves.
struct Started {
    bus: Bus,
    gateway: Arc<Gateway>,
    readiness: Readiness,
    /// Cancelled when everything beside the requests ends.
    stop: CancellationToken,
    serving: JoinSet<()>,
    tasks: JoinSet<()>,
}

impl Started {
    async fn start(
        config: &Config,
        postgres: &Postgres,
        bus: Bus,
        callers: TcpListener,
        probes: TcpListener,
    ) -> Result<Self, RunError> {
        let views = postgres.pool_for_looking(config.read_connections, STATEMENT_MAX);
        let views_of_calls = postgres.pool_for_calls(CALL_CONNECTIONS, STATEMENT_MAX);
        let tokens = KnownTokens::default();
        let authority = match config.auth {
            Auth::None => Authority::Nobody,
            Auth::Tokens => Authority::tokens(tokens.clone()),
        };
        let content = McpContent::of(config.mcp_content.as_deref())?;
        let dispatchers = Dispatchers::new(&bus).await?;
        let (stopping, tasks) = (CancellationToken::new(), TaskTracker::new());
        let keeper = Keeper::new(bus.clone(), dispatchers.client().clone(), tasks.clone());
        let file_keys = KnownFileKeys::new(views.clone());
        let desk = CallDesk::new(
            dispatchers.clone(),
            content,
            stopping.clone(),
            tasks.clone(),
        );
        let desk = desk.over_http(file_keys.clone());
        let tool_bell = ToolBell::new(bus.clone(), tasks.clone(), stopping.clone());
        let gateway = Arc::new(Gateway {
            dispatchers,
            sessions: Sessions::new(keeper, views.clone(), tasks.clone(), stopping.clone()),
            streams: StreamPlaces::new(config.streams_max, config.streams_each_max, |open| {
                metrics().streams(open);
            }),
            files: Files::new(config.files_bytes_max, file_keys),
            stories: Stories::default(),
            desk: Arc::new(desk),
            client_sessions: ClientSessions::default(),
            tool_bell: Arc::new(tool_bell),
            bodies: BodyRoom::new(config.bodies_max_mib),
            whole_streams: WholeStreams::default(),
            unread: UnreadAnswers::new(config.answers_max_mib),
            views,
            views_of_calls,
            looks: Looks::default(),
            trace_url: config.trace_url.clone(),
            expected: Expected::new(config.listen, &config.allowed_hosts, &config.cors_origins),
            authority,
            answers_waited: AnswersWaited::default(),
            stopping,
            tasks,
        });
        let mut started = Self {
            bus,
            gateway: Arc::clone(&gateway),
            readiness: Readiness::new(["postgres", "nats", "listener"]),
            stop: CancellationToken::new(),
            serving: JoinSet::new(),
            tasks: JoinSet::new(),
        };
        let peers = Peers::new(PeersMax {
            strangers: config.strangers_max,
            each: config.connections_each_max(),
        });
        if config.auth == Auth::Tokens {
            // Of its own: where all connections are taken, no token would be revoked in time.
            let pool = postgres.pool_for_reading(1);
            tokens.refresh(&pool).await?;
            let keeping = tokens.keep_fresh(pool, started.bus.clone(), started.stop.clone());
            started.tasks.spawn(keeping);
            let looking = let_go_of_revoked(peers.clone(), Arc::clone(&gateway));
            let stop = started.stop.clone();
            let looking = async move {
                stop.run_until_cancelled(looking).await;
            };
            started.tasks.spawn(looking);
        }
        started.probe(config, postgres.clone(), probes);
        let serving = Serving {
            router: router(Arc::clone(&gateway)),
            peers,
            connections_max: config.connections_max,
        };
        // Answers come only once the server knows the inbox.
        started.bus.round_trip().await?;
        let intake = gateway.stopping.clone();
        started.serving.spawn(serving.serve(callers, intake));
        started.readiness.set("listener", true);
        Ok(started)
    }

    fn probe(&mut self, config: &Config, postgres: Postgres, listener: TcpListener) {
        let state = HttpState::new(self.readiness.clone()).instance(config.http.instance);
        let stop = &self.stop;
        self.tasks
            .spawn(probes::serve(listener, state, stop.clone()));
        let views = self.gateway.views.clone();
        let watching = probes::watch_servers(
            self.bus.clone(),
            postgres,
            views,
            self.readiness.clone(),
            stop.clone(),
        );
        self.tasks.spawn(watching);
    }

    async fn until(mut self, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        tokio::select! {
            Some(_ended) = self.serving.join_next() => return Err(RunError::PartEnded),
            Some(_ended) = self.tasks.join_next() => return Err(RunError::PartEnded),
            () = shutdown => {}
        }
        tracing::info!("gateway takes no new requests");
        self.readiness.set("listener", false);
        self.gateway.stopping.cancel();
        let served = timeout(GRACE, self.serving.join_next());
        if served.await.is_err() {
            tracing::debug!("connections are closed whose requests are not answered");
            self.serving.shutdown().await;
        }
        self.gateway.tasks.close();
        let ended = timeout(TASKS_MAX, self.gateway.tasks.wait());
        if ended.await.is_err() {
            tracing::debug!("a call whose caller is gone is left as it is, and a stream is cut");
        }
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        self.bus.flush().await;
        tracing::info!("gateway has stopped");
        Ok(())
    }
}

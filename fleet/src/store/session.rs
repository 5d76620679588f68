//! A connection to Postgres: its settings, and the checks that it passes before anything is written on it.
//!
//! Every connection is checked before its first use: the settings of the server, the schema, and the watermark. The process that
//! finds lost writes deals with them right there. Only commands, which do not know what the fleet remembers, refuse.

use std::{
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use secrecy::{ExposeSecret, SecretString};
use sqlx::{
    ConnectOptions, Connection, Executor as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::{Instant, sleep, timeout};

pub use super::answer::within;
use super::{StoreError, quarantine, schema, server_check, watermark};
use crate::{
    lost_writes::{Comparison, Seen, Watermark, compare},
    owner::LedgerName,
    telemetry::metrics,
};

/// Where the ledger is, the name of this process there, and what it remembers of the ledger. Clones share the memory.
#[derive(Debug, Clone)]
pub struct Postgres {
    options: PgConnectOptions,
    memory: Arc<Mutex<Memory>>,
}

/// What a connection does when writes were lost.
#[derive(Debug, Clone, Copy)]
enum OnLoss {
    DealWithIt,
    Refuse,
}

/// What a process remembers.
#[derive(Debug, Default)]
struct Memory {
    /// The latest watermark that this process has seen.
    watermark: Option<Watermark>,
    /// Whether the watermark in NATS has been read: only then may this process act on lost writes.
    recalled: bool,
    /// Whether there was no connection since the process's last look. The look logs it once, if it finds the same.
    away: bool,
    /// When the refusal was last logged; `None` while the last check of the server found it safe.
    refused: Option<Instant>,
}

impl Postgres {
    /// How long a statement may run; it bounds the time of a batch too.
    pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
    /// How long an unused connection is taken for alive without a test.
    const BELIEVED: Duration = Duration::from_secs(1);
    /// How long the test of a connection may take.
    const PING_MAX: Duration = Duration::from_secs(1);
    /// How long a statement may wait for a lock.
    pub const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
    const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
    /// How often a process logs that it refuses the server.
    const REFUSED_AGAIN_AFTER: Duration = Duration::from_secs(60);
    /// How often the watermark is read again because another process has just changed it.
    const LOOKS_MAX: usize = 5;

    /// Reads a `postgres://` URL.
    ///
    /// # Errors
    ///
    /// It is not valid. The message does not contain the URL.
    pub fn new(url: &SecretString, application_name: &str) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(url.expose_secret())
            .map_err(|_has_the_url| StoreError::BadUrl)?
            .application_name(application_name)
            .options([
                (
                    "statement_timeout",
                    format!("{}ms", Self::STATEMENT_TIMEOUT.as_millis()),
                ),
                (
                    "lock_timeout",
                    format!("{}ms", Self::LOCK_TIMEOUT.as_millis()),
                ),
                ("idle_in_transaction_session_timeout", "5s".to_owned()),
                ("search_path", "toolfleet".to_owned()),
                ("timezone", "UTC".to_owned()),
                ("jit", "off".to_owned()),
                ("synchronous_commit", "on".to_owned()),
            ])
            .disable_statement_logging();
        Ok(Self {
            options,
            memory: Arc::default(),
        })
    }

    /// Whether the server keeps what it commits and takes writes. For the start, before the watermark in NATS is known; nothing
    /// is written.
    ///
    /// # Errors
    ///
    /// Postgres cannot be reached within five seconds, or its settings are unsafe.
    pub async fn check_server(&self) -> Result<(), StoreError> {
        let doing = "connect to Postgres";
        within(doing, Self::CONNECT_TIMEOUT, async {
            let mut connection = open(doing, &self.options).await?;
            self.noted(check_settings(&mut connection).await)
        })
        .await
    }

    /// Sets the watermark that NATS keeps. From now on a connection that finds lost writes acts on them.
    pub fn recalled(&self, watermark: Option<Watermark>) {
        if let Some(watermark) = watermark {
            self.remember(watermark);
        }
        self.memory().recalled = true;
    }

    /// Remembers a watermark of the ledger, unless a later one is remembered.
    pub fn remember(&self, watermark: Watermark) {
        let mut memory = self.memory();
        let tells_more = |known: &Watermark| {
            let names_it = known.ledger_id.is_none() && watermark.ledger_id.is_some();
            watermark.is_after(known) || names_it && !known.is_after(&watermark)
        };
        if memory.watermark.as_ref().is_none_or(tells_more) {
            memory.watermark = Some(watermark);
        }
    }

    /// Which ledger this is, and where. For the start, before the watermark in NATS is known; nothing is written.
    ///
    /// # Errors
    ///
    /// Postgres cannot be reached within five seconds, or has no ledger.
    pub async fn name(&self) -> Result<LedgerName, StoreError> {
        let doing = "ask which ledger this is";
        let mut connection = self.connect_to_look().await?;
        let asking = watermark::ledger_id(&mut connection);
        let id = within(doing, Self::CONNECT_TIMEOUT, asking).await?;
        let place = Some(self.place());
        Ok(LedgerName { id, place })
    }

    /// The host and the database, for people: `db.example:5432/toolfleet`.
    pub fn place(&self) -> String {
        let options = &self.options;
        let database = options.get_database().unwrap_or(options.get_username());
        match options.get_socket() {
            Some(socket) => format!("{}/{database}", socket.display()),
            None => format!("{}:{}/{database}", options.get_host(), options.get_port()),
        }
    }

    /// The latest watermark that this process has seen.
    pub fn watermark(&self) -> Option<Watermark> {
        self.memory().watermark.clone()
    }

    /// The number of quarantines in that watermark.
    pub fn quarantines(&self) -> i32 {
        self.memory()
            .watermark
            .as_ref()
            .map_or(0, |watermark| watermark.quarantines)
    }

    /// Whether the last check refused the server.
    pub fn refuses(&self) -> bool {
        self.memory().refused.is_some()
    }

    /// Whether Postgres is known not to answer: the process says so in its log, once.
    pub fn is_away(&self) -> bool {
        self.memory().away
    }

    /// Sets what the process's look found.
    pub fn set_away(&self, away: bool) {
        self.memory().away = away;
    }

    /// A connection for the ledger. It is checked; its plans do not trust the statistics of an empty table, and are made once
    /// and not for each length of an array.
    ///
    /// # Errors
    ///
    /// Postgres cannot be reached within five seconds, or is not safe to write to.
    pub async fn connect(&self) -> Result<PgConnection, StoreError> {
        self.connect_planning("enable_hashjoin").await
    }

    /// A connection for one statement over arrays: its lists are joined by hashes, which no statistics can make quadratic.
    ///
    /// # Errors
    ///
    /// As [`Self::connect`].
    pub(super) async fn connect_lane(&self) -> Result<PgConnection, StoreError> {
        self.connect_planning("enable_nestloop").await
    }

    async fn connect_planning(&self, without: &str) -> Result<PgConnection, StoreError> {
        let options = self.options.clone().options([
            ("enable_seqscan", "off"),
            ("enable_mergejoin", "off"),
            ("enable_bitmapscan", "off"),
            (without, "off"),
            ("plan_cache_mode", "force_generic_plan"),
        ]);
        self.step_on("connect to Postgres", &options).await
    }

    /// The connection, if the server still answers on it. One that was used a moment ago is not tested. `None`: it is broken,
    /// or silent for [`Self::PING_MAX`], and was dropped. A restarted server, `idle_session_timeout` and a firewall all break
    /// idle connections, and only their next use shows it.
    pub(super) async fn still_there(
        mut connection: PgConnection,
        unused: Duration,
    ) -> Option<PgConnection> {
        if unused < Self::BELIEVED {
            return Some(connection);
        }
        match timeout(Self::PING_MAX, connection.ping()).await {
            Ok(Ok(())) => Some(connection),
            Ok(Err(error)) => {
                tracing::debug!(%error, "an idle connection to Postgres was broken");
                None
            }
            Err(_elapsed) => {
                tracing::debug!("an idle connection to Postgres is silent");
                None
            }
        }
    }

    /// A pool for reads, and for writes that may simply be repeated. Never `begin` on it.
    ///
    /// Its connections are checked like all others, but do not act on lost writes, for a caller that waits for a connection may
    /// give up. An unsafe connection is not handed out: its callers wait, then time out.
    pub fn pool(&self, connections_max: u32) -> PgPool {
        let postgres = self.clone();
        // A plan is kept. One that was made while the table was empty would read all of it for each row once it is full.
        let options = self.options.clone().options([("enable_seqscan", "off")]);
        self.pool_options(connections_max)
            .after_connect(move |connection, _meta| {
                let postgres = postgres.clone();
                Box::pin(async move {
                    let checked = postgres.check_connection(connection, OnLoss::Refuse).await;
                    if let Err(StoreError::UnsafeServer(_)) = checked {
                        // The caller that waits for this connection gives up before: the pool would only try again at once.
                        sleep(Self::CONNECT_TIMEOUT).await;
                    }
                    checked.map_err(|error| sqlx::Error::Configuration(Box::new(error)))
                })
            })
            .connect_lazy_with(options)
    }

    /// A pool for reads from any server, safe to write to or not. Nothing is written on it.
    pub fn pool_for_reading(&self, connections_max: u32) -> PgPool {
        self.pool_options(connections_max)
            .connect_lazy_with(self.options.clone())
    }

    /// The same, with another bound for each statement, as Postgres writes it: `2s`.
    ///
    /// Lists are read from their newest end. Statistics that are a minute old know nothing of a tool that is new since, and all of the
    /// history would be read for its newest fifty calls.
    pub fn pool_for_looking(&self, connections_max: u32, statement_max: &str) -> PgPool {
        self.pool_planning("auto", connections_max, statement_max)
    }

    /// The same for statements about calls that are named by their ids: each connection plans such a statement once, which takes
    /// several times as long as to run it.
    pub fn pool_for_calls(&self, connections_max: u32, statement_max: &str) -> PgPool {
        self.pool_planning("force_generic_plan", connections_max, statement_max)
    }

    fn pool_planning(&self, plans: &str, connections_max: u32, statement_max: &str) -> PgPool {
        let options = [
            ("statement_timeout", statement_max),
            ("enable_seqscan", "off"),
            ("plan_cache_mode", plans),
        ];
        self.pool_options(connections_max)
            .connect_lazy_with(self.options.clone().options(options))
    }

    /// A connection for reads from any server, safe to write to or not. Nothing is written on it.
    ///
    /// # Errors
    ///
    /// Postgres cannot be reached within five seconds.
    pub async fn connect_to_look(&self) -> Result<PgConnection, StoreError> {
        let doing = "connect to Postgres";
        within(doing, Self::CONNECT_TIMEOUT, async {
            let mut connection = open(doing, &self.options).await?;
            // Set by a statement and not as an option of the connection, which would hide the server's own setting.
            let closing = connection.execute("SET default_transaction_read_only = on");
            closing
                .await
                .map_err(|error| StoreError::from_sqlx(doing, error))?;
            Ok(connection)
        })
        .await
    }

    /// A connection for upkeep, whose statements may take minutes.
    ///
    /// # Errors
    ///
    /// Postgres cannot be reached within five seconds, or is not safe to write to.
    pub async fn connect_for_upkeep(&self) -> Result<PgConnection, StoreError> {
        let doing = "connect to Postgres for upkeep";
        let options = self
            .options
            .clone()
            .options([("statement_timeout", "10min"), ("lock_timeout", "2s")]);
        self.step_on(doing, &options).await
    }

    /// The options for migrations, which run in transactions of their own.
    pub(super) fn options_for_migration(&self) -> PgConnectOptions {
        self.options
            .clone()
            .options([("statement_timeout", "0"), ("lock_timeout", "10s")])
    }
}

impl Postgres {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool_options(&self, connections_max: u32) -> PgPoolOptions {
        PgPoolOptions::new()
            .max_connections(connections_max)
            .min_connections(0)
            .acquire_timeout(Self::CONNECT_TIMEOUT)
            .idle_timeout(Duration::from_secs(60))
    }

    /// Connects and checks. Dropping it closes the socket, for it is in no pool.
    async fn step_on(
        &self,
        doing: &'static str,
        options: &PgConnectOptions,
    ) -> Result<PgConnection, StoreError> {
        let opening = within(doing, Self::CONNECT_TIMEOUT, open(doing, options));
        // From now on: a log line for each of the many tries would hide that of the process.
        let mut connection = opening.await.inspect_err(|_none| self.set_away(true))?;
        self.check_connection(&mut connection, OnLoss::DealWithIt)
            .await?;
        Ok(connection)
    }

    /// Checks the settings, the schema, and the watermark; deals with it when writes were lost.
    async fn check_connection(
        &self,
        connection: &mut PgConnection,
        on_loss: OnLoss,
    ) -> Result<(), StoreError> {
        let doing = "check the connection";
        let checked = async {
            within(doing, Self::CONNECT_TIMEOUT, check_settings(connection)).await?;
            // The schema may have changed while this process had no connection, and a quarantine would write to it.
            within(
                doing,
                Self::CONNECT_TIMEOUT,
                schema::check_program(connection),
            )
            .await?;
            self.check_watermark(connection, on_loss).await
        };
        let checked = checked.await;
        self.noted(checked)
    }

    async fn check_watermark(
        &self,
        connection: &mut PgConnection,
        on_loss: OnLoss,
    ) -> Result<(), StoreError> {
        let doing = "look where the ledger stands";
        for _ in 0..Self::LOOKS_MAX {
            // Before reading: a watermark that another task sees committed meanwhile may be missing in what this one reads.
            let (remembered, acts) = {
                let memory = self.memory();
                let acts = memory.recalled && matches!(on_loss, OnLoss::DealWithIt);
                (memory.watermark.clone(), acts)
            };
            let looking = watermark::look(connection);
            let Some(seen) = within(doing, Self::CONNECT_TIMEOUT, looking).await? else {
                return Ok(());
            };
            match compare(remembered.as_ref(), &seen) {
                Comparison::Same => {
                    if let Some(watermark) = seen.ledger {
                        self.remember(watermark);
                    }
                    return Ok(());
                }
                other @ Comparison::OtherLedger => {
                    let known = remembered.and_then(|watermark| watermark.ledger_id);
                    let known = known.map_or_else(String::new, |id| format!(" {id}"));
                    return Err(StoreError::UnsafeServer(format!(
                        "{}: this process works for ledger{known}, and {} has ledger {}; put the right database back, or \
                         start the process anew",
                        other.what(),
                        self.place(),
                        seen.ledger_id
                    )));
                }
                Comparison::First if acts => {
                    watermark::adopt(connection, &seen, remembered.as_ref()).await?;
                }
                Comparison::First => return Ok(()),
                lost @ (Comparison::Behind
                | Comparison::OtherTimeline
                | Comparison::OtherCluster) => {
                    if !acts {
                        let what = lost.what();
                        return Err(StoreError::UnsafeServer(format!(
                            "{what}; a dispatcher or a worker puts in doubt what may have run unseen, then it is safe"
                        )));
                    }
                    quarantine(connection, &seen, remembered.as_ref(), lost).await?;
                }
            }
        }
        Err(StoreError::unreadable(doing, "it changes all the time"))
    }

    /// Logs that the server is refused, at most once a minute, and that it is safe again.
    fn noted(&self, checked: Result<(), StoreError>) -> Result<(), StoreError> {
        let mut memory = self.memory();
        match &checked {
            Ok(()) => {
                if memory.refused.take().is_some() {
                    tracing::info!("Postgres is safe to write to again");
                }
                metrics().refuses_server(false);
            }
            Err(StoreError::UnsafeServer(what)) => {
                let since = memory.refused.map(|said_at| said_at.elapsed());
                if since.is_none_or(|since| since >= Self::REFUSED_AGAIN_AFTER) {
                    memory.refused = Some(Instant::now());
                    tracing::error!(
                        what,
                        "nothing is written to this Postgres until that is mended; see docs/operations.md"
                    );
                }
                metrics().refuses_server(true);
            }
            Err(_silent) => {}
        }
        drop(memory);
        checked
    }
}

async fn quarantine(
    connection: &mut PgConnection,
    seen: &Seen,
    remembered: Option<&Watermark>,
    comparison: Comparison,
) -> Result<(), StoreError> {
    let (is, what) = (seen.to_string(), comparison.what());
    let remembered_at = remembered.map(ToString::to_string);
    tracing::error!(is, remembered = remembered_at, "{what}");
    match quarantine::doubt_open_calls(connection, seen, remembered, comparison).await? {
        Some(doubted) => tracing::error!(
            doubted,
            "open calls that may have run unseen are in doubt; see docs/operations.md, Postgres lost writes"
        ),
        None => tracing::warn!("another process has put open calls in doubt"),
    }
    Ok(())
}

async fn open(doing: &'static str, options: &PgConnectOptions) -> Result<PgConnection, StoreError> {
    let connecting = PgConnection::connect_with(options).await;
    connecting.map_err(|error| StoreError::from_sqlx(doing, error))
}

/// Refuses a server that may lose what it commits, or that takes no writes.
async fn check_settings(connection: &mut PgConnection) -> Result<(), StoreError> {
    let found = server_check::findings(&server_check::read(connection).await?);
    if found.is_empty() {
        return Ok(());
    }
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    Err(StoreError::UnsafeServer(found.join("; ")))
}

//! A connection to Postgres: its settings, and the check of the ground it stands on.

use std::{io, str::FromStr, time::Duration};

use secrecy::{ExposeSecret, SecretString};
use sqlx::{
    ConnectOptions, Connection, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio::time::{error::Elapsed, timeout};

use super::{StoreError, migrate};

/// Where the ledger is and how this process names itself there.
#[derive(Debug, Clone)]
pub struct Postgres {
    options: PgConnectOptions,
}

impl Postgres {
    /// How long a statement may run; also what bounds a batch.
    pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);
    /// How long a statement may wait for a lock.
    pub const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
    /// How long we listen for the answer of a statement.
    const SILENCE_MAX: Duration = Duration::from_secs(10);
    const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

    /// Reads a `postgres://` URL.
    ///
    /// # Errors
    ///
    /// It is not one. The message does not contain the URL.
    pub fn new(url: &SecretString, application_name: &str) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(url.expose_secret())
            .map_err(|_has_the_url| {
                StoreError::unreadable("read DATABASE_URL", "it is not a postgres:// URL")
            })?
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
        Ok(Self { options })
    }

    /// A connection for the ledger: checked ground, and plans that do not trust the statistics of an empty table.
    ///
    /// # Errors
    ///
    /// Postgres cannot be reached within five seconds, or its ground is unsafe.
    pub async fn connect(&self) -> Result<PgConnection, StoreError> {
        let doing = "connect to Postgres";
        let options = self.options.clone().options([
            ("enable_seqscan", "off"),
            ("enable_hashjoin", "off"),
            ("enable_mergejoin", "off"),
        ]);
        // Dropping a connection attempt closes its socket; it never was in a pool.
        within(doing, Self::CONNECT_TIMEOUT, async {
            let connecting = PgConnection::connect_with(&options).await;
            let mut connection = connecting.map_err(|error| StoreError::from_sqlx(doing, error))?;
            check_ground(&mut connection).await?;
            Ok(connection)
        })
        .await
    }

    /// Listens for the answer of a statement on a connection that the caller drops when there is none.
    ///
    /// The limits are the server's, which ends every statement within [`Self::STATEMENT_TIMEOUT`] and says so: an answer
    /// that is this late does not come, because the wire broke without a word. It is missing, not negative.
    pub(super) async fn listen<T>(
        statement: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, sqlx::Error> {
        timeout(Self::SILENCE_MAX, statement)
            .await
            .unwrap_or_else(|elapsed| Err(silence(elapsed)))
    }

    /// A pool for reads, and for writes that may simply be repeated. Never `begin` on it.
    pub fn pool(&self, connections_max: u32) -> PgPool {
        PgPoolOptions::new()
            .max_connections(connections_max)
            .min_connections(0)
            .acquire_timeout(Self::CONNECT_TIMEOUT)
            .idle_timeout(Duration::from_secs(60))
            .connect_lazy_with(self.options.clone())
    }

    /// A connection for upkeep, whose statements may take minutes.
    ///
    /// # Errors
    ///
    /// Postgres cannot be reached within five seconds.
    pub async fn connect_for_upkeep(&self) -> Result<PgConnection, StoreError> {
        let doing = "connect to Postgres for upkeep";
        let options = self
            .options
            .clone()
            .options([("statement_timeout", "10min"), ("lock_timeout", "2s")]);
        within(doing, Self::CONNECT_TIMEOUT, async {
            let connecting = PgConnection::connect_with(&options).await;
            connecting.map_err(|error| StoreError::from_sqlx(doing, error))
        })
        .await
    }

    /// The options, for migrations, which need a transaction of their own.
    pub(super) fn options_for_migration(&self) -> PgConnectOptions {
        self.options
            .clone()
            .options([("statement_timeout", "0"), ("lock_timeout", "10s")])
    }
}

/// Gives up on an answer that does not come: the wire is dead. Only for what holds no transaction.
///
/// # Errors
///
/// [`StoreError::Unavailable`] after `limit`, else what `doing` comes to.
pub async fn within<T>(
    doing: &'static str,
    limit: Duration,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    timeout(limit, work).await.unwrap_or_else(|elapsed| {
        let source = silence(elapsed);
        Err(StoreError::Unavailable { doing, source })
    })
}

fn silence(elapsed: Elapsed) -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, elapsed))
}

/// Refuses a server that forgets what it commits, or that does not take writes.
async fn check_ground(connection: &mut PgConnection) -> Result<(), StoreError> {
    let statement = "SELECT current_setting('fsync'), current_setting('full_page_writes'), \
                     current_setting('synchronous_commit'), pg_is_in_recovery(), \
                     current_setting('server_version_num')::int";
    let row: (String, String, String, bool, i32) = sqlx::query_as(statement)
        .fetch_one(&mut *connection)
        .await
        .map_err(|e| StoreError::from_sqlx("check the ground", e))?;
    let (fsync, full_page_writes, synchronous_commit, in_recovery, version) = row;
    let mut unsafe_settings = Vec::new();
    if fsync != "on" {
        unsafe_settings.push("fsync is off: a crash loses what was committed; set fsync = on");
    }
    if full_page_writes != "on" {
        unsafe_settings
            .push("full_page_writes is off: a crash can tear pages; set full_page_writes = on");
    }
    if matches!(synchronous_commit.as_str(), "off") {
        unsafe_settings
            .push("synchronous_commit is off: answers would leave before they are durable");
    }
    if in_recovery {
        unsafe_settings.push("the server is a standby: point DATABASE_URL at the primary");
    }
    if version < 150_000 {
        unsafe_settings.push("the server is older than PostgreSQL 15");
    }
    if unsafe_settings.is_empty() {
        // The schema may have moved on while this process had no connection.
        migrate::check_program(connection).await
    } else {
        Err(StoreError::UnsafeGround(unsafe_settings.join("; ")))
    }
}

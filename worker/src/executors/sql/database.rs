//! Connections to the databases of tools: opened when needed, kept idle when clean, closed after anything unusual.
//!
//! This is no pool with `begin` and `commit`. A connection belongs to one attempt at a time; when a future on it is given up,
//! it is dropped, which closes it. The worker's concurrency bounds how many are open; `IDLE_MAX` bounds how many stay idle.

use std::{
    collections::HashMap,
    fmt,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fleet::{store::tool_role::ToolRole, wire::message::Message};
use secrecy::{ExposeSecret, SecretString};
use sqlx::{ConnectOptions, Connection, Executor, PgConnection, postgres::PgConnectOptions};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use super::{not_committed::NoConnection, statement::Statement};
use crate::executors::resources::lacks_resources;

/// Idle connections that are kept to one database, and for how long.
const IDLE_MAX: usize = 32;
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How many attempts of one statement begin at a time. More would not be faster, and each needs a connection of its own.
const BEGINNING_MAX: usize = 32;
/// The most statements that a connection keeps prepared.
const PREPARED_MAX: usize = 32;
/// How long a cancel request may take.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);
/// The most statements that are remembered for one database.
const STATEMENTS_MAX: usize = 1024;

/// The databases that this worker's tools have used, by URL.
#[derive(Default)]
pub(super) struct Databases(Mutex<HashMap<String, Arc<Database>>>);

// Their URLs hold passwords.
impl fmt::Debug for Databases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(lock(&self.0).values()).finish()
    }
}

impl Databases {
    /// The database of this URL.
    pub(super) fn of(&self, url: &SecretString, whose: Whose) -> Result<Arc<Database>, BadUrl> {
        let mut known = lock(&self.0);
        if let Some(database) = known.get(url.expose_secret()) {
            return Ok(Arc::clone(database));
        }
        let database = Arc::new(Database::new(url, whose)?);
        // A changed secret leaves the old URL behind.
        known.retain(|_, database| !database.is_unused());
        known.insert(url.expose_secret().to_owned(), Arc::clone(&database));
        Ok(database)
    }
}

/// Which database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The fleet's own: the role of the tools must not reach the ledger.
    Fleet,
    /// Any other: its owner decides what its role may do.
    Others,
}

/// The URL cannot be used by a tool. The message does not contain it.
#[derive(Debug, thiserror::Error)]
#[error("the database URL cannot be used: write postgres://USER:PASSWORD@HOST:PORT/DATABASE; {0}")]
pub struct BadUrl(&'static str);

/// One database and its idle connections.
pub struct Database {
    options: PgConnectOptions,
    whose: Whose,
    url: SecretString,
    idle: Mutex<Vec<Idle>>,
    statements: Mutex<HashMap<String, Arc<Statement>>>,
    turns: Mutex<HashMap<String, Arc<Semaphore>>>,
    used: Mutex<Instant>,
}

struct Idle {
    open: Open,
    since: Instant,
}

/// An open connection, outside a transaction.
pub struct Open {
    /// The connection.
    pub connection: PgConnection,
    /// Whether it served another attempt before.
    pub reused: bool,
    /// The attempt's turn, which ends when the connection is back.
    pub turn: Option<OwnedSemaphorePermit>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("whose", &self.whose)
            .finish_non_exhaustive()
    }
}

impl Database {
    /// The database of this URL; nothing is opened.
    pub fn new(url: &SecretString, whose: Whose) -> Result<Self, BadUrl> {
        Ok(Self {
            options: options(url.expose_secret())?,
            whose,
            url: url.clone(),
            idle: Mutex::default(),
            statements: Mutex::default(),
            turns: Mutex::default(),
            used: Mutex::new(Instant::now()),
        })
    }

    /// What must not be shown: its URL and the password in it.
    pub fn secrets(&self) -> Vec<SecretString> {
        let parsed = reqwest::Url::parse(self.url.expose_secret()).ok();
        let password = parsed.and_then(|url| Some(url.password()?.to_owned()));
        let plain = password
            .iter()
            .map(|password| percent_decoded(password).into());
        let mut secrets = vec![self.url.clone()];
        secrets.extend(plain);
        secrets.extend(password.iter().map(|password| password.as_str().into()));
        secrets
    }

    /// An idle connection that may still be alive, if there is one.
    pub fn idle(&self) -> Option<Open> {
        *lock(&self.used) = Instant::now();
        let mut idle = lock(&self.idle);
        idle.retain(|one| one.since.elapsed() < IDLE_TIME_MAX);
        idle.pop().map(|one| one.open)
    }

    /// Closes every idle connection, because one of them turned out to be dead.
    pub fn forget_idle(&self) {
        lock(&self.idle).clear();
    }

    /// A new connection, by `until` at the latest.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or its role has a right that no tool may have. Nothing has been sent.
    pub async fn open(&self, until: Instant) -> Result<Open, NoConnection> {
        let until = until.min(Instant::now() + CONNECT_TIMEOUT);
        let opening = async {
            let mut connection = self
                .options
                .connect()
                .await
                .map_err(|error| unreachable(&error))?;
            if self.whose == Whose::Fleet {
                check_role(&mut connection).await?;
            }
            Ok(Open {
                connection,
                reused: false,
                turn: None,
            })
        };
        timeout_at(until, opening)
            .await
            .unwrap_or_else(|_elapsed| Err(not_in_time()))
    }

    /// A turn to run a statement. It ends when the connection is back, or when the statement turns out to be slow.
    ///
    /// Thousands of quick statements finish sooner on a few connections than on hundreds. A slow statement waits for something,
    /// and may run beside others.
    ///
    /// # Errors
    ///
    /// An attempt before this one could get no connection.
    pub async fn turn(
        &self,
        text: &str,
        until: Instant,
    ) -> Result<OwnedSemaphorePermit, NoConnection> {
        let turns = {
            let mut turns = lock(&self.turns);
            if turns.len() >= STATEMENTS_MAX && !turns.contains_key(text) {
                turns.clear();
            }
            let fresh = || Arc::new(Semaphore::new(BEGINNING_MAX));
            Arc::clone(turns.entry(text.to_owned()).or_insert_with(fresh))
        };
        let until = until.min(Instant::now() + CONNECT_TIMEOUT);
        let turn = timeout_at(until, turns.acquire_owned()).await;
        turn.map(|turn| turn.expect("it is never closed"))
            .map_err(|_elapsed| not_in_time())
    }

    /// Takes back a connection that `tidy` has found clean.
    pub fn take_back(&self, mut open: Open) {
        let turn = open.turn.take();
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_MAX {
            open.reused = true;
            idle.push(Idle {
                open,
                since: Instant::now(),
            });
        }
        drop(idle);
        // The next attempt opens a new one, and so finds it.
        drop(turn);
    }

    /// Asks the server, over another connection, to cancel what the process `pid` runs.
    pub async fn cancel(&self, pid: i32) {
        let asking = async {
            let mut connection = self.options.connect().await?;
            let asked = sqlx::query("SELECT pg_catalog.pg_cancel_backend($1)").bind(pid);
            asked.execute(&mut connection).await?;
            connection.close().await
        };
        // If it fails, the statement's own timeout ends it.
        if !matches!(timeout(CANCEL_TIMEOUT, asking).await, Ok(Ok(()))) {
            tracing::warn!("a statement could not be cancelled; its own timeout will end it");
        }
    }

    /// What is known of a statement.
    pub(super) fn known(&self, text: &str) -> Option<Arc<Statement>> {
        lock(&self.statements).get(text).cloned()
    }

    /// Remembers what the server said of a statement.
    pub(super) fn learned(&self, text: &str, statement: &Arc<Statement>) {
        let mut known = lock(&self.statements);
        if known.len() >= STATEMENTS_MAX {
            known.clear();
        }
        known.insert(text.to_owned(), Arc::clone(statement));
    }

    /// Forgets a statement: its tables may have changed.
    pub(super) fn unlearn(&self, text: &str) {
        lock(&self.statements).remove(text);
    }

    fn is_unused(&self) -> bool {
        lock(&self.used).elapsed() > 10 * IDLE_TIME_MAX
    }
}

/// Refuses a role that could reach the ledger. The worker checked it at the start, but roles can change later.
async fn check_role(connection: &mut PgConnection) -> Result<(), NoConnection> {
    let path = async |connection: &mut PgConnection, statement: &'static str| {
        let set = connection.execute(statement).await;
        set.map(drop).map_err(|error| unreachable(&error))
    };
    // Names are not looked up along the role's own `search_path`, for the role itself is checked here.
    path(connection, "SET search_path = pg_catalog, pg_temp").await?;
    let role = ToolRole::of_session(connection).await;
    let role =
        role.map_err(|error| NoConnection::Unreachable(Message::verbatim(error.to_string())))?;
    if let Some(finding) = role.findings().first() {
        return Err(NoConnection::Role(finding.to_string()));
    }
    path(connection, "RESET search_path").await
}

/// The URL alone decides: variables that other clients read from the environment are ignored.
fn options(url: &str) -> Result<PgConnectOptions, BadUrl> {
    const KNOWN: [&str; 16] = [
        "sslmode",
        "ssl-mode",
        "sslrootcert",
        "ssl-root-cert",
        "ssl-ca",
        "sslcert",
        "ssl-cert",
        "sslkey",
        "ssl-key",
        "host",
        "hostaddr",
        "port",
        "dbname",
        "user",
        "password",
        "options",
    ];
    let parsed = reqwest::Url::parse(url).map_err(|_shows_it| BadUrl("it is not a URL"))?;
    if !matches!(parsed.scheme(), "postgres" | "postgresql") {
        return Err(BadUrl("the scheme is postgres"));
    }
    let given = |name: &str| parsed.query_pairs().any(|(key, _)| key == name);
    if parsed.query_pairs().any(|(key, _)| !KNOWN.contains(&&*key)) {
        return Err(BadUrl("it has a parameter that is not known"));
    }
    if parsed.username().is_empty() && !given("user") {
        return Err(BadUrl("it names no user"));
    }
    let hosted = parsed.host_str().is_some_and(|host| !host.is_empty());
    if !hosted && !given("host") && !given("hostaddr") {
        return Err(BadUrl("it names no host"));
    }
    if parsed.path().trim_start_matches('/').is_empty() && !given("dbname") {
        return Err(BadUrl("it names no database"));
    }
    let mut options = PgConnectOptions::from_str(url)
        .map_err(|_shows_it| BadUrl("a part of it cannot be read"))?
        .application_name("toolfleet tool")
        .statement_cache_capacity(PREPARED_MAX)
        .disable_statement_logging();
    if parsed.password().is_none() && !given("password") {
        options = options.password("");
    }
    if parsed.port().is_none() && !given("port") {
        options = options.port(5432);
    }
    Ok(options)
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let decoded = (first == b'%').then(|| after.get(..2)).flatten();
        let decoded = decoded.and_then(|digits| std::str::from_utf8(digits).ok());
        match decoded.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

const fn not_in_time() -> NoConnection {
    NoConnection::Unreachable(Message::fixed("no connection in time", "没有按时连上"))
}

fn unreachable(error: &sqlx::Error) -> NoConnection {
    if let sqlx::Error::Io(cause) = error
        && lacks_resources(cause)
    {
        return NoConnection::NoResources(Message::verbatim(cause.to_string()));
    }
    NoConnection::Unreachable(match error {
        sqlx::Error::Io(cause) => Message::verbatim(cause.to_string()),
        sqlx::Error::Database(answer) => Message::verbatim(answer.message().to_owned()),
        sqlx::Error::Tls(_) => Message::fixed("TLS could not be negotiated", "TLS 协商失败"),
        _ => Message::fixed("its answer was not understood", "无法理解它的响应"),
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_all_there_is_to_say() {
        for url in [
            "postgres://u:p@h/d",
            "postgresql://u@h:1/d?sslmode=require",
            "postgres:///d?host=/tmp&user=u",
        ] {
            assert!(options(url).is_ok(), "{url}");
        }
        for url in [
            "hunter2",
            "mysql://u:hunter2@h/d",
            "postgres://:hunter2@h/d",
            "postgres://u:hunter2@h",
            "postgres://u:hunter2@h/d?pasword=hunter2",
            "postgres:///d?user=u",
            "postgres://u:hunter2@h/d?sslmode=hunter2",
        ] {
            let refused = options(url).unwrap_err();
            assert!(
                !format!("{refused} {refused:?}").contains("hunter2"),
                "{url}"
            );
        }
    }

    #[test]
    fn what_must_not_be_told_includes_the_password_as_it_is_typed() {
        let database = Database::new(&"postgres://u:a%2Fb@h/d".into(), Whose::Others).unwrap();
        let secrets = database.secrets();
        let secrets: Vec<_> = secrets.iter().map(ExposeSecret::expose_secret).collect();
        assert_eq!(secrets, ["postgres://u:a%2Fb@h/d", "a/b", "a%2Fb"]);
        assert_eq!(format!("{database:?}"), "Database { whose: Others, .. }");
        let databases = Databases::default();
        let url = "postgres://u:hunter2@h/d".into();
        databases.of(&url, Whose::Others).unwrap();
        assert!(!format!("{databases:?}").contains("hunter2"));
    }
}

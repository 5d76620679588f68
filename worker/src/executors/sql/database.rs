//! Connections to the databases of tools: opened when needed, kept idle when clean, closed after anything odd.
//!
//! There is no pool with a `begin` or `commit`: a connection belongs to one attempt at a time and is dropped, which closes
//! it, whenever a future on it was given up. How many are open at once is bounded by the worker's concurrency; how many
//! stay idle, by `IDLE_MAX`.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fleet::{store::tool_role::ToolRole, wire::message::Message};
use secrecy::{ExposeSecret, SecretString};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use super::{
    connect::{NoSession, Target},
    limits::Limits,
    not_committed::{NoConnection, NotCommitted},
    statement::{Statement, check},
    target::{BadUrl, percent_decoded, target},
    tidy::GOODBYE,
    wire::{CancelKey, Wire},
};
use crate::executors::resources::lacks_resources;

/// Idle connections that are kept to one database, and for how long.
const IDLE_MAX: usize = 32;
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
/// A connection that answered so lately, and that nothing has closed since, is taken to be alive.
const ALIVE_FOR: Duration = Duration::from_secs(1);
/// How long opening a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts of one statement that begin at a time. More of them would not be quicker, and each needs a connection of its own.
const BEGINNING_MAX: usize = 32;
/// How long a cancel request may take.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);
/// Statements that are remembered for one database.
const STATEMENTS_MAX: usize = 1024;

/// The databases that this worker's tools have used, by their URL.
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
        // A secret that was changed leaves its old URL behind.
        known.retain(|_, database| !database.is_unused());
        known.insert(url.expose_secret().to_owned(), Arc::clone(&database));
        Ok(database)
    }
}

/// Whose database it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The fleet's own: the role of the tools must not reach the ledger.
    Fleet,
    /// Another database: its owner decides what its role may do.
    Others,
}

/// One database and its idle connections.
pub struct Database {
    target: Target,
    whose: Whose,
    url: SecretString,
    idle: Mutex<Vec<Open>>,
    statements: Mutex<HashMap<String, Arc<Statement>>>,
    queues: Mutex<HashMap<String, Arc<Queue>>>,
    used: Mutex<Instant>,
}

/// The attempts of one statement.
struct Queue {
    turns: Arc<Semaphore>,
    /// Held while the server is asked what it says of the statement: the others wait for its answer.
    checking: tokio::sync::Mutex<()>,
}

/// An open connection, between transactions.
pub struct Open {
    pub(super) wire: Wire,
    /// When the server last answered on it.
    pub(super) answered: Instant,
    /// Its attempt's turn, which is over when it is back.
    pub(super) turn: Option<OwnedSemaphorePermit>,
}

impl Open {
    /// Whether the server has answered on it so lately that a statement may be sent to it without asking.
    pub(super) fn answered_lately(&self) -> bool {
        self.answered.elapsed() < ALIVE_FOR
    }

    /// Ends a transaction that failed, and closes the connection.
    pub(super) async fn abandon(mut self) {
        let goodbye = async {
            self.wire.query("ROLLBACK")?;
            self.wire.close().await
        };
        // A closed connection is rolled back too, only with a line in the server's log.
        drop(timeout(GOODBYE, goodbye).await);
    }
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
            target: target(url.expose_secret())?,
            whose,
            url: url.clone(),
            idle: Mutex::default(),
            statements: Mutex::default(),
            queues: Mutex::default(),
            used: Mutex::new(Instant::now()),
        })
    }

    /// What must not be told of it: its URL and the password in it.
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

    /// An idle connection, if there is one that may still be alive.
    pub fn idle(&self) -> Option<Open> {
        *lock(&self.used) = Instant::now();
        let mut idle = lock(&self.idle);
        idle.retain(|open| open.answered.elapsed() < IDLE_TIME_MAX);
        idle.pop()
    }

    /// Closes every idle connection: one of them turned out to be dead.
    pub fn forget_idle(&self) {
        lock(&self.idle).clear();
    }

    /// A fresh connection, by `until` at the latest.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or its role may do what no tool may. Nothing has been sent.
    pub async fn open(&self, until: Instant) -> Result<Open, NoConnection> {
        let until = until.min(Instant::now() + CONNECT_TIMEOUT);
        let opening = async {
            let mut wire = self.target.connect().await?;
            if self.whose == Whose::Fleet {
                check_role(&mut wire).await?;
            }
            Ok(Open {
                wire,
                answered: Instant::now(),
                turn: None,
            })
        };
        timeout_at(until, opening)
            .await
            .unwrap_or_else(|_elapsed| Err(not_in_time()))
    }

    /// A turn to run a statement. It is over when the connection is back, or when the statement turns out to be slow.
    ///
    /// Thousands of quick statements are done sooner on a few connections than on hundreds. What is slow waits for something,
    /// and may run beside others.
    ///
    /// # Errors
    ///
    /// Those before have no connection either.
    pub async fn turn(
        &self,
        text: &str,
        until: Instant,
    ) -> Result<OwnedSemaphorePermit, NoConnection> {
        let turns = Arc::clone(&self.queue(text).turns);
        let until = until.min(Instant::now() + CONNECT_TIMEOUT);
        let turn = timeout_at(until, turns.acquire_owned()).await;
        turn.map(|turn| turn.expect("it is never closed"))
            .map_err(|_elapsed| not_in_time())
    }

    fn queue(&self, text: &str) -> Arc<Queue> {
        let mut queues = lock(&self.queues);
        if queues.len() >= STATEMENTS_MAX && !queues.contains_key(text) {
            queues.clear();
        }
        let fresh = || {
            Arc::new(Queue {
                turns: Arc::new(Semaphore::new(BEGINNING_MAX)),
                checking: tokio::sync::Mutex::default(),
            })
        };
        Arc::clone(queues.entry(text.to_owned()).or_insert_with(fresh))
    }

    /// Takes a connection back that `tidy` has found clean.
    pub fn take_back(&self, mut open: Open) {
        let turn = open.turn.take();
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_MAX {
            open.answered = Instant::now();
            idle.push(open);
        }
        drop(idle);
        // The next attempt that opens one finds it.
        drop(turn);
    }

    /// Asks the server, from another connection, to end what this one is doing.
    pub(super) async fn cancel(&self, key: CancelKey) {
        // If it fails, the statement's own timeout ends the statement.
        let asked = timeout(CANCEL_TIMEOUT, self.target.cancel(key)).await;
        if !matches!(asked, Ok(Ok(()))) {
            tracing::warn!("a statement could not be cancelled; its own timeout will end it");
        }
    }

    /// What the server says of a statement: asked once per process, and again after it refused it.
    ///
    /// # Errors
    ///
    /// It is no statement that a tool may run, or the server is gone. Nothing of it was run.
    pub async fn statement(
        &self,
        text: &str,
        placeholders: usize,
        limits: &Limits,
    ) -> Result<Arc<Statement>, NotCommitted> {
        if let Some(known) = self.known(text) {
            return Ok(known);
        }
        let queue = self.queue(text);
        let _checking = queue.checking.lock().await;
        if let Some(known) = self.known(text) {
            return Ok(known);
        }
        let mut trusted = self.idle().filter(Open::answered_lately);
        if let Some(open) = &mut trusted
            && !open.wire.is_quiet().await
        {
            trusted = None;
        }
        let mut checked = None;
        if let Some(mut open) = trusted {
            let done = check(&mut open.wire, text, placeholders, limits).await;
            // Nothing was run: another connection may do it.
            if !matches!(&done, Err(ended) if ended.ends_session()) {
                checked = Some((done, open));
            }
        }
        let (done, open) = match checked {
            Some(checked) => checked,
            None => {
                let opening = self.open(limits.until).await;
                let mut open = opening.map_err(NotCommitted::NoConnection)?;
                let done = check(&mut open.wire, text, placeholders, limits).await;
                (done, open)
            }
        };
        let statement = match done {
            Ok(statement) => Arc::new(statement),
            Err(ended) => {
                open.abandon().await;
                return Err(ended);
            }
        };
        self.learned(text, &statement);
        self.take_back(open);
        Ok(statement)
    }

    fn known(&self, text: &str) -> Option<Arc<Statement>> {
        lock(&self.statements).get(text).cloned()
    }

    fn learned(&self, text: &str, statement: &Arc<Statement>) {
        let mut known = lock(&self.statements);
        if known.len() >= STATEMENTS_MAX {
            known.clear();
        }
        known.insert(text.to_owned(), Arc::clone(statement));
    }

    /// The tables may have changed: what was known of a statement is learned again.
    pub(super) fn unlearn(&self, text: &str) {
        lock(&self.statements).remove(text);
    }

    fn is_unused(&self) -> bool {
        lock(&self.used).elapsed() > 10 * IDLE_TIME_MAX
    }
}

/// Refuses a role from which a statement could reach the ledger. The worker looked when it started; roles are changed later.
async fn check_role(wire: &mut Wire) -> Result<(), NoConnection> {
    let asked = async {
        // The role's own `search_path` is no place to look for names in when it is the role that is looked at.
        wire.rows("SET search_path = pg_catalog, pg_temp", &[])
            .await?;
        let name = wire
            .rows("SELECT SESSION_USER::pg_catalog.text", &[])
            .await?;
        let name = name.into_iter().flatten().next().unwrap_or_default();
        let flaws = wire.rows(ToolRole::LOOK, &[&name]).await?;
        wire.rows("RESET search_path", &[]).await?;
        Ok::<_, NotCommitted>(ToolRole::of(name, flaws))
    };
    let role = asked.await.map_err(NoSession::from)?;
    match role.findings().first() {
        Some(finding) => Err(NoConnection::Role(finding.to_string())),
        None => Ok(()),
    }
}

const fn not_in_time() -> NoConnection {
    NoConnection::Unreachable(Message::fixed("no connection in time", "没有按时连上"))
}

impl From<NoSession> for NoConnection {
    fn from(error: NoSession) -> Self {
        Self::Unreachable(match error {
            NoSession::Io(cause) if lacks_resources(&cause) => {
                return Self::NoResources(Message::verbatim(cause.to_string()));
            }
            NoSession::Io(cause) => Message::verbatim(cause.to_string()),
            NoSession::Refused(refusal) => Message::verbatim(refusal.message),
            NoSession::Tls => Message::fixed("TLS could not be negotiated", "TLS 协商失败"),
            NoSession::Exposed => Message::fixed(
                "it asks for the password in clear text and has not proved who it is: use scram-sha-256, or sslmode=verify-full",
                "它要求明文密码，却没有证明自己的身份：请使用 scram-sha-256，或 sslmode=verify-full",
            ),
            NoSession::NotUnderstood => {
                Message::fixed("its answer was not understood", "无法理解它的响应")
            }
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

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

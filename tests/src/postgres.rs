//! A real Postgres for tests: one cluster per test process, a migrated database of its own for each test.
//!
//! `initdb` and the migrations take seconds, so they are done once per build folder and kept as an archive there, named
//! by what they depend on. Each process unpacks it into its own [`RunFolder`] and starts its own server with fsync on
//! (in memory that costs nothing), so `cargo test` and `cargo nextest` both work and nothing is shared between processes
//! but a file. A database is a copy of the template in the cluster.

use std::{
    borrow::Cow,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use fleet::store::{
    migrate,
    rights::{self, Duty},
    session::Postgres,
};
use secrecy::SecretString;
use sha2::{Digest, Sha256};
use sqlx::{
    AssertSqlSafe, Connection, Executor, PgConnection, PgPool, SqlSafeStr,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
};
use tokio::sync::OnceCell;
use toolfleet::servers::{
    self, PostgresOptions,
    find::{self, SearchPaths},
    tools,
};
use uuid::Uuid;

use crate::run_folder::RunFolder;

/// The migrated database that others are copied from.
const TEMPLATE: &str = "ledger_template";
/// Before the first migration of releases to come.
const FUTURE: i64 = 29_990_101_000_000;
/// The password of the role of the tools, in every cluster.
const TOOL_PASSWORD: &str = "0123456789abcdef";
/// Connections of one test to its database, beside those of its lanes.
const POOL_MAX: u32 = 16;
/// The shipped role that owns the schema.
pub const MIGRATE: &str = "toolfleet_migrate";

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) server: Option<servers::Postgres>,
    port: u16,
    pub(crate) url: String,
    variables: Vec<(String, String)>,
    // After the server: dropping it ends what still runs.
    pub(crate) folder: RunFolder,
    given_back: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    /// The cluster that every test of this process shares. It ends with the process.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Cluster> = OnceCell::const_new();
        SHARED.get_or_init(|| Self::alone(true)).await
    }

    /// A cluster of one's own, for tests that stop it; without fsync, for the test that such a one is refused.
    ///
    /// # Panics
    ///
    /// No Postgres can be started; the message says why.
    pub async fn alone(fsync: bool) -> Self {
        Self::alone_with(fsync, Vec::new()).await
    }

    /// The same, with this in the environment of its server.
    ///
    /// # Panics
    ///
    /// No Postgres can be started; the message says why.
    pub async fn alone_with(fsync: bool, variables: Vec<(String, String)>) -> Self {
        let archive = archive().await;
        let folder = RunFolder::create().expect("a folder for the cluster");
        tar(folder.path(), &["-xpf"], &archive, &[]).expect("unpack the cluster");
        let server = start(&folder, None, fsync, &variables).await;
        Self {
            port: server.port(),
            url: server.url(),
            server: Some(server),
            folder,
            variables,
            given_back: Arc::default(),
        }
    }

    /// The port on 127.0.0.1; it stays the same over [`Self::stop`] and [`Self::start`].
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The process id of its first process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(servers::Postgres::pid)
    }

    /// Its log.
    pub fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// A new migrated database.
    ///
    /// # Panics
    ///
    /// The server refuses.
    pub async fn database(&self) -> Database {
        self.copy(TEMPLATE).await
    }

    /// A new database with nothing in it.
    ///
    /// # Panics
    ///
    /// The server refuses.
    pub async fn empty_database(&self) -> Database {
        self.copy("template0").await
    }

    /// Shuts the server down: what it is doing is rolled back.
    pub async fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop().await;
        }
    }

    /// Starts it again, where it was.
    ///
    /// # Panics
    ///
    /// It does not come up.
    pub async fn start(&mut self) {
        self.server = Some(start(&self.folder, Some(self.port), true, &self.variables).await);
    }

    async fn copy(&self, template: &str) -> Database {
        let name = format!("test_{}", Uuid::new_v4().simple());
        let mut connection = PgConnection::connect(&self.url)
            .await
            .expect("connect to the cluster");
        let unused = std::mem::take(&mut *lock(&self.given_back));
        let drops = unused
            .iter()
            .map(|old| format!("DROP DATABASE {old} WITH (FORCE)"));
        let create = format!("CREATE DATABASE {name} TEMPLATE {template}");
        for statement in drops.chain([create]) {
            // Made of names of this file.
            connection
                .execute(AssertSqlSafe(statement))
                .await
                .expect("make room for a test and its database");
        }
        let (server, _) = split(&self.url);
        let url = format!("{server}/{name}");
        let postgres = ledger(&url);
        Database {
            pool: postgres.pool_for_reading(POOL_MAX),
            postgres,
            url,
            given_back: Arc::clone(&self.given_back),
        }
    }
}

/// A database of one test.
#[derive(Debug)]
pub struct Database {
    /// Where it is, password included.
    pub url: String,
    /// The same, as the ledger wants it.
    pub postgres: Postgres,
    /// For reads, and for whatever a test does behind the ledger's back.
    pub pool: PgPool,
    given_back: Arc<Mutex<Vec<String>>>,
}

impl Database {
    /// A new migrated database in the shared cluster.
    pub async fn fresh() -> Self {
        Cluster::shared().await.database().await
    }

    /// As whom its URL logs in.
    pub fn user(&self) -> &str {
        let login = self.url.split("://").nth(1).unwrap_or_default();
        login.split([':', '@']).next().unwrap_or_default()
    }

    /// A connection without the ledger's settings: no timeouts, a superuser.
    ///
    /// # Panics
    ///
    /// The server refuses.
    pub async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url)
            .await
            .expect("connect to the database of this test")
    }

    /// Applies a migration of a release that is to come, as that release would. The number says in which order.
    ///
    /// # Errors
    ///
    /// Postgres refuses it.
    pub async fn upgrade(&self, number: i64, sql: &'static str) -> Result<(), MigrateError> {
        let (kind, sql) = (MigrationType::Simple, sql.into_sql_str());
        let next = Migration::new(FUTURE + number, "of the future".into(), kind, sql, false);
        let known = migrate::migrator();
        let migrator = Migrator {
            migrations: Cow::Owned(known.iter().cloned().chain([next]).collect()),
            ignore_missing: true,
            ..known
        };
        migrator.run(&mut self.connect().await).await
    }

    /// Makes the roles that are shipped and grants them what they need here. [`Self::url_of`] is where each logs in.
    ///
    /// # Panics
    ///
    /// The server refuses, or a role has more than it needs.
    pub async fn grant_roles(&self) {
        let beyond = rights::grant(&self.postgres)
            .await
            .expect("grant the roles");
        assert!(beyond.is_empty(), "{beyond:?}");
        self.let_roles_log_in().await;
    }

    /// Gives the shipped roles the password of the tests.
    ///
    /// # Panics
    ///
    /// There are none.
    pub async fn let_roles_log_in(&self) {
        let mut connection = self.connect().await;
        for role in Duty::ALL.map(Duty::role).into_iter().chain([MIGRATE]) {
            let sql = format!("ALTER ROLE {role} PASSWORD '{TOOL_PASSWORD}'");
            // Made of constants.
            let changing = connection.execute(AssertSqlSafe(sql));
            changing.await.expect("the roles of the fleet are there");
        }
    }

    /// The same database as this role reaches it.
    pub fn url_of(&self, role: &str) -> String {
        let (_, place) = self.url.rsplit_once('@').expect("a URL with a user");
        format!("postgres://{role}:{TOOL_PASSWORD}@{place}")
    }

    /// The same database as sql tools reach it: by the role of the tools. Their tables lie in schema `tools`.
    pub fn tool_url(&self) -> String {
        tools::url_of(&self.url, TOOL_PASSWORD)
    }

    /// The same, through a proxy on this port.
    pub fn tool_url_through(&self, port: u16) -> String {
        with_port(&self.tool_url(), port)
    }

    /// The URL of the same database, through a proxy on this port.
    pub fn url_through(&self, port: u16) -> String {
        with_port(&self.url, port)
    }

    /// The same database by another way, through a proxy on this port.
    pub fn through(&self, port: u16) -> Postgres {
        ledger(&with_port(&self.url, port))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // The next test that wants a database drops it: that takes an answer of the server, and nothing waits here.
        lock(&self.given_back).push(split(&self.url).1.to_owned());
    }
}

fn lock(names: &Mutex<Vec<String>>) -> MutexGuard<'_, Vec<String>> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A URL's front and the name of its database.
pub(crate) fn split(url: &str) -> (&str, &str) {
    url.rsplit_once('/').expect("the URL names its database")
}

fn ledger(url: &str) -> Postgres {
    Postgres::new(&SecretString::from(url), "fleet-tests").expect("a URL made here is one")
}

/// The same URL with another port.
///
/// # Panics
///
/// It names none.
pub fn with_port(url: &str, port: u16) -> String {
    let (front, database) = split(url);
    let (front, _) = front.rsplit_once(':').expect("the URL names its port");
    format!("{front}:{port}/{database}")
}

async fn start(
    folder: &RunFolder,
    port: Option<u16>,
    fsync: bool,
    variables: &[(String, String)],
) -> servers::Postgres {
    let options = PostgresOptions {
        data: folder.path().join("data"),
        port,
        log: folder.path().join("log"),
        fsync,
        variables: variables.to_vec(),
    };
    servers::Postgres::start(options)
        .await
        .expect("start Postgres")
}

/// The archive of a cluster with the migrated template; made by the first test that needs it.
async fn archive() -> PathBuf {
    let bin = find::postgres_bin(&SearchPaths::of_this_process())
        .await
        .expect("find Postgres");
    let version =
        output(Command::new(bin.join("postgres")).arg("--version")).expect("ask Postgres");
    let mut made_of = Sha256::new_with_prefix(version);
    for migration in migrate::migrator().iter() {
        made_of.update(migration.version.to_be_bytes());
        made_of.update(&migration.checksum);
    }
    // Changed by hand when what is made beside the migrations changes.
    made_of.update("role of the tools 1");
    // Its partitions are those of the day on which it was made.
    made_of.update(day().to_be_bytes());
    let name = hex::encode(&made_of.finalize()[..8]);

    let program = std::env::current_exe().expect("the path of this program");
    let cache = program
        .ancestors()
        .nth(2)
        .expect("a test runs in the folder of its build")
        .join("fleet-tests");
    fs::create_dir_all(&cache).expect("create the cache of clusters");
    let archive = cache.join(format!("cluster-{name}.tar"));
    if !archive.exists() {
        let lock = fs::File::create(cache.join("lock")).expect("create the cache's lock");
        lock.lock().expect("lock the cache of clusters");
        if !archive.exists() {
            create_archive(&archive).await;
        }
    }
    archive
}

/// Days since 1970, in UTC.
#[expect(
    clippy::disallowed_methods,
    reason = "names a file of the cache, before there is a server to ask"
)]
fn day() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("it is after 1970").as_secs() / 86_400
}

async fn create_archive(archive: &Path) {
    let folder = RunFolder::create().expect("a folder for the first cluster");
    let server = start(&folder, None, true, &[]).await;
    let mut connection = PgConnection::connect(&server.url())
        .await
        .expect("connect to the first cluster");
    let create = format!("CREATE DATABASE {TEMPLATE}");
    connection
        .execute(AssertSqlSafe(create))
        .await
        .expect("create the template");
    let url = server.url();
    let (front, _) = split(&url);
    let template = format!("{front}/{TEMPLATE}");
    migrate::migrate(&ledger(&template))
        .await
        .expect("migrate the template");
    tools::provision(&template, TOOL_PASSWORD)
        .await
        .expect("make the role of the tools");
    drop(connection);
    server.stop().await;
    let unfinished = archive.with_extension("new");
    tar(
        folder.path(),
        &["-cf"],
        &unfinished,
        &["data", "postgres.password"],
    )
    .expect("pack the cluster");
    let cache = archive.parent().expect("the archive lies in the cache");
    for old in fs::read_dir(cache).expect("read the cache").flatten() {
        if old.path().extension().is_some_and(|kind| kind == "tar") {
            fs::remove_file(old.path()).expect("remove the archive of other migrations");
        }
    }
    fs::rename(&unfinished, archive).expect("keep the archive");
}

fn tar(folder: &Path, how: &[&str], archive: &Path, what: &[&str]) -> io::Result<String> {
    output(
        Command::new("tar")
            .arg("-C")
            .arg(folder)
            .args(how)
            .arg(archive)
            .args(what),
    )
}

pub(crate) fn output(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(io::Error::other(
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ))
    }
}

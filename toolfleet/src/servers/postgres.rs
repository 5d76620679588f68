//! A private Postgres: its cluster is created when new, it listens on 127.0.0.1 only, and asks for a password.
//!
//! The server is our direct child, not `pg_ctl`'s: this process owns its pid and sees its end. Postgres itself handles a stale
//! `postmaster.pid`. Backends that outlive a killed postmaster for a moment make the next start fail with a shared-memory
//! message, and that start is repeated.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::signal::Signal;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, postgres::PgConnectOptions,
};
use tokio::{
    process::Command,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    cluster::{self, NAME},
    error::ServerError,
    find::{self, SearchPaths},
    place::Place,
    ports::free_ports,
    process::{self, Ending, Launch, Process, Stopped},
};

/// The options of a start.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The data folder; created if it is missing. The file `postgres.password` beside it has the password.
    pub data: PathBuf,
    /// The port on 127.0.0.1; a free one when none is given.
    pub port: Option<u16>,
    /// The server's log, appended to.
    pub log: PathBuf,
    /// Off only where losing everything at a power failure is acceptable.
    pub fsync: bool,
    /// Further variables of its environment; ours is not passed on.
    pub variables: Vec<(String, String)>,
}

/// A running Postgres. Dropping it shuts it down at once, as SIGQUIT does, and does not wait.
#[derive(Debug)]
pub struct Postgres {
    process: Process,
    port: u16,
    url: String,
    note: Option<String>,
}

/// How long a start may take, crash recovery included.
const START_MAX: Duration = Duration::from_secs(30);
/// For how long a start that fails for a passing reason is repeated.
const REPEAT_MAX: Duration = Duration::from_secs(15);
/// For how long a wrong password may mean another server on the same port, which will make ours fail.
const STRANGER_MAX: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);
/// Fast shutdown; after the grace SIGKILL, which the next start recovers from.
const ENDING: Ending = Ending {
    ask: Signal::SIGINT,
    grace: Duration::from_secs(10),
    at_once: Signal::SIGQUIT,
};

impl Postgres {
    /// Starts it and waits until its database `toolfleet` answers; at most about a minute, and two for a new cluster.
    ///
    /// Dropping the future ends everything that it started.
    ///
    /// # Errors
    ///
    /// No fit Postgres is installed, or it does not start; the message quotes its log.
    pub async fn start(options: PostgresOptions) -> Result<Self, ServerError> {
        let bin = find::postgres_bin(&SearchPaths::of_this_process()).await?;
        let place = Place::of(&options.data)?;
        if place.abandoned {
            clear_abandoned(&place).await?;
        }
        let password = cluster::open_or_create(&bin, &place, options.fsync).await?;
        let repeat_until = Instant::now() + REPEAT_MAX;
        loop {
            let port = match options.port {
                Some(port) => port,
                None => free_ports(1)?[0],
            };
            let mut command = serve(&bin, &place, port, options.fsync);
            command.envs(options.variables.iter().cloned());
            let log = options.log.clone();
            let launch = Launch {
                name: "postgres".into(),
                command,
                log,
                ending: ENDING,
                parent_pipe: false,
            };
            let mut process = Process::spawn(launch)?;
            match open(&mut process, &login(port, &password)).await {
                Ok(()) => {
                    let url = format!("postgres://{NAME}:{password}@127.0.0.1:{port}/{NAME}");
                    return Ok(Self {
                        process,
                        port,
                        url,
                        note: place.note,
                    });
                }
                Err(ServerError::Ended { .. })
                    if passes(&process, options.port.is_none())
                        && Instant::now() < repeat_until =>
                {
                    sleep(POLL * 5).await;
                }
                Err(problem) => return Err(problem),
            }
        }
    }

    /// The address of its database, with the password.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// The port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The postmaster's process id.
    pub const fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// A note for the person: the cluster is elsewhere.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Shuts it down: open transactions are rolled back, at most 10 s, then SIGKILL of the postmaster.
    pub async fn stop(mut self) -> Stopped {
        self.process.stop(&CancellationToken::new()).await
    }

    /// The process alone, for an owner that keeps it alive.
    pub fn into_process(self) -> Process {
        self.process
    }

    /// Ends a Postgres that runs on this data folder and whose owner is gone; returns its pid, if there was one.
    ///
    /// # Errors
    ///
    /// It does not end, or the folder cannot be looked at.
    pub async fn end_orphan(data: &Path) -> Result<Option<u32>, ServerError> {
        let folder = fs::canonicalize(data).unwrap_or_else(|_| data.to_path_buf());
        end_orphan_on(&folder).await
    }
}

fn serve(bin: &Path, place: &Place, port: u16, fsync: bool) -> Command {
    let mut command = cluster::program(&bin.join("postgres"), place, &place.folder);
    command.arg("-D").arg(&place.folder);
    let switch = if fsync { "on" } else { "off" };
    let settings = [
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
        // A socket's path has at most about 100 bytes; TCP has no such limit.
        "unix_socket_directories=".to_owned(),
        "shared_buffers=128MB".to_owned(),
        "max_connections=200".to_owned(),
        format!("fsync={switch}"),
        "synchronous_commit=on".to_owned(),
        "logging_collector=off".to_owned(),
        "log_destination=stderr".to_owned(),
        "timezone=UTC".to_owned(),
        "log_timezone=UTC".to_owned(),
    ];
    for setting in settings {
        command.arg("-c").arg(setting);
    }
    command
}

fn login(port: u16, password: &str) -> PgConnectOptions {
    let options = PgConnectOptions::new_without_pgpass()
        .host("127.0.0.1")
        .port(port);
    options
        .username(NAME)
        .password(password)
        .database("postgres")
        .disable_statement_logging()
}

/// Waits for the first answer, then makes sure that the database is there.
async fn open(process: &mut Process, login: &PgConnectOptions) -> Result<(), ServerError> {
    let began = Instant::now();
    let mut refused_since = None;
    let mut connection = loop {
        if let Some(status) = process
            .ended()
            .map_err(ServerError::prepare("look after postgres"))?
        {
            return Err(process.ended_early(status));
        }
        let last = match timeout(Duration::from_secs(2), first_answer(login)).await {
            Ok(Ok(connection)) => break connection,
            Ok(Err(problem)) if is_refused_login(&problem) => {
                let since = *refused_since.get_or_insert_with(Instant::now);
                if since.elapsed() > STRANGER_MAX {
                    return Err(ServerError::Database {
                        doing: "log in with the cluster's password",
                        source: problem,
                    });
                }
                problem.to_string()
            }
            Ok(Err(problem)) => problem.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        if began.elapsed() > START_MAX {
            return Err(process.silent(START_MAX, last));
        }
        sleep(POLL).await;
    };
    let created = timeout(START_MAX, create_database(&mut connection)).await;
    let created = created.unwrap_or_else(|_| Err(sqlx::Error::Io(io::ErrorKind::TimedOut.into())));
    created.map_err(|source| ServerError::Database {
        doing: "create the database toolfleet",
        source,
    })
}

async fn first_answer(login: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let mut connection = PgConnection::connect_with(login).await?;
    connection.execute("SELECT 1").await?;
    Ok(connection)
}

async fn create_database(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let named = format!("SELECT 1 FROM pg_database WHERE datname = '{NAME}'");
    // Both statements are made of a constant.
    if connection
        .fetch_optional(AssertSqlSafe(named))
        .await?
        .is_none()
    {
        connection
            .execute(AssertSqlSafe(format!("CREATE DATABASE {NAME}")))
            .await?;
    }
    Ok(())
}

/// Whether a failure passes in a moment: the last backends of a killed server; a port taken between look and use.
fn passes(process: &Process, port_is_ours_to_choose: bool) -> bool {
    process.has_logged("pre-existing shared memory block")
        || (port_is_ours_to_choose && process.has_logged("could not bind"))
}

fn is_refused_login(problem: &sqlx::Error) -> bool {
    problem
        .as_database_error()
        .and_then(|error| error.code())
        .is_some_and(|code| code.starts_with("28"))
}

async fn end_orphan_on(folder: &Path) -> Result<Option<u32>, ServerError> {
    let Ok(lock) = fs::read_to_string(folder.join("postmaster.pid")) else {
        return Ok(None);
    };
    let Some(pid) = lock
        .lines()
        .next()
        .and_then(|line| line.trim().parse().ok())
    else {
        return Ok(None);
    };
    let value = folder.to_string_lossy().into_owned();
    let is_ours = |pid| process::runs_as(pid, "postgres", "-D", &value);
    if !is_ours(pid) {
        return Ok(None);
    }
    if process::end_orphan(pid, ENDING, is_ours).await {
        return Ok(Some(pid));
    }
    Err(ServerError::Data(format!(
        "a Postgres (pid {pid}) runs on {value} and does not end: end it by hand"
    )))
}

/// The person removed the data folder, and with it the link: the cluster that it pointed to is removed too.
async fn clear_abandoned(place: &Place) -> Result<(), ServerError> {
    end_orphan_on(&place.folder).await?;
    cluster::remove_folder(&place.folder)
}

//! The two servers: killed, restarted, stopped, and given back less than they had.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use fleet::store::rights::Duty;
use fleet_tests::{
    postgres::{Cluster, Database},
    run_folder::RunFolder,
};
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep};
use toolfleet::servers::nats::{MAX_PAYLOAD, Nats, NatsOptions};

use super::{
    clock::{Clock, Library},
    seat::signal,
};
use crate::{
    login::{self, Login, Who},
    plan::Server,
    seed::below,
};

/// How long a server may take to be gone after it was killed.
const DEATH_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(5);

/// What becomes of what nats-server keeps, while it is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Nothing.
    All,
    /// It is gone.
    Nothing,
    /// It is what it was when it was down the last time.
    Older,
    /// One byte of it is another; which is drawn with this number.
    Spoilt(u64),
}

/// Postgres and nats-server.
#[derive(Debug)]
pub struct Servers {
    /// Postgres.
    pub cluster: Cluster,
    /// What Postgres takes for the time of day.
    pub clock: Clock,
    /// The fleet's database in it.
    pub database: Database,
    /// What makes clocks movable.
    pub library: Library,
    /// What nats-server is told of its users.
    users: String,
    nats: Option<Nats>,
    nats_port: u16,
    folder: RunFolder,
    resumes: Vec<(Instant, Server)>,
}

impl Servers {
    /// Starts both; nats-server with the users that this program writes, if one is named.
    ///
    /// # Errors
    ///
    /// One does not start.
    pub async fn start(toolfleet: Option<&Path>) -> Result<Self> {
        let folder = RunFolder::create().context("a folder for nats-server")?;
        let library = Library::compile(folder.path())?;
        let clock = Clock::new(&library, folder.path(), "postgres")?;
        let cluster = Cluster::alone_with(true, clock.variables().into()).await;
        let database = cluster.database().await;
        let users = match toolfleet {
            Some(toolfleet) => login::write(toolfleet, folder.path()).await?,
            None => String::new(),
        };
        let nats = start_nats(&folder, None, &users).await?;
        Ok(Self {
            users,
            nats_port: nats.port(),
            nats: Some(nats),
            cluster,
            database,
            clock,
            library,
            folder,
            resumes: Vec::new(),
        })
    }

    /// Whether every call has come to an end or is in doubt; not while Postgres is away.
    pub async fn is_all_decided(&self) -> bool {
        let undecided = "SELECT count(*) FROM toolfleet.open_calls WHERE state <> 'in_doubt'";
        let left = sqlx::query_scalar::<_, i64>(undecided).fetch_one(&self.database.pool);
        left.await.is_ok_and(|left| left == 0)
    }

    /// Where nats-server listens, past every wire.
    pub const fn nats_port(&self) -> u16 {
        self.nats_port
    }

    /// How one of them reaches nats-server past every wire.
    ///
    /// # Errors
    ///
    /// There are users, but not this one.
    pub fn login(&self, who: Who) -> Result<Login> {
        who.login(self.folder.path(), self.nats_port)
    }

    /// How an operator reaches Postgres past every wire.
    pub fn ledger_of_operator(&self, roles: bool) -> String {
        if roles {
            self.database.url_of(Duty::Operator.role())
        } else {
            self.database.url.clone()
        }
    }

    /// The servers' logs, and under which names they are kept.
    pub fn logs(&self) -> [(PathBuf, &'static str); 2] {
        [
            (self.cluster.log(), "postgres.log"),
            (self.folder.path().join("nats.log"), "nats.log"),
        ]
    }

    /// A folder that goes with the run.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends a server, in order or not, and starts it again.
    ///
    /// # Errors
    ///
    /// It does not come back.
    pub async fn bounce(&mut self, server: Server, in_order: bool) -> Result<()> {
        self.resume(server);
        match server {
            Server::Nats => self.bounce_nats(in_order, Keep::All).await,
            Server::Postgres => {
                if in_order {
                    self.cluster.stop().await;
                } else {
                    self.cluster.kill().await;
                }
                self.cluster.start().await;
                Ok(())
            }
        }
    }

    /// Ends nats-server, does something to what it keeps, and starts it again.
    ///
    /// # Errors
    ///
    /// It does not come back, or its files cannot be reached.
    pub async fn bounce_nats(&mut self, in_order: bool, keep: Keep) -> Result<()> {
        self.resume(Server::Nats);
        let nats = self.nats.take().context("nats-server runs")?;
        let pid = nats.pid();
        if !in_order {
            signal(pid, Signal::SIGKILL);
        }
        nats.stop().await;
        self.change(keep)?;
        self.nats = Some(start_nats(&self.folder, Some(self.nats_port), &self.users).await?);
        Ok(())
    }

    fn change(&self, keep: Keep) -> Result<()> {
        let kept = self.folder.path().join("store").join("jetstream");
        let older = self.folder.path().join("older");
        match keep {
            Keep::All => {}
            Keep::Nothing => remove(&kept)?,
            Keep::Older if older.exists() => {
                remove(&kept)?;
                return copy(&older, &kept);
            }
            // There is none yet: this one is, the next time.
            Keep::Older => {}
            Keep::Spoilt(drawn) => spoil(&kept, drawn)?,
        }
        if kept.exists() {
            remove(&older)?;
            copy(&kept, &older)?;
        }
        Ok(())
    }

    /// Stops a server for a while.
    ///
    /// # Errors
    ///
    /// It does not run.
    pub fn pause(&mut self, server: Server, pause: Duration) -> Result<()> {
        self.signal(server, Signal::SIGSTOP)?;
        self.resumes.push((Instant::now() + pause, server));
        Ok(())
    }

    /// Lets a server that was stopped go on if its time has come.
    pub fn resume_if_due(&mut self) {
        let now = Instant::now();
        let due: Vec<Server> = self
            .resumes
            .iter()
            .filter(|(at, _)| *at <= now)
            .map(|(_, server)| *server)
            .collect();
        for server in due {
            self.resume(server);
        }
    }

    /// Lets a server that was stopped go on.
    pub fn resume(&mut self, server: Server) {
        if self.resumes.iter().any(|(_, stopped)| *stopped == server) {
            self.resumes.retain(|(_, stopped)| *stopped != server);
            drop(self.signal(server, Signal::SIGCONT));
        }
    }

    fn signal(&self, server: Server, which: Signal) -> Result<()> {
        match server {
            Server::Nats => signal(self.nats.as_ref().context("nats-server runs")?.pid(), which),
            Server::Postgres => {
                let first = self.cluster.pid().context("Postgres runs")?;
                signal(first, which);
                for child in children_of(first) {
                    signal(child, which);
                }
            }
        }
        Ok(())
    }

    /// Kills both.
    pub async fn end(mut self) {
        self.resume(Server::Postgres);
        self.resume(Server::Nats);
        if let Some(nats) = self.nats.take() {
            nats.stop().await;
        }
        self.cluster.stop().await;
    }
}

async fn start_nats(folder: &RunFolder, port: Option<u16>, users: &str) -> Result<Nats> {
    let options = || NatsOptions {
        store: folder.path().join("store"),
        port,
        log: folder.path().join("nats.log"),
        max_payload: MAX_PAYLOAD,
        password: None,
        further: users.to_owned(),
    };
    let began = Instant::now();
    loop {
        match Nats::start(options()).await {
            Ok(nats) => return Ok(nats),
            // The old one's port is not free in the moment in which it dies.
            Err(_) if port.is_some() && began.elapsed() < DEATH_MAX => sleep(POLL).await,
            Err(problem) => return Err(problem).context("start nats-server"),
        }
    }
}

/// The processes that a process has started.
fn children_of(parent: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("remove {}", folder.display()))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    let copied = copied.context("start cp")?;
    ensure!(copied.success(), "copy {}", from.display());
    Ok(())
}

/// Changes one byte in the middle of a file of messages.
fn spoil(kept: &Path, drawn: u64) -> Result<()> {
    let mut blocks = Vec::new();
    find_blocks(kept, &mut blocks)?;
    blocks.sort();
    let Some(count) = u64::try_from(blocks.len()).ok().filter(|count| *count > 0) else {
        return Ok(());
    };
    let chosen = usize::try_from(below(drawn, 0, "block", count))?;
    let block = &blocks[chosen];
    let mut bytes = fs::read(block).with_context(|| format!("read {}", block.display()))?;
    let length = u64::try_from(bytes.len())?;
    if length > 0 {
        let place = usize::try_from(below(drawn, 0, "byte", length))?;
        bytes[place] ^= 0x10;
        fs::write(block, bytes).with_context(|| format!("write {}", block.display()))?;
    }
    Ok(())
}

fn find_blocks(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            find_blocks(&path, found)?;
        } else if path.extension().is_some_and(|kind| kind == "blk") {
            found.push(path);
        }
    }
    if found.len() > 10_000 {
        bail!("{} has too many files", folder.display());
    }
    Ok(())
}

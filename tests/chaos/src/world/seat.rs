//! The place of one process of the fleet: its wires, which stay, and the processes that sit there one after the other.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use anyhow::{Context, Result};
use fleet::checkpoint::{self, Checkpoint};
use fleet_tests::process::get;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::Command,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use toolfleet::servers::process::{Ending, Launch, Process};

use super::clock::Clock;
use crate::{
    plan::Member,
    wire::{nats, postgres},
};

/// How a process is asked to leave: longer than its drain may take.
const ENDING: Ending = Ending {
    ask: Signal::SIGTERM,
    grace: Duration::from_secs(30),
    at_once: Signal::SIGKILL,
};
/// How long a running process may take to tell its metrics.
const SCRAPE_MAX: Duration = Duration::from_millis(300);

/// A place where processes of one kind sit, one at a time.
#[derive(Debug)]
pub struct Seat {
    /// Which.
    pub member: Member,
    /// Between its processes and Postgres.
    pub postgres: postgres::Wire,
    /// Between its processes and NATS.
    pub nats: nats::Wire,
    /// What every process that sits here is started with.
    pub program: Program,
    /// What its processes take for the time of day.
    pub clock: Clock,
    armed: Vec<Arming>,
    process: Option<Process>,
    starts: u32,
    resumes_at: Option<Instant>,
    /// The metrics of its processes as they were last told, by start.
    metrics: BTreeMap<u32, String>,
}

/// What is started.
#[derive(Debug, Clone)]
pub struct Program {
    /// The file.
    pub file: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its variables.
    pub variables: Vec<(String, String)>,
    /// Where its log is kept.
    pub logs: PathBuf,
}

/// A process that ends or stops at a place.
#[derive(Debug, Clone, Copy)]
pub struct Arming {
    /// The so-manieth process, from 1.
    pub start: u32,
    /// The place.
    pub at: Checkpoint,
    /// The so-manieth time.
    pub times: u32,
    /// It stops for so long; otherwise it ends.
    pub pause: Option<Duration>,
}

/// How a process was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// At work.
    Running,
    /// At a place where it was to end.
    EndedAtCheckpoint,
    /// Gone, without our doing, in this way.
    EndedByItself(ExitStatus),
    /// At a place where it was to stop, for so long.
    StoppedAtCheckpoint(Duration),
}

impl Seat {
    /// A seat without a process yet.
    pub const fn new(
        member: Member,
        postgres: postgres::Wire,
        nats: nats::Wire,
        program: Program,
        clock: Clock,
        armed: Vec<Arming>,
    ) -> Self {
        Self {
            member,
            postgres,
            nats,
            program,
            clock,
            armed,
            process: None,
            starts: 0,
            resumes_at: None,
            metrics: BTreeMap::new(),
        }
    }

    /// Starts the next process. It is not ready yet.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start(&mut self) -> Result<()> {
        self.starts += 1;
        let name = self.name();
        let Program {
            file,
            args,
            variables,
            logs,
        } = &self.program;
        let mut command = Command::new(file);
        command
            .args(args)
            .args(["--name", &name])
            .envs(variables.iter().cloned());
        if let Some(armed) = self.arming() {
            let stops = if armed.pause.is_some() { ":stop" } else { "" };
            let value = format!("{}:{}{stops}", armed.at, armed.times);
            command.env(checkpoint::VARIABLE, value);
        }
        let process = Process::spawn(Launch {
            log: logs.join(format!("{name}.log")),
            name,
            command,
            ending: ENDING,
            parent_pipe: true,
        });
        self.process = Some(process.context("start a process of the fleet")?);
        self.resumes_at = None;
        Ok(())
    }

    /// How its process is. One that is gone has left the seat.
    ///
    /// # Errors
    ///
    /// The kernel does not know the child.
    pub fn look(&mut self) -> Result<Found> {
        let armed = self.arming();
        let log = self.log();
        let Some(process) = &mut self.process else {
            return Ok(Found::Running);
        };
        if let Some(status) = process.ended().context("look after a child")? {
            self.process = None;
            let at_checkpoint = fs::read_to_string(log).is_ok_and(|log| {
                log.lines()
                    .any(|line| line.starts_with("stopped at checkpoint"))
            });
            return Ok(if at_checkpoint {
                Found::EndedAtCheckpoint
            } else {
                Found::EndedByItself(status)
            });
        }
        let stopped = self.resumes_at.is_none() && is_stopped(process.pid());
        if let Some(pause) = armed.and_then(|armed| armed.pause)
            && stopped
        {
            self.resumes_at = Some(Instant::now() + pause);
            return Ok(Found::StoppedAtCheckpoint(pause));
        }
        if stopped {
            // It stopped where it was to, and it is not to stop any more.
            self.resume();
        }
        Ok(Found::Running)
    }

    /// Whether a process sits here.
    pub const fn is_taken(&self) -> bool {
        self.process.is_some()
    }

    /// The process id, while there is one.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// What the process that sits here, or sat here last, is called.
    pub fn name(&self) -> String {
        format!("{}-{}", self.member, self.starts)
    }

    /// Kills the process, if there is one, and waits until it is gone.
    pub async fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let hurry = CancellationToken::new();
            hurry.cancel();
            process.stop(&hurry).await;
        }
    }

    /// Asks the process to leave, and waits until it has. Returns whether it did by itself.
    ///
    /// # Errors
    ///
    /// The kernel does not know the child.
    pub async fn leave(&mut self) -> Result<bool> {
        self.resume();
        let Some(mut process) = self.process.take() else {
            return Ok(true);
        };
        signal(process.pid(), Signal::SIGTERM);
        let left = timeout(ENDING.grace, process.wait()).await;
        Ok(left.is_ok_and(|ended| ended.is_ok_and(|status| status.success())))
    }

    /// Stops the process for a while.
    pub fn pause(&mut self, pause: Duration) {
        if let Some(process) = &self.process {
            signal(process.pid(), Signal::SIGSTOP);
            let until = Instant::now() + pause;
            self.resumes_at = Some(self.resumes_at.map_or(until, |before| before.max(until)));
        }
    }

    /// Lets a process that was stopped go on if its time has come.
    pub fn resume_if_due(&mut self) {
        if self.resumes_at.is_some_and(|at| at <= Instant::now()) {
            self.resume();
        }
    }

    /// Lets a process that was stopped go on.
    pub fn resume(&mut self) {
        self.resumes_at = None;
        if let Some(process) = &self.process {
            signal(process.pid(), Signal::SIGCONT);
        }
    }

    /// No process that is started from now on ends or stops by itself.
    pub fn disarm(&mut self) {
        self.armed.clear();
    }

    /// What the process that sits here answers to a GET.
    pub async fn get(&self, path: &str) -> Option<(u16, String)> {
        let address = address(&self.log())?;
        timeout(SCRAPE_MAX, get(address, path)).await.ok()?
    }

    /// Remembers the metrics of the process that sits here, if it tells them.
    pub async fn scrape(&mut self) {
        if self.process.is_some()
            && let Some((200, text)) = self.get("/metrics").await
        {
            self.metrics.insert(self.starts, text);
        }
    }

    /// The last metrics of each process that ever sat here.
    pub fn metrics(&self) -> impl Iterator<Item = &String> {
        self.metrics.values()
    }

    fn arming(&self) -> Option<Arming> {
        let mut armed = self.armed.iter();
        armed.find(|armed| armed.start == self.starts).copied()
    }

    fn log(&self) -> PathBuf {
        self.program.logs.join(format!("{}.log", self.name()))
    }
}

/// Sends a signal to a child of ours; one that is gone does not hear it.
pub fn signal(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        kill(Pid::from_raw(pid), signal).ok();
    }
}

/// Whether the kernel has stopped the process.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name before it may have anything in it, but no parenthesis after its own.
    let state = stat.rsplit_once(") ").map_or("", |(_, state)| state);
    state.starts_with('T')
}

/// Where a process listens, once it has said so.
fn address(log: &Path) -> Option<SocketAddr> {
    let log = fs::read_to_string(log).ok()?;
    let (_, after) = log.split_once("listening address=")?;
    after.split_whitespace().next()?.parse().ok()
}

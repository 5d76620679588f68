//! A dispatcher or a worker as it is in production: a process of its own, which the kernel can end in the middle of a step.
//!
//! It joins a [`Fleet`], whose other parts run inside the test and live on. Dropping it kills it, and its standard input
//! is a pipe of ours: it does not outlive the test however that ends.

use std::{
    fs,
    net::SocketAddr,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use fleet::{
    checkpoint::{self, Checkpoint},
    store::workers,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, gethostname},
};
use tokio::{process::Command, time::timeout};
use tokio_util::sync::CancellationToken;
use toolfleet::servers::process::{self, Ending, Launch};

use crate::{
    fleet::{Fleet, built},
    process::get,
    shipped::User,
    wait::until_so,
};

/// Longer than a silent worker's lease.
const DEATH_MAX: Duration = Duration::from_secs(60);
const ENDING: Ending = Ending {
    ask: Signal::SIGTERM,
    grace: Duration::from_secs(10),
    at_once: Signal::SIGKILL,
};

/// The process.
#[derive(Debug)]
pub struct Real {
    process: process::Process,
    log: PathBuf,
}

/// Where a process ends by itself.
#[derive(Debug, Clone, Copy)]
pub struct Armed {
    /// The gap.
    pub at: Checkpoint,
    /// The how-manieth time it gets there, from 1.
    pub times: u32,
}

impl Fleet {
    /// Starts a dispatcher in a process of its own. It is not ready yet.
    ///
    /// # Panics
    ///
    /// It does not start.
    pub fn real_dispatcher(&self, name: &str, flags: &[&str], armed: Option<Armed>) -> Real {
        self.start_real("dispatcher", name, flags, armed)
    }

    /// Starts a worker in a process of its own. It is not ready yet.
    ///
    /// # Panics
    ///
    /// It does not start.
    pub fn real_worker(&self, name: &str, flags: &[&str], armed: Option<Armed>) -> Real {
        self.start_real("worker", name, flags, armed)
    }

    /// Says what a supervisor would say: the worker in this process has ended.
    ///
    /// # Panics
    ///
    /// It runs, or the ledger knows no such worker.
    pub async fn report_death(&self, worker: &mut Real) {
        let ended = worker.process.ended().expect("it is our child");
        assert!(ended.is_some(), "{} runs", worker.process.name());
        let host = gethostname().expect("the machine has a name");
        let host = host.to_string_lossy();
        let pid = i32::try_from(worker.pid()).expect("a pid is small");
        let mut connection = self.database.connect().await;
        let reported = workers::report_death(&mut connection, &host, pid, "fleet-tests");
        let known = reported.await.expect("report a death");
        assert!(known, "the ledger does not know {}", worker.process.name());
    }

    /// Starts the worker of the example in a process of its own. It is not ready yet.
    ///
    /// # Panics
    ///
    /// It does not start.
    pub fn real_native_worker(&self, name: &str, flags: &[&str]) -> Real {
        let command = Command::new(built("fleet_tests_native"));
        self.start_program(command, "worker", name, flags, None)
    }

    fn start_real(&self, role: &str, name: &str, flags: &[&str], armed: Option<Armed>) -> Real {
        let mut command = Command::new(built("fleet_tests_toolfleet"));
        command.arg(role);
        self.start_program(command, role, name, flags, armed)
    }

    /// Starts a program that is a dispatcher or a worker in a process of its own. It is not ready yet.
    ///
    /// # Panics
    ///
    /// It does not start.
    pub fn start_program(
        &self,
        mut command: Command,
        role: &str,
        name: &str,
        flags: &[&str],
        armed: Option<Armed>,
    ) -> Real {
        let user = if role == "worker" {
            User::Worker
        } else {
            User::Dispatcher
        };
        let login = self.login(user, self.nats_port());
        command
            .args(["--parent-pipe", "--name", name])
            .args(["--http", "127.0.0.1:0", "--log", "info"])
            .args(flags)
            .env("DATABASE_URL", &self.database.url)
            .env("NATS_URL", &login[1])
            .env("NATS_INBOX", &login[3]);
        if role == "worker" {
            command.env("WORKER_TOOL_DATABASE_URL", self.database.tool_url());
            // A folder of its own: a neighbour would fence it before the test says that it died.
            command
                .arg("--state-dir")
                .arg(self.folder().join(format!("state of {name}")));
        }
        if let Some(Armed { at, times }) = armed {
            command.env(checkpoint::VARIABLE, format!("{at}:{times}"));
        }
        let log = self.folder().join(format!("{name}.log"));
        let process = process::Process::spawn(Launch {
            name: name.to_owned(),
            command,
            log: log.clone(),
            ending: ENDING,
            parent_pipe: true,
        });
        Real {
            process: process.expect("start a process of the fleet"),
            log,
        }
    }
}

impl Real {
    /// Its process id.
    pub const fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Waits until `/readyz` says so.
    ///
    /// # Panics
    ///
    /// It ends, or is not ready in time; the message quotes its log.
    pub async fn ready(&mut self) {
        let what = format!("{} to be ready", self.process.name());
        until_so(&what, async || {
            if let Some(status) = self.process.ended().expect("it is our child") {
                panic!("{}", self.story(status));
            }
            match address(&self.log) {
                Some(address) => matches!(get(address, "/readyz").await, Some((200, _))),
                None => false,
            }
        })
        .await;
    }

    /// What it has logged so far.
    ///
    /// # Panics
    ///
    /// Its log cannot be read.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("read its log")
    }

    /// A counter or a gauge of its metrics; 0 while it has no value.
    ///
    /// # Panics
    ///
    /// It does not answer.
    pub async fn counter(&self, series: &str) -> u64 {
        let address = address(&self.log).expect("it listens");
        let (_status, text) = get(address, "/metrics").await.expect("it answers");
        let value = text.lines().find_map(|line| line.strip_prefix(series));
        value.map_or(0, |value| value.trim().parse().expect("a whole number"))
    }

    /// Waits until it has ended at this checkpoint, and by itself.
    ///
    /// # Panics
    ///
    /// It never got there, or ended otherwise; the message quotes its log.
    pub async fn until_stopped_at(&mut self, point: Checkpoint) {
        let name = self.process.name().to_owned();
        let Ok(ended) = timeout(DEATH_MAX, self.process.wait()).await else {
            let tail = self.process.log_tail();
            panic!("{name} did not get to checkpoint {point} in {DEATH_MAX:?}:\n{tail}");
        };
        let status = ended.expect("it is our child");
        let killed = status.signal() == Some(Signal::SIGKILL as i32);
        let said = format!("stopped at checkpoint {point}");
        let log = self.log();
        let by_itself = log.lines().any(|line| line == said);
        assert!(killed && by_itself, "{}", self.story(status));
    }

    /// Sends it SIGTERM, and waits until it has ended.
    ///
    /// # Panics
    ///
    /// It does not end; the message quotes its log.
    pub async fn terminate(&mut self) -> ExitStatus {
        let pid = i32::try_from(self.pid()).expect("a pid is small");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("it is our child");
        let Ok(ended) = timeout(DEATH_MAX, self.process.wait()).await else {
            panic!("it does not end:\n{}", self.process.log_tail());
        };
        ended.expect("it is our child")
    }

    /// Kills it, and waits until it is gone.
    ///
    /// # Panics
    ///
    /// It does not go.
    pub async fn kill(mut self) {
        self.end().await;
    }

    /// The same, for one whose death is to be reported.
    ///
    /// # Panics
    ///
    /// It does not go.
    pub async fn end(&mut self) {
        let hurry = CancellationToken::new();
        hurry.cancel();
        self.process.stop(&hurry).await;
        let ended = self.process.ended().expect("it is our child");
        assert!(ended.is_some(), "{} is not gone", self.process.name());
    }

    fn story(&self, status: ExitStatus) -> String {
        let (name, how) = (self.process.name(), process::describe(status));
        format!("{name} ended with {how}:\n{}", self.process.log_tail())
    }
}

/// Where it listens, once it has said so.
fn address(log: &Path) -> Option<SocketAddr> {
    let log = fs::read_to_string(log).ok()?;
    let (_, after) = log.split_once("listening address=")?;
    after.split_whitespace().next()?.parse().ok()
}

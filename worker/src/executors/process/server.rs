//! A program that serves many attempts: under a guard like any other, with a standard input that stays open.

use std::{
    collections::BTreeMap,
    io,
    os::{
        fd::{OwnedFd, RawFd},
        unix::net,
    },
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use fleet::{fencing::WorkerLock, ids::AttemptId};
use nix::{sys::stat::Mode, unistd::mkfifo};
use secrecy::SecretString;
use tokio::{
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf, pipe},
    },
    process::{Child, Command},
    time::{Instant, timeout_at},
};

use super::{
    environment,
    program::GuardCommand,
    run::{GUARD_MAX, Pipe, bury, read_report, write_some},
    verdict::{STDERR_MAX, printable},
};
use crate::guard::{self, Ending, GuardReport, Registered, Start, Tmp};

/// The most bytes of one read.
const READ_MAX: usize = 64 * 1024;
/// How long a guard may take to say why the output of its program has ended.
const REPORT_WAIT_MAX: Duration = Duration::from_millis(200);

/// A program that serves, its guard, and the ends of its pipes. Dropping it releases the leash, and the guard then ends the tree by
/// itself.
pub(in crate::executors) struct ServingProgram {
    guard: Child,
    registered: Registered,
    reports: OwnedReadHalf,
    leash: Option<OwnedWriteHalf>,
    report: Vec<u8>,
    stdout: Pipe,
    stderr: Pipe,
    /// When its output was seen to have ended.
    silent_at: Option<Instant>,
    /// What of the order the guard has not read.
    unsent: Vec<u8>,
    /// Marks its processes; no attempt has it.
    id: AttemptId,
    lock: Arc<WorkerLock>,
    /// Where its standard input is.
    _folder: Tmp,
}

/// What a program that serves has come to.
pub(in crate::executors) enum Served {
    /// It wrote this.
    Wrote(Vec<u8>),
    /// It wrote something on its standard error.
    Complained,
    /// It has ended, its guard has, or it can say nothing any more, for it has closed its output.
    Ended(ServedEnd),
}

/// How a program that serves has ended.
#[derive(Debug, Clone, Default)]
pub(in crate::executors) struct ServedEnd {
    /// Why it was never started, where it was not.
    pub(in crate::executors) why: Option<String>,
    /// `None`: its guard did not say.
    pub(in crate::executors) ending: Option<Ending>,
}

impl ServingProgram {
    /// Starts it, and opens its standard input for writing. Only the guard is there when this returns.
    ///
    /// # Errors
    ///
    /// No guard can be started, or no pipe made.
    pub(in crate::executors) fn start(
        with: &GuardCommand,
        command: &[String],
        env: &BTreeMap<String, SecretString>,
    ) -> io::Result<(Self, pipe::Sender)> {
        let empty = || io::Error::new(io::ErrorKind::InvalidInput, "its command is empty");
        let (program, args) = command.split_first().ok_or_else(empty)?;
        let folder = Tmp::make("toolfleet-stdin")?;
        let fifo: PathBuf = folder.path().join("stdin");
        mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR)?;
        // Also for reading: opening it waits for nobody, and writing never raises a signal.
        let stdin = pipe::OpenOptions::new()
            .read_write(true)
            .open_sender(&fifo)?;
        let id = AttemptId::generate();
        let start = Start {
            program: program.clone(),
            args: args.to_vec(),
            cwd: None,
            sandbox: None,
            fifo: None,
            files: None,
            stdin: Some((folder.path().to_owned(), fifo)),
            attempt: id,
            input_bytes: 0,
        };
        let too_large = || io::Error::new(io::ErrorKind::InvalidInput, "its command is too large");
        let unsent = guard::encode(&start, b"").ok_or_else(too_large)?;
        let (ours, theirs) = net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (stdout, stdout_writer) = Pipe::new()?;
        let (stderr, stderr_writer) = Pipe::new()?;
        let (reports, leash) = UnixStream::from_std(ours)?.into_split();
        let mut command = Command::new(&with.program);
        command.args(&with.args);
        command
            .stdin(OwnedFd::from(theirs))
            .stdout(stdout_writer)
            .stderr(stderr_writer);
        environment::set_shared(&mut command, &with.inherited, env, id);
        let spawn = |descriptor: RawFd| command.arg(descriptor.to_string()).spawn();
        let (guard, registered) = guard::register(|| with.lock.lend(spawn), Child::id)?;
        let started = Self {
            guard,
            registered,
            reports,
            leash: Some(leash),
            report: Vec::new(),
            stdout,
            stderr,
            silent_at: None,
            unsent,
            id,
            lock: Arc::clone(&with.lock),
            _folder: folder,
        };
        Ok((started, stdin))
    }

    /// What it writes or comes to next. Of what it writes on its standard error the end is kept. Cancel-safe.
    pub(in crate::executors) async fn next(&mut self) -> Served {
        loop {
            if !self.stdout.read.is_empty() {
                return Served::Wrote(std::mem::take(&mut self.stdout.read));
            }
            tokio::select! {
                sent = write_some(&mut self.leash, &self.unsent), if !self.unsent.is_empty() => {
                    // A guard that does not read is lost; the end of file on its socket shows it.
                    let sent = sent.unwrap_or(self.unsent.len());
                    self.unsent.drain(..sent);
                }
                served = served(&mut self.reports, &mut self.report, &mut self.stdout, &mut self.silent_at) => return served,
                () = self.stderr.fill_tail() => return Served::Complained,
            }
        }
    }

    /// The end of what it has written on its standard error, without characters that harm a terminal or Postgres.
    pub(in crate::executors) fn complaints(&self) -> String {
        let read = &self.stderr.read;
        printable(&read[read.len().saturating_sub(STDERR_MAX)..])
    }

    /// The same, to its last byte: nothing is read of it after this.
    pub(in crate::executors) fn last_words(&mut self) -> String {
        printable(&self.stderr.last())
    }

    /// Ends it, and waits until none of its processes is left; false if one may be.
    pub(in crate::executors) async fn end(mut self) -> bool {
        self.leash = None;
        let give_up_at = Instant::now() + GUARD_MAX;
        let all_gone = bury(self.guard, self.registered, &self.lock, self.id, give_up_at).await;
        if !all_gone {
            let id = self.id;
            tracing::error!(%id, "processes of an MCP server outlived it; the worker goes on ending them: if they stay, look for this id in their environment");
        }
        all_gone
    }
}

/// What it wrote before it ended comes first. Cancel-safe.
async fn served(
    reports: &mut OwnedReadHalf,
    report: &mut Vec<u8>,
    stdout: &mut Pipe,
    silent_at: &mut Option<Instant>,
) -> Served {
    while !stdout.has_ended() {
        tokio::select! {
            biased;
            () = stdout.fill(READ_MAX) => if !stdout.read.is_empty() {
                return Served::Wrote(std::mem::take(&mut stdout.read));
            },
            report = read_report(reports, report) => return ended(report),
        }
    }
    let since = *silent_at.get_or_insert_with(Instant::now);
    let report = timeout_at(since + REPORT_WAIT_MAX, read_report(reports, report)).await;
    ended(report.unwrap_or(None))
}

fn ended(report: Option<GuardReport>) -> Served {
    let (why, ending) = match report {
        Some(GuardReport::NotStarted(not_started)) => (Some(not_started.why), None),
        Some(GuardReport::Exited(ending)) => (None, Some(ending)),
        Some(GuardReport::Exceeded(_)) | None => (None, None),
    };
    Served::Ended(ServedEnd { why, ending })
}

//! A process that this one started and owns: its log, its end; and the end of processes whose owner is gone.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::{fs::OpenOptionsExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::{Child, ChildStdin, Command},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::error::ServerError;

/// How a process is asked to end.
#[derive(Debug, Clone, Copy)]
pub struct Ending {
    /// The polite signal.
    pub ask: Signal,
    /// How long it may take after that; then SIGKILL.
    pub grace: Duration,
    /// The signal when there is no time: on drop, and when the person hurries.
    pub at_once: Signal,
}

/// How long a process may take after `Ending::at_once` before SIGKILL.
const AT_ONCE_GRACE: Duration = Duration::from_secs(2);

/// The options of a start.
#[derive(Debug)]
pub struct Launch {
    /// Its name for people: `postgres`, `dev-worker-1`.
    pub name: String,
    /// The program and its arguments.
    pub command: Command,
    /// Standard output and error are appended here.
    pub log: PathBuf,
    /// How it is asked to end.
    pub ending: Ending,
    /// Whether its standard input is a pipe that closes when this process dies, however it dies.
    pub parent_pipe: bool,
}

/// A running process. Dropping it signals `Ending::at_once` and does not wait.
///
/// It has its own process group: the terminal's Ctrl-C reaches only its owner, which ends things in order.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    pid: u32,
    log: PathBuf,
    log_from: u64,
    ending: Ending,
    _parent_pipe: Option<ChildStdin>,
}

impl Process {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// The log cannot be opened or the program not be started.
    pub fn spawn(launch: Launch) -> Result<Self, ServerError> {
        let Launch {
            name,
            mut command,
            log,
            ending,
            parent_pipe,
        } = launch;
        let open_log = || -> io::Result<(File, File, u64)> {
            let file = OpenOptions::new()
                .append(true)
                .create(true)
                .mode(0o600)
                .custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits())
                .open(&log)?;
            Ok((file.try_clone()?, file.try_clone()?, file.metadata()?.len()))
        };
        let (out, err, log_from) = open_log().map_err(ServerError::prepare(format!(
            "open the log {}",
            log.display()
        )))?;
        command.stdin(if parent_pipe {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        command.stdout(out).stderr(err).process_group(0);
        let mut child = command
            .spawn()
            .map_err(ServerError::prepare(format!("start {name}")))?;
        let pid = child
            .id()
            .expect("a child that is not awaited yet has a pid");
        // `wait` would close it.
        let parent_pipe = child.stdin.take();
        Ok(Self {
            name,
            child,
            pid,
            log,
            log_from,
            ending,
            _parent_pipe: parent_pipe,
        })
    }

    /// Its process id.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Its name for people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    ///
    /// The kernel does not know the child.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits until it ends by itself. Cancel-safe.
    ///
    /// # Errors
    ///
    /// The kernel does not know the child.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends it and waits until it is gone; `hurry` cuts the grace short. Returns how it ended.
    ///
    /// Not cancel-safe: a dropped future leaves a process that was asked to end.
    pub async fn stop(&mut self, hurry: &CancellationToken) -> Stopped {
        if !hurry.is_cancelled() {
            self.signal(self.ending.ask);
            tokio::select! {
                ended = timeout(self.ending.grace, self.child.wait()) => {
                    if let Ok(Ok(status)) = ended {
                        return Stopped::Ended(status);
                    }
                }
                () = hurry.cancelled() => {}
            }
        }
        if hurry.is_cancelled() && self.ending.at_once != Signal::SIGKILL {
            self.signal(self.ending.at_once);
            if timeout(AT_ONCE_GRACE, self.child.wait()).await.is_ok() {
                return Stopped::Killed;
            }
        }
        self.signal(Signal::SIGKILL);
        // A process that SIGKILL does not end hangs in the kernel: nothing more can be done here.
        let _gone = timeout(AT_ONCE_GRACE, self.child.wait()).await;
        Stopped::Killed
    }

    /// Its log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines that it has logged since its start.
    pub fn log_tail(&self) -> String {
        tail(&self.log, self.log_from)
    }

    /// Whether the log says this, within the first 64 KiB since its start. A message that is looked for may be far from the
    /// end: processes of a server that was killed write there too.
    pub fn has_logged(&self, what: &str) -> bool {
        read(&self.log, self.log_from).contains(what)
    }

    /// The error of a process that ended while it should have started.
    pub(crate) fn ended_early(&self, status: ExitStatus) -> ServerError {
        let (server, log) = (self.name.clone(), self.log.clone());
        ServerError::Ended {
            server,
            status: describe(status),
            log,
            tail: self.log_tail(),
        }
    }

    /// The error of a process that runs and does not answer.
    pub(crate) fn silent(&self, waited: Duration, last: String) -> ServerError {
        ServerError::Silent {
            server: self.name.clone(),
            waited,
            last,
            log: self.log.clone(),
            tail: self.log_tail(),
        }
    }

    fn signal(&self, signal: Signal) {
        // After `wait`, the pid may be another process's.
        if self.child.id().is_some() {
            send(self.pid, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(self.ending.at_once);
    }
}

/// How a process ended when it was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// By itself, within its grace.
    Ended(ExitStatus),
    /// By force.
    Killed,
}

/// How a process ended, for people: `exit code 1`, `killed by SIGKILL`.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal().map(Signal::try_from)) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(Ok(signal))) => format!("killed by {signal}"),
        (None, _) => "no exit code".to_owned(),
    }
}

/// The arguments of a running process, the program first; empty when it is gone or a zombie.
pub fn command_line(pid: u32) -> Vec<String> {
    let split = |raw: &[u8]| -> Vec<String> {
        let words = raw.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        words
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect()
    };
    if Path::new("/proc/self/cmdline").exists() {
        return fs::read(format!("/proc/{pid}/cmdline"))
            .map(|raw| split(&raw))
            .unwrap_or_default();
    }
    let listed = std::process::Command::new("ps")
        .args(["-o", "command=", "-p", &pid.to_string()])
        .output();
    let line = listed
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    line.split_whitespace().map(str::to_owned).collect()
}

/// Whether `program`, with any suffix of its name, runs under this pid with the argument `value` after `flag`.
pub fn runs_as(pid: u32, program: &str, flag: &str, value: &str) -> bool {
    let words = command_line(pid);
    let named = words.first().is_some_and(|first| {
        Path::new(first)
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(program))
    });
    named
        && words
            .windows(2)
            .any(|pair| pair[0] == flag && pair[1] == value)
}

/// Ends a process that is not our child: `ending.ask`, the grace, SIGKILL. Returns whether it is gone.
///
/// `is_ours` is called again before every signal, so that a pid that was given to another process is left alone.
pub async fn end_orphan(pid: u32, ending: Ending, is_ours: impl Fn(u32) -> bool) -> bool {
    for (signal, grace) in [(ending.ask, ending.grace), (Signal::SIGKILL, AT_ONCE_GRACE)] {
        if !is_ours(pid) {
            return true;
        }
        send(pid, signal);
        let until = Instant::now() + grace;
        while is_ours(pid) && Instant::now() < until {
            sleep(Duration::from_millis(10)).await;
        }
    }
    !is_ours(pid)
}

/// The last lines of a log, from this offset on, bounded.
pub fn tail(log: &Path, from: u64) -> String {
    const BYTES_MAX: u64 = 8 * 1024;
    const LINES_MAX: usize = 15;
    let length = fs::metadata(log).map_or(0, |log| log.len());
    let text = read(log, from.max(length.saturating_sub(BYTES_MAX)));
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LINES_MAX)..];
    if last.is_empty() {
        "  (nothing)".to_owned()
    } else {
        format!("  {}", last.join("\n  "))
    }
}

/// What a log says from this offset on, 64 KiB at most; nothing where it cannot be read.
fn read(log: &Path, from: u64) -> String {
    const BYTES_MAX: u64 = 64 * 1024;
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        file.take(BYTES_MAX).read_to_end(&mut text)?;
        Ok(text)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

fn send(pid: u32, signal: Signal) {
    let Ok(pid) = i32::try_from(pid) else { return };
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(reason) => tracing::warn!(pid, %signal, %reason, "cannot signal a process"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDING: Ending = Ending {
        ask: Signal::SIGTERM,
        grace: Duration::from_millis(200),
        at_once: Signal::SIGKILL,
    };

    fn shell(script: &str, log: &Path) -> Process {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        let launch = Launch {
            name: "shell".into(),
            command,
            log: log.into(),
            ending: ENDING,
            parent_pipe: true,
        };
        Process::spawn(launch).unwrap()
    }

    #[tokio::test]
    async fn a_process_that_ignores_the_polite_signal_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut deaf = shell("trap '' TERM; echo deaf; read line", &log);
        while !deaf.log_tail().contains("deaf") {
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(deaf.stop(&CancellationToken::new()).await, Stopped::Killed);
        assert!(command_line(deaf.pid()).is_empty());
    }

    #[tokio::test]
    async fn the_parent_pipe_stays_open_while_we_wait_and_closes_with_us() {
        let folder = tempfile::tempdir().unwrap();
        let mut reader = shell("read line; exit 7", &folder.path().join("log"));
        assert!(
            timeout(Duration::from_millis(100), reader.wait())
                .await
                .is_err()
        );
        drop(reader._parent_pipe.take());
        let status = timeout(Duration::from_secs(5), reader.wait())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(describe(status), "exit code 7");
    }

    #[test]
    fn the_tail_is_bounded_and_starts_where_it_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, format!("old\n{}", "new\n".repeat(10_000))).unwrap();
        assert_eq!(tail(&log, 4).lines().count(), 15);
        assert_eq!(tail(&log, 40_004), "  (nothing)");
        assert_eq!(tail(&folder.path().join("none"), 0), "  (nothing)");
    }

    #[tokio::test]
    async fn what_it_logged_is_found_behind_what_others_write() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut process = shell("echo the reason; yes others | head -n 500", &log);
        process.wait().await.unwrap();
        assert!(!process.log_tail().contains("the reason"));
        assert!(process.has_logged("the reason"));
    }

    #[tokio::test]
    async fn a_pid_that_is_somebody_elses_is_left_alone() {
        assert!(end_orphan(std::process::id(), ENDING, |_| false).await);
        assert!(!runs_as(std::process::id(), "postgres", "-D", "/nowhere"));
    }
}

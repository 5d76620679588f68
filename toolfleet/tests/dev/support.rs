//! A folder, a `dev` as a process or in this one, and waiting for facts.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio::{
    io::AsyncReadExt,
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};
use toolfleet::{dev::DevState, servers::process::command_line};

/// A client with the user and the password that the address has: this client does not take them from there.
pub(crate) async fn nats(url: &str) -> async_nats::Client {
    let address: async_nats::ServerAddr = url.parse().unwrap();
    let user = address.username().unwrap().to_owned();
    let password = address.password().unwrap().to_owned();
    let options = async_nats::ConnectOptions::with_user_and_password(user, password);
    options.connect(address).await.unwrap()
}

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_toolfleet");
/// Far more than anything here takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// What a screen shows, kept.
#[derive(Clone, Default)]
pub(crate) struct Paper(Arc<Mutex<Vec<u8>>>);

impl Paper {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The program itself, as a person runs it. Dropping it asks it to stop and waits.
pub(crate) struct DevProcess {
    pub(crate) child: Child,
    pub(crate) pid: u32,
    file: PathBuf,
}

impl DevProcess {
    /// Starts it on `data` in this folder, on free ports.
    pub(crate) async fn start(folder: &Path, more: &[&str]) -> Self {
        Self::start_free(&folder.join("data"), more).await
    }

    /// Starts it on this data folder, on free ports.
    pub(crate) async fn start_free(data: &Path, more: &[&str]) -> Self {
        Self::spawned(dev_free(data, more), data.to_path_buf()).await
    }

    /// Starts it on this data folder and leaves the ports to it.
    pub(crate) async fn start_on(data: &Path, more: &[&str]) -> Self {
        Self::spawned(dev_on(data, more), data.to_path_buf()).await
    }

    async fn spawned(mut command: Command, data: PathBuf) -> Self {
        let file = data.join("dev.json");
        // Not the inode: the kernel gives the old one to the new file.
        let written_at = |file: &Path| fs::metadata(file).and_then(|found| found.modified()).ok();
        let before = written_at(&file);
        let child = command.spawn().unwrap();
        let mut started = Self {
            pid: child.id().unwrap(),
            child,
            file,
        };
        let until = Instant::now() + LONG;
        while written_at(&started.file).is_none_or(|now| Some(now) == before) {
            if let Some(status) = started.child.try_wait().unwrap() {
                panic!(
                    "dev ended instead of starting, {status}: {}",
                    started.said().await
                );
            }
            assert!(Instant::now() < until, "waited {LONG:?} for dev.json");
            sleep(Duration::from_millis(10)).await;
        }
        started
    }

    /// Why it has ended.
    async fn said(&mut self) -> String {
        let mut said = String::new();
        let stderr = self.child.stderr.as_mut().unwrap();
        let read = timeout(LONG, stderr.read_to_string(&mut said)).await;
        read.unwrap().unwrap();
        said
    }

    pub(crate) fn state(&self) -> DevState {
        serde_json::from_slice(&fs::read(&self.file).unwrap()).unwrap()
    }

    pub(crate) async fn wait_for(&self, what: &str, is_so: impl Fn(&DevState) -> bool) -> DevState {
        wait_until(what, || is_so(&self.state())).await;
        self.state()
    }

    /// What it has printed up to its last line before it waits for Ctrl-C; it is not in the output of [`Self::stop`] any more.
    pub(crate) async fn printed(&mut self) -> String {
        let stdout = self.child.stdout.as_mut().unwrap();
        let mut printed = Vec::new();
        while !printed.ends_with(b"stops everything\n") {
            let read = timeout(LONG, stdout.read_buf(&mut printed)).await;
            assert_ne!(read.unwrap().unwrap(), 0, "it ended instead");
        }
        String::from_utf8(printed).unwrap()
    }

    /// Looks at something while it runs, then stops it.
    pub(crate) async fn stop_with<T>(self, look: impl Future<Output = T>) -> (T, Output) {
        let seen = look.await;
        (seen, self.stop().await)
    }

    pub(crate) async fn stop(mut self) -> Output {
        send(self.pid, Signal::SIGTERM);
        timeout(LONG, self.child.wait())
            .await
            .expect("dev stops")
            .unwrap();
        let mut output = Output {
            status: self.child.wait().await.unwrap(),
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        let (stdout, stderr) = (self.child.stdout.take(), self.child.stderr.take());
        let read = stdout.unwrap().read_to_end(&mut output.stdout).await;
        read.unwrap();
        let read = stderr.unwrap().read_to_end(&mut output.stderr).await;
        read.unwrap();
        output
    }
}

impl Drop for DevProcess {
    fn drop(&mut self) {
        let until = std::time::Instant::now() + LONG;
        while self.child.try_wait().is_ok_and(|ended| ended.is_none())
            && std::time::Instant::now() < until
        {
            send(self.pid, Signal::SIGTERM);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A `dev` on `data` in this folder, on free ports unless the test names others.
pub(crate) fn dev(folder: &Path, more: &[&str]) -> Command {
    dev_free(&folder.join("data"), more)
}

fn dev_free(data: &Path, more: &[&str]) -> Command {
    let mut command = dev_on(data, more);
    for port in [
        "--nats-port",
        "--postgres-port",
        "--http-port",
        "--gateway-port",
    ] {
        if !more.contains(&port) {
            command.args([port, "0"]);
        }
    }
    command
}

fn dev_on(data: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("dev").arg("--data").arg(data).args(more);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A folder that goes with the test; another user passes through it when its mode lets him.
pub(crate) fn folder(mode: u32) -> TempDir {
    let permissions = fs::Permissions::from_mode(mode);
    tempfile::Builder::new()
        .permissions(permissions)
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .unwrap()
}

pub(crate) fn pids_of(state: &DevState) -> Vec<u32> {
    let servers = state.nats_pid.into_iter().chain(state.postgres_pid);
    state
        .worker_pids
        .iter()
        .chain(&state.dispatcher_pids)
        .chain(&state.gateway_pids)
        .copied()
        .chain(servers)
        .collect()
}

pub(crate) fn send(pid: u32, signal: Signal) {
    // It may be gone already, which is what most of these signals are for.
    let _sent = kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal);
}

pub(crate) fn is_gone(pid: u32) -> bool {
    command_line(pid).is_empty()
}

pub(crate) async fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < until, "waited {LONG:?} for {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

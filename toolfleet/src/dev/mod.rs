//! Everything for one person: a private Postgres and nats-server, a dispatcher, workers, tools.
//!
//! Start: lock → leftovers of a killed predecessor → Postgres and NATS → migrations → deaths of the predecessor's
//! workers → tools → dispatchers → workers → `dev.json`. Stop is the reverse.
//! Ports and passwords are those of the last run (`ports`, `private`); `ways` is how people and their programs get in.
//! Dispatchers and workers are this same program in processes of their own; whatever dies is started again
//! (`keep`), on the same port, and `dev.json` follows; a dead worker is reported and fenced (`deaths`). They end by themselves when we are killed: their standard
//! input is a pipe whose other end is ours. The two servers do not, so the next `dev` on the same data ends them.

mod child;
mod deaths;
mod engines;
mod fleet;
mod keep;
mod lock;
mod logs;
mod ports;
mod private;
mod ready;
mod state;
mod tools;
mod ways;

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use ::fleet::{
    config::ConfigError,
    explain::chain,
    ids::{ToolName, WorkerId},
};
use anyhow::Context;
use futures_util::future::BoxFuture;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

pub use fleet::Dev;
pub(crate) use ready::is_ready;
pub use state::DevState;
pub(crate) use ways::FOUND as DATA_FOLDER;

/// What `dev` is told.
#[derive(Debug, Clone, clap::Args)]
pub struct DevOptions {
    /// Where everything is kept: databases, ports, passwords, logs, secrets, dev.json. Client commands find `.toolfleet`
    #[arg(long, value_name = "DIR", default_value = ".toolfleet")]
    pub data: PathBuf,
    /// Tool manifests (*.yaml, *.yml, *.json) to apply; a changed file is applied as the next version
    #[arg(long, value_name = "DIR")]
    pub tools: Option<PathBuf>,
    /// How many workers, each a process of its own; none means that calls wait
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(0..=64))]
    pub workers: u16,
    /// How many dispatchers, each a process of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub dispatchers: u16,
    /// The port of nats-server on 127.0.0.1; 0 takes a free one. Without it that of the last run, at first 14222, or a free one
    #[arg(long, value_name = "PORT")]
    pub nats_port: Option<u16>,
    /// The port of Postgres on 127.0.0.1; 0 takes a free one. Without it that of the last run, at first 15432, or a free one
    #[arg(long, value_name = "PORT")]
    pub postgres_port: Option<u16>,
    /// The HTTP port of the first dispatcher on 127.0.0.1; 0 takes a free one. Without it that of the last run, at first 18080,
    /// or a free one
    #[arg(long, value_name = "PORT")]
    pub http_port: Option<u16>,
    /// How many calls each worker runs at the same time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub concurrency: u32,
    /// The program that has the `dispatcher` and `worker` subcommands; this very program when none is given.
    #[arg(skip)]
    pub program: Option<PathBuf>,
}

/// Lines for the person, when it is done.
type Lines = BoxFuture<'static, anyhow::Result<Vec<String>>>;

/// What `dev` leaves to the rest of the program. The first argument is always the database's URL.
#[derive(Clone, Copy)]
pub struct DevHooks {
    /// Brings the schema up to date.
    pub migrate: fn(String) -> BoxFuture<'static, anyhow::Result<()>>,
    /// Applies one manifest file, as the next version if its content is new and its version is not;
    /// answers with lines for the person. Its error is shown once and the file tried again.
    /// With the URL of a NATS server, its fleet is told, and offers the version when the answer comes, or the lines say that
    /// it does not yet.
    pub apply_tools: fn(String, Option<String>, PathBuf) -> Lines,
    /// The name of the tool in a manifest file; none when the file is no manifest.
    pub tool_of: fn(&Path) -> Option<ToolName>,
    /// Takes note that the worker process with this pid on this machine is gone, and answers with those of its workers
    /// that are not fenced yet. Repeated only after an error.
    pub worker_died: fn(String, u32) -> BoxFuture<'static, anyhow::Result<Vec<WorkerId>>>,
    /// Takes note that this worker is gone with everything it started: its lock was taken, and is held meanwhile.
    pub fence: fn(String, WorkerId) -> BoxFuture<'static, anyhow::Result<()>>,
}

/// Where `dev` prints. A reader who went away does not stop it.
#[derive(Clone)]
pub struct Screen(Arc<Mutex<dyn Write + Send>>);

impl Screen {
    /// Prints here.
    pub fn new(writer: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(writer)))
    }

    pub(crate) fn line(&self, text: &str) {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The reader of our output may be gone; the fleet lives on.
        let _written = writeln!(writer, "{text}").and_then(|()| writer.flush());
    }
}

/// Runs until `shutdown`, then stops everything in order; leaves no process behind.
///
/// A further Ctrl-C or SIGTERM after `shutdown` stops everything at once. A vanished terminal counts as `shutdown`.
///
/// # Errors
///
/// Something could not be started; whatever was running is stopped again.
pub async fn run(
    options: DevOptions,
    hooks: DevHooks,
    screen: Screen,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let (stop, hurry) = (CancellationToken::new(), CancellationToken::new());
    let mut fleet = Box::pin(live(&options, hooks, &screen, &stop, &hurry));
    tokio::select! {
        ended = &mut fleet => return ended,
        () = shutdown => {}
        gone = terminal_gone() => gone?,
    }
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    stop.cancel();
    screen
        .line("stopping: workers finish what they run, at most 10 s (Ctrl-C again stops at once)");
    tokio::select! {
        ended = &mut fleet => return ended,
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    hurry.cancel();
    fleet.await
}

async fn live(
    options: &DevOptions,
    hooks: DevHooks,
    screen: &Screen,
    stop: &CancellationToken,
    hurry: &CancellationToken,
) -> anyhow::Result<()> {
    let Some(dev) = Dev::start(options, hooks, screen.clone(), stop, hurry).await? else {
        return Ok(());
    };
    for line in dev.summary() {
        screen.line(&line);
    }
    stop.cancelled().await;
    dev.stop().await;
    screen.line("stopped");
    Ok(())
}

/// Waits until the terminal goes away; for ever under `nohup`, which asks to outlive it.
async fn terminal_gone() -> anyhow::Result<()> {
    const HANGUP: u64 = 1;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    if ignored.is_none_or(|mask| mask & HANGUP != 0) {
        return std::future::pending().await;
    }
    let mut hangup = signal(SignalKind::hangup()).context("listen for a vanished terminal")?;
    hangup.recv().await;
    Ok(())
}

/// Takes the right to write from the group and from others, whatever the umask left them: client commands believe nothing that
/// another user could have written.
fn only_ours_to_write(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    let mut permissions = path.metadata()?.permissions();
    let mode = permissions.mode();
    if mode & 0o022 != 0 {
        permissions.set_mode(mode & !0o022);
        std::fs::set_permissions(path, permissions)?;
    }
    Ok(())
}

/// The folders and files below `--data`.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    data: PathBuf,
}

impl Layout {
    fn create(data: &Path) -> anyhow::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;

        let create = || -> std::io::Result<PathBuf> {
            std::fs::create_dir_all(data)?;
            let data = data.canonicalize()?;
            only_ours_to_write(&data)?;
            for private in ["secrets", "logs", "nats", "workers"] {
                std::fs::DirBuilder::new()
                    .recursive(true)
                    .mode(0o700)
                    .create(data.join(private))?;
            }
            // It stands in a project, as a rule, and passwords and a database are nothing to commit.
            let ignore = data.join(".gitignore");
            if !ignore.exists() {
                std::fs::write(ignore, "*\n")?;
            }
            Ok(data)
        };
        let data = create().map_err(|reason| {
            ConfigError(vec![format!(
                "--data is {}, which cannot be the data folder: {}; name a folder of this user's own, or one that can be made",
                data.display(),
                chain(&reason)
            )])
        })?;
        Ok(Self { data })
    }

    fn path(&self) -> &Path {
        &self.data
    }

    fn log(&self, name: &str) -> PathBuf {
        self.data.join("logs").join(format!("{name}.log"))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.data.join(name)
    }
}

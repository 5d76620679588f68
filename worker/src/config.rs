//! The settings of a worker.

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use fleet::{
    config::{BusArgs, ConfigError, EgressArgs, HttpArgs, ParentArgs, StoreArgs, duration, secret},
    fencing::{FencingError, StateDir},
    ids::QueueName,
    process::check_postgres_url,
    store::files::FileQuota,
    telemetry::{self, TelemetryOptions},
};
use secrecy::SecretString;

use crate::{executors::process::SandboxDemand, handover::GatewayUrl};

/// The settings of a worker.
#[derive(Debug, Clone, Args)]
pub struct Config {
    /// Where the ledger is.
    #[command(flatten)]
    pub store: StoreArgs,
    /// Where the bus is.
    #[command(flatten)]
    pub bus: BusArgs,
    /// Where probes and scrapers look.
    #[command(flatten)]
    pub http: HttpArgs,
    /// Logs and traces.
    #[command(flatten)]
    pub telemetry: TelemetryOptions,
    /// Where requests of tools may go.
    #[command(flatten)]
    pub egress: EgressArgs,
    /// The process that started it.
    #[command(flatten)]
    pub parent: ParentArgs,
    /// A label for people. The process itself is identified by a random id.
    #[arg(long, env = "TOOLFLEET_NAME", default_value = "worker")]
    pub name: String,
    /// The queues to pull from, separated by commas. Each gets an equal share of the slots, and no more.
    #[arg(
        long,
        env = "WORKER_QUEUES",
        value_delimiter = ',',
        default_value = "default"
    )]
    pub queues: Vec<QueueName>,
    /// Slots: how many tools run at a time. Too few leave the machine idle while tools wait for the network; too many starve
    /// each other. For tools that compute or start programs, a few for each core. As many more attempts may wait for Postgres
    /// to record their outcomes.
    #[arg(long, env = "WORKER_CONCURRENCY", default_value_t = 256)]
    pub concurrency: usize,
    /// How many of the slots may run programs (process tools); without it, four for each core. Too few leave cores idle; with
    /// too many every program runs out of its time. A call that finds none free waits or is put back, which spends no attempt.
    #[arg(long, env = "WORKER_PROGRAMS", value_name = "N")]
    pub programs: Option<usize>,
    /// Which programs it runs: `manifest`, each with the sandbox that its manifest has or without, or `strict`, only those that
    /// have one. Calls of others wait for another worker.
    #[arg(long, env = "WORKER_SANDBOX", value_enum, default_value_t)]
    pub sandbox: SandboxDemand,
    /// How long running attempts may go on after SIGTERM. Attempts that remain are stopped then, and their writes go in doubt.
    /// At least the longest timeout of the tools it runs.
    #[arg(long, env = "WORKER_DRAIN_TIMEOUT", value_parser = duration, default_value = "60s")]
    pub drain_timeout: Duration,
    /// A folder with a file per secret, named as in `secret://NAME`. Without it only the environment is searched, for
    /// `TOOLFLEET_SECRET_NAME`.
    #[arg(long, env = "WORKER_SECRETS")]
    pub secrets: Option<PathBuf>,
    /// The fleet's database as sql tools see it: the same one as `--database-url`, with the role of the tools.
    /// Without it this worker runs no tools with `database: fleet`.
    #[arg(long, env = "WORKER_TOOL_DATABASE_URL", hide_env_values = true, value_parser = secret)]
    pub tool_database_url: Option<SecretString>,
    /// Where tools over HTTP and NATS find a gateway, as `https://tools.example`: they fetch the files of their calls there. Without it
    /// such a tool is not asked where its call has files.
    #[arg(long, env = "WORKER_GATEWAY_URL", value_name = "URL")]
    pub gateway_url: Option<GatewayUrl>,
    /// Files that a tenant may keep at a time, those that its callers hand in included; a large block of an answer stays in the
    /// answer then. Set as for dispatchers. 0: no limit.
    #[arg(long, env = "WORKER_TENANT_FILES", default_value_t = 10_000)]
    pub tenant_files: u64,
    /// Bytes that these files may have together. They are kept in Postgres. Set as for dispatchers. 0: no limit.
    #[arg(long, env = "WORKER_TENANT_FILE_BYTES", default_value_t = 1024 * 1024 * 1024)]
    pub tenant_file_bytes: u64,
    /// A folder of this user's own on a local disk, in which workers of this machine prove that those before them are gone.
    /// Without it: `$RUNTIME_DIRECTORY`, `/run/toolfleet` if it is this user's, or a folder below the one for temporary files.
    #[arg(long, env = "WORKER_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// The program whose `guard` subcommand runs under process tools; without one the worker runs no programs.
    #[arg(skip)]
    pub guard_program: Option<PathBuf>,
}

impl Config {
    /// Whether the settings fit together.
    ///
    /// # Errors
    ///
    /// Every setting that does not fit, at once, by variable name.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut wrong = Vec::new();
        if !(1..=4096).contains(&self.concurrency) {
            wrong.push("WORKER_CONCURRENCY must be 1 to 4096".to_owned());
        } else if self.concurrency < self.queues.len() {
            wrong
                .push("WORKER_CONCURRENCY must be at least the number of WORKER_QUEUES".to_owned());
        }
        if self
            .programs
            .is_some_and(|programs| !(1..=4096).contains(&programs))
        {
            wrong.push("WORKER_PROGRAMS must be 1 to 4096".to_owned());
        }
        if self.queues.is_empty() {
            wrong.push("WORKER_QUEUES must name at least one queue".to_owned());
        }
        if let Some(queue) = twice(&self.queues) {
            wrong.push(format!(
                "WORKER_QUEUES has {queue} twice; name each queue once"
            ));
        }
        if self.drain_timeout > Duration::from_secs(3600) {
            wrong.push("WORKER_DRAIN_TIMEOUT must be at most 1h".to_owned());
        }
        if let Some(folder) = self.secrets.as_ref().filter(|folder| !folder.is_dir()) {
            wrong.push(format!(
                "WORKER_SECRETS is {}, which is not a folder",
                folder.display()
            ));
        }
        if let Some(url) = &self.tool_database_url
            && let Err(ConfigError(sentences)) = check_postgres_url("WORKER_TOOL_DATABASE_URL", url)
        {
            wrong.extend(sentences);
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(ConfigError(wrong))
        }
    }

    /// Checks the settings, and opens or makes the folder for the locks.
    ///
    /// # Errors
    ///
    /// Every setting that is wrong, at once, by variable name.
    pub fn check_with_folder(&self) -> Result<(), ConfigError> {
        let checks = [self.check(), self.state_dir().map(drop)];
        let wrong = checks.into_iter().filter_map(Result::err);
        let wrong: Vec<String> = wrong.flat_map(|ConfigError(sentences)| sentences).collect();
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(ConfigError(wrong))
        }
    }

    /// How many files a tenant may keep.
    pub(crate) const fn file_quota(&self) -> FileQuota {
        FileQuota {
            files: self.tenant_files,
            bytes: self.tenant_file_bytes,
        }
    }

    /// How many programs may run at a time.
    pub fn programs(&self) -> usize {
        const PER_CORE: usize = 4;
        self.programs.unwrap_or_else(|| {
            let cores = std::thread::available_parallelism();
            cores.map_or(1, NonZero::get).saturating_mul(PER_CORE)
        })
    }

    /// The folder for the locks of this machine's workers: the one that is named, or the default one.
    ///
    /// # Errors
    ///
    /// It cannot be created, or other users can write there.
    pub fn state_dir(&self) -> Result<StateDir, ConfigError> {
        if let Some(named) = &self.state_dir {
            return open_named("WORKER_STATE_DIR", named);
        }
        // systemd sets it for a unit with RuntimeDirectory=. It is a list; the first folder is ours.
        if let Some(list) = std::env::var_os("RUNTIME_DIRECTORY").filter(|list| !list.is_empty())
            && let Some(first) = std::env::split_paths(&list).next()
        {
            return open_named("RUNTIME_DIRECTORY", &first);
        }
        let opened = usual_state_dir();
        opened.map_err(|problem| ConfigError(vec![telemetry::report(&problem)]))
    }
}

/// The first queue that is named twice.
fn twice(queues: &[QueueName]) -> Option<&QueueName> {
    let mut seen = std::collections::BTreeSet::new();
    queues.iter().find(|queue| !seen.insert(queue.as_str()))
}

/// Opens the folder that this setting names.
fn open_named(setting: &str, folder: &Path) -> Result<StateDir, ConfigError> {
    StateDir::open(folder).map_err(|problem| {
        let why = match &problem {
            FencingError::Unfit { problem, .. } => format!("which {problem}"),
            FencingError::System { source, .. } => {
                format!("which cannot be used: {}", telemetry::report(source))
            }
        };
        ConfigError(vec![format!(
            "{setting} is {}, {why}; name a folder of this user's own, which is made in one that is there",
            folder.display()
        )])
    })
}

fn usual_state_dir() -> Result<StateDir, FencingError> {
    let shared = Path::new("/run/toolfleet");
    // The machine's administrator makes it. It is ours only if it belongs to this user.
    if shared.is_dir()
        && let Ok(ours) = StateDir::open(shared)
    {
        return Ok(ours);
    }
    let own = format!("toolfleet-{}", nix::unistd::geteuid());
    StateDir::open(&std::env::temp_dir().join(own))
}

//! A worker with tools of a program's own. Otherwise it is what `toolfleet worker` is.

use std::{error::Error, io::Write, process::ExitCode, thread, time::Duration};

use clap::{CommandFactory, FromArgMatches, Parser, parser::ValueSource};
use fleet::{
    config::ConfigError,
    explain::{Servers, explain},
    manifest::{Manifest, ManifestProblem},
    process::{Settings, StartError, asked_to_stop, exit_code, finish},
};
use tokio::{net::TcpListener, runtime};

use crate::{
    config::Config,
    error::RunError,
    executors::Executor,
    guard,
    interceptor::Interceptor,
    run::{Additions, run_with},
    tool::Tool,
};

/// The entry point for a program's own worker: [`Worker::builder`].
#[derive(Debug)]
pub struct Worker;

impl Worker {
    /// A worker without tools of its own; give it some with [`Builder::tool`].
    pub fn builder() -> Builder {
        Builder::default()
    }
}

/// A worker before it is started: its tools, executors and settings.
#[derive(Debug, Default)]
#[must_use = "a worker does nothing until it is run"]
pub struct Builder {
    additions: Additions,
    wrong: Vec<String>,
    config: Option<Config>,
}

/// Why the worker has ended.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("what the tools need could not be set up")]
    SetUp(#[source] Box<dyn Error + Send + Sync>),
    #[error("become the heir of orphaned tools")]
    Heir(#[source] std::io::Error),
    #[error(transparent)]
    Run(#[from] RunError),
}

/// How long a blocked thread may delay the end of the process.
const LEFTOVERS_MAX: Duration = Duration::from_secs(1);
/// A tool that blocks its thread must not silence the worker.
const THREADS_MIN: usize = 4;

/// The command line of a worker of one's own.
#[derive(Debug, Parser)]
#[command(
    about = "A worker with tools of its own: applies them, runs their calls and those of its other queues; SIGTERM drains it",
    after_help = "Exit codes: 0 ok, 1 it failed, 2 usage, 64 bad configuration, 69 a server is not reachable"
)]
struct CommandLine {
    #[command(flatten)]
    config: Config,
}

impl Builder {
    /// Adds this tool. Two versions of one tool are two tools here.
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.add(tool);
        self
    }

    fn add<T: Tool>(&mut self, tool: T) {
        match self.additions.native.add(tool) {
            Ok(manifest) => self.additions.manifests.push(manifest),
            Err(problems) => {
                let sentence = |problem: ManifestProblem| {
                    format!("tool {}: {}: {}", T::NAME, problem.path, problem.message)
                };
                self.wrong.extend(problems.into_iter().map(sentence));
            }
        }
    }

    /// Adds an executor for a kind of tool of the program's own: tools whose manifest says `executor: {own: {kind: KIND, spec:
    /// …}}`.
    ///
    /// A name has 1 to 64 characters of a-z, 0-9, `_` and `-`, and begins with a letter. The worker does not start with a name
    /// that is invalid or registered twice. Executors start in the order in which they are registered, and stop in the reverse
    /// order. Other workers let calls of such tools wait, so give them a queue that only these workers pull.
    pub fn executor(mut self, kind: &str, executor: impl Executor + 'static) -> Self {
        self.wrong
            .extend(self.additions.executors.add_own(kind, executor).err());
        self
    }

    /// Adds an interceptor: it stands in front of every tool that the worker runs, see [`crate::interceptor`].
    ///
    /// The worker does not start with two of one name or order, with an order outside 100 to 799, or with a name of the engine's.
    /// Tools whose manifest names it in `interceptors` run on workers that have it and on no others.
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.wrong
            .extend(self.additions.interceptors.add(interceptor));
        self
    }

    /// Uses these settings instead of those of the command line and the environment.
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    /// The manifests that the worker applies when it starts, in the order of its tools.
    pub fn manifests(&self) -> &[Manifest] {
        &self.additions.manifests
    }

    /// Runs the worker until SIGTERM or Ctrl-C, and then until its attempts have ended: the whole `main` of a program.
    ///
    /// Flags and environment are those of `toolfleet worker`, with one other default: without `--queues` it pulls the queues of
    /// its own tools and no other. Errors go to standard error; the exit code tells their kind.
    ///
    /// Call it first thing in `main` and outside a runtime: it starts one, and the same program is also the guard of
    /// process tools.
    pub fn run(self) -> ExitCode {
        self.run_with(async |builder| Ok(builder))
    }

    /// The same, for tools that need something on the runtime first, such as connections.
    ///
    /// ```no_run
    /// # use worker::Worker;
    /// # async fn connect() -> std::io::Result<()> { Ok(()) }
    /// # fn main() -> std::process::ExitCode {
    /// Worker::builder().run_with(async |builder| {
    ///     let database = connect().await?;
    ///     // Ok(builder.tool(Transfer { database }))
    ///     # drop(database); Ok(builder)
    /// })
    /// # }
    /// ```
    pub fn run_with(
        self,
        set_up: impl AsyncFnOnce(Self) -> Result<Self, Box<dyn Error + Send + Sync>>,
    ) -> ExitCode {
        // Before anything else: a guard needs no runtime, and starts fast.
        let first = std::env::args_os().nth(1);
        if first.is_some_and(|verb| verb == "guard") {
            return guard::main();
        }
        let (config, queues_given) = match self.config.clone() {
            Some(config) => (config, true),
            None => from_line(),
        };
        // Fails where the program has installed a provider itself, which serves as well.
        drop(rustls::crypto::ring::default_provider().install_default());
        let servers = Servers::of_variables(&config.store.database_url, &config.bus.nats_url);
        let threads = thread::available_parallelism().map_or(THREADS_MIN, usize::from);
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(threads.max(THREADS_MIN))
            .enable_all()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(problem) => return refuse(&problem, &servers),
        };
        let ended = runtime.block_on(Box::pin(self.process(config, queues_given, set_up)));
        runtime.shutdown_timeout(LEFTOVERS_MAX);
        match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => refuse(&problem, &servers),
        }
    }

    async fn process(
        self,
        mut config: Config,
        queues_given: bool,
        set_up: impl AsyncFnOnce(Self) -> Result<Self, Box<dyn Error + Send + Sync>>,
    ) -> Result<(), Failure> {
        let stopping = asked_to_stop(config.parent)?;
        // Before the first tool: this process must inherit what a killed guard leaves behind.
        guard::adopt_orphans().map_err(Failure::Heir)?;
        config.guard_program = Some(guard::THIS_PROGRAM.into());
        let built = set_up(self).await.map_err(Failure::SetUp)?;
        if !queues_given && !built.manifests().is_empty() {
            config.queues.clear();
        }
        built.pull_own_queues(&mut config);
        let settings = Settings {
            process: "worker",
            telemetry: &config.telemetry,
            store: &config.store,
            bus: &config.bus,
            http: &config.http,
            checked: built.check(&config),
        };
        let (telemetry, listener) = settings.prepare().await?;
        let ran = Box::pin(run_with(config, built.additions, listener, stopping)).await;
        finish(telemetry).await;
        Ok(ran?)
    }

    /// Runs the worker on the caller's runtime, until `shutdown` resolves and its attempts have ended.
    ///
    /// The caller sets up TLS, telemetry, signals, and a `guard_program`. Without a guard program the worker runs no process
    /// tools, for the caller's program may not be a guard.
    ///
    /// # Errors
    ///
    /// It cannot start. Once it runs, it waits for a server that is missing.
    pub async fn serve(
        self,
        mut config: Config,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), RunError> {
        self.pull_own_queues(&mut config);
        self.check(&config)?;
        Box::pin(run_with(config, self.additions, listener, shutdown)).await
    }

    fn pull_own_queues(&self, config: &mut Config) {
        for manifest in &self.additions.manifests {
            if !config.queues.contains(&manifest.queue) {
                config.queues.push(manifest.queue.clone());
            }
        }
    }

    fn check(&self, config: &Config) -> Result<(), ConfigError> {
        let of_config = config
            .check_with_folder()
            .err()
            .map(|ConfigError(wrong)| wrong);
        let wrong: Vec<String> = self
            .wrong
            .iter()
            .cloned()
            .chain(of_config.into_iter().flatten())
            .collect();
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(ConfigError(wrong))
        }
    }
}

/// The settings of the command line and the environment, and whether they name queues. Ends the process where they are wrong.
fn from_line() -> (Config, bool) {
    let matches = CommandLine::command().get_matches();
    let given = matches.value_source("queues") != Some(ValueSource::DefaultValue);
    match CommandLine::from_arg_matches(&matches) {
        Ok(line) => (line.config, given),
        Err(wrong) => wrong.exit(),
    }
}

/// Says on standard error what went wrong, in one line, and returns the exit code.
fn refuse(problem: &(dyn Error + 'static), servers: &Servers) -> ExitCode {
    let line = explain(problem, servers).to_string().replace('\n', "\n  ");
    // Standard error may be closed; then only the exit code tells.
    writeln!(std::io::stderr(), "{line}").unwrap_or_default();
    ExitCode::from(exit_code(problem))
}

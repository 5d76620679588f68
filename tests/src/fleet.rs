//! A whole fleet in this process: its own database, its own nats-server, dispatchers and workers as they are run by the
//! program, and a caller.
//!
//! Settings go through the same flags as on the command line. A process is asked to stop with [`Process::drain`]; dropping
//! it is as close to a kill as one process allows: nothing of it runs on, and it says no goodbye.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use async_nats::jetstream;
use clap::{Args, Parser};
use fleet::{
    ids::CallId,
    manifest,
    store::{
        retire::{self, Retire, Retired},
        rights::Duty,
        tools::{self, Applied},
    },
    telemetry::{self, Telemetry, TelemetryOptions, report},
    wire::subjects::Subjects,
};
use fleet_client::{FleetClient, Question};
use serde_json::Value;
use toolfleet::servers::{Nats, nats::MAX_PAYLOAD};
use worker::{Builder, Worker};

use crate::{
    bus::{connect, start_nats},
    caller::{Answer, Submission},
    postgres::Database,
    process::Process,
    run_folder::RunFolder,
    shipped::{Shipped, User},
    wait::LONG,
};

/// What a fleet consists of at first.
#[derive(Debug, Clone)]
pub struct Spec {
    /// How many dispatchers.
    pub dispatchers: usize,
    /// How many workers.
    pub workers: usize,
    /// Flags of every worker.
    pub worker_flags: Vec<String>,
    /// Manifests, applied before any process starts.
    pub tools: Vec<String>,
    /// The largest message that nats-server takes, in bytes.
    pub max_payload: u32,
    /// Whether each process logs in at Postgres by the role that is shipped for it.
    pub roles: bool,
    /// Whether nats-server has the configuration that is shipped, and the fleet its settings.
    pub shipped: bool,
}

impl Spec {
    /// One dispatcher, one worker, these tools.
    pub fn with(tools: impl IntoIterator<Item = String>) -> Self {
        Self {
            dispatchers: 1,
            workers: 1,
            worker_flags: Vec::new(),
            tools: tools.into_iter().collect(),
            max_payload: MAX_PAYLOAD,
            roles: false,
            shipped: false,
        }
    }

    /// On a nats-server as it is deployed: with users, whom the processes, callers and the operator are.
    #[must_use]
    pub fn shipped(self) -> Self {
        Self {
            shipped: true,
            ..self
        }
    }

    /// With processes that have at Postgres the roles that are shipped, and no more.
    #[must_use]
    pub fn roles(self) -> Self {
        Self {
            roles: true,
            ..self
        }
    }

    /// With a nats-server that takes messages of at most this many bytes.
    #[must_use]
    pub fn max_payload(self, max_payload: u32) -> Self {
        Self {
            max_payload,
            ..self
        }
    }

    /// With this many dispatchers.
    #[must_use]
    pub fn dispatchers(self, dispatchers: usize) -> Self {
        Self {
            dispatchers,
            ..self
        }
    }

    /// With this many workers, which have these flags.
    #[must_use]
    pub fn workers(self, workers: usize, flags: &[&str]) -> Self {
        let worker_flags = flags.iter().map(ToString::to_string).collect();
        Self {
            workers,
            worker_flags,
            ..self
        }
    }
}

/// The fleet. What a test does to its parts it does by name: `fleet.workers[0].drain()`.
#[derive(Debug)]
pub struct Fleet {
    /// The ledger, for reads and for mischief.
    pub database: Database,
    /// A caller's connection, without any right or setting of its own; the operator's where the fleet is as shipped.
    pub client: async_nats::Client,
    /// Whom callers ask, over that connection; over an agent's where the fleet is as shipped.
    pub caller: FleetClient,
    /// Those that run, and those that were drained.
    pub dispatchers: Vec<Process>,
    /// Those that run, and those that were drained.
    pub workers: Vec<Process>,
    accepted: Arc<Mutex<BTreeSet<CallId>>>,
    pub(crate) nats: Option<Nats>,
    pub(crate) shipped: Option<Shipped>,
    pub(crate) nats_port: u16,
    // After the server: dropping it ends what still runs.
    pub(crate) nats_folder: RunFolder,
    pub(crate) max_payload: u32,
    pub(crate) roles: bool,
}

/// The name of the stream of pointers under the default prefix.
const STREAM: &str = "TOOLFLEET_JOBS";

impl Fleet {
    /// Starts what the spec says in the shared cluster, and waits until all of it is ready.
    ///
    /// # Panics
    ///
    /// Something does not start; the message says what.
    pub async fn start(spec: Spec) -> Self {
        Self::start_on(Database::fresh().await, spec).await
    }

    /// The same on a database that is there already.
    ///
    /// # Panics
    ///
    /// Something does not start; the message says what.
    pub async fn start_on(database: Database, spec: Spec) -> Self {
        start_process();
        let nats_folder = RunFolder::create().expect("a folder for nats-server");
        let (nats, shipped) = if spec.shipped {
            (None, Some(Shipped::start(nats_folder.path()).await))
        } else {
            let nats = start_nats(&nats_folder, None, spec.max_payload).await;
            (Some(nats), None)
        };
        let own = nats.as_ref().map(Nats::port);
        let nats_port = own.or(shipped.as_ref().map(Shipped::port));
        let nats_port = nats_port.expect("one of them was started");
        let (client, asking) = if spec.shipped {
            let operator = connect(nats_port, Some(User::Operator)).await;
            (operator, connect(nats_port, Some(User::Agent)).await)
        } else {
            let client = connect(nats_port, None).await;
            (client.clone(), client)
        };
        let subjects = Subjects::new("toolfleet".parse().expect("a prefix"));
        let caller = FleetClient::over(&asking, subjects).await;
        let mut fleet = Self {
            database,
            client,
            caller: caller.expect("open an inbox"),
            dispatchers: Vec::new(),
            workers: Vec::new(),
            accepted: Arc::default(),
            nats_port,
            nats,
            shipped,
            nats_folder,
            max_payload: spec.max_payload,
            roles: spec.roles,
        };
        if spec.roles {
            fleet.database.grant_roles().await;
        }
        for tool in &spec.tools {
            fleet.apply(tool).await;
        }
        for _ in 0..spec.dispatchers {
            fleet.add_dispatcher().await;
        }
        let flags: Vec<&str> = spec.worker_flags.iter().map(String::as_str).collect();
        for _ in 0..spec.workers {
            fleet.add_worker(&flags).await;
        }
        fleet
    }

    /// Starts one more dispatcher and waits until it is ready.
    ///
    /// # Panics
    ///
    /// It does not start.
    pub async fn add_dispatcher(&mut self) -> &mut Process {
        self.add_dispatcher_with(&[]).await
    }

    /// Starts one more dispatcher with these flags and waits until it is ready.
    ///
    /// # Panics
    ///
    /// It does not start.
    pub async fn add_dispatcher_with(&mut self, flags: &[&str]) -> &mut Process {
        let start = async || self.dispatcher_of(&self.database, flags).await;
        let process = Process::supervised(start).await;
        self.dispatchers.push(process);
        self.dispatchers.last_mut().expect("one was just added")
    }

    /// Starts a dispatcher of this database with these flags on the fleet's nats-server, and waits for nothing.
    pub async fn dispatcher_of(&self, database: &Database, flags: &[&str]) -> Process {
        let name = format!("dispatcher-{}", self.dispatchers.len() + 1);
        let user = User::Dispatcher;
        let mut config: dispatcher::Config = self.settings(user, &name, database, flags);
        if self.shipped.is_some() {
            config.replies = Shipped::REPLIES
                .parse()
                .expect("the shipped setting is one");
        }
        if self.roles {
            config.store.database_url = database.url_of(Duty::Dispatcher.role()).into();
        }
        let process = Process::start(&name, |listener, stop| async move {
            let run = Box::pin(dispatcher::run(config, listener, stop.cancelled_owned()));
            run.await.map_err(|error| report(&error))
        });
        process.await
    }

    /// Starts one more worker with these flags and waits until it is ready. Unless they say otherwise, it is on a machine
    /// of its own: no other worker looks after its lock.
    ///
    /// # Panics
    ///
    /// It does not start.
    pub async fn add_worker(&mut self, flags: &[&str]) -> &mut Process {
        let start = async || {
            let builder = Worker::builder();
            self.worker_of(&self.database, builder, flags).await
        };
        let process = Process::supervised(start).await;
        self.workers.push(process);
        self.workers.last_mut().expect("one was just added")
    }

    /// Starts one more worker that has tools of its own, with these flags, and waits until it is ready.
    ///
    /// # Panics
    ///
    /// It does not start.
    pub async fn add_worker_with(&mut self, builder: Builder, flags: &[&str]) -> &mut Process {
        let mut process = self.worker_of(&self.database, builder, flags).await;
        process.ready().await;
        self.workers.push(process);
        self.workers.last_mut().expect("one was just added")
    }

    /// Starts a worker of this database with these flags on the fleet's nats-server, and waits for nothing.
    pub async fn worker_of(
        &self,
        database: &Database,
        builder: Builder,
        flags: &[&str],
    ) -> Process {
        let name = format!("worker-{}", self.workers.len() + 1);
        let mut config: worker::Config = self.settings(User::Worker, &name, database, flags);
        if self.roles {
            config.store.database_url = database.url_of(Duty::Worker.role()).into();
        }
        config.guard_program = Some(built("fleet_tests_guard"));
        let alone = || self.nats_folder.path().join(format!("state of {name}"));
        config.state_dir.get_or_insert_with(alone);
        let tools = || database.tool_url().into();
        config.tool_database_url.get_or_insert_with(tools);
        let process = Process::start(&name, |listener, stop| async move {
            let run = Box::pin(builder.serve(config, listener, stop.cancelled_owned()));
            run.await.map_err(|error| report(&error))
        });
        process.await
    }

    /// Applies a manifest as an operator does, bell included.
    ///
    /// # Panics
    ///
    /// It is refused, or not new.
    pub async fn apply(&self, manifest: &str) {
        let manifest = manifest::parse(manifest).expect("the test's manifest is good");
        let mut connection = self.database.connect().await;
        let applied = tools::apply(&mut connection, &manifest, "fleet-tests")
            .await
            .expect("apply a tool");
        assert_eq!(applied, Applied::Created, "{}", manifest.name);
        for tool in worker::built_in_of([&manifest]) {
            let applied = tools::apply(&mut connection, &tool, "fleet-tests").await;
            assert_ne!(applied.expect("apply a tool"), Applied::Conflict);
        }
        self.ring().await;
    }

    /// Retires a tool as an operator does, bell included.
    ///
    /// # Panics
    ///
    /// It is not there, or was retired before.
    pub async fn retire(&self, tool: &str) {
        let tool = tool.parse().expect("a tool's name");
        let retire = Retire {
            tool: &tool,
            by: "fleet-tests",
            note: "a test",
        };
        let mut connection = self.database.connect().await;
        let retired = retire::retire(&mut connection, retire).await;
        let retired = retired.expect("retire a tool");
        assert!(matches!(retired, Retired::Now(_)), "{retired:?}");
        self.ring().await;
    }

    /// Tells every process to look at the tools and controls now.
    ///
    /// # Panics
    ///
    /// NATS is not there.
    pub async fn ring(&self) {
        let bell = Subjects::new("toolfleet".parse().expect("a prefix")).control_changed();
        self.client
            .publish(bell, bytes::Bytes::new())
            .await
            .expect("ring the bell");
        self.client.flush().await.expect("ring the bell");
    }

    /// A call to be made with these arguments.
    pub fn submit(&self, tool: &str, args: &Value) -> Submission {
        self.submit_bytes(tool, args.to_string())
    }

    /// A call to be made with this body, whatever it is.
    pub fn submit_bytes(&self, tool: &str, body: impl Into<bytes::Bytes>) -> Submission {
        let accepted = Arc::clone(&self.accepted);
        Submission::new(self.caller.clone(), tool, body.into(), accepted)
    }

    /// What `get` answers to this body, for the default tenant.
    ///
    /// # Panics
    ///
    /// No dispatcher answers.
    pub async fn get(&self, asked: &Value) -> Answer {
        self.ask("toolfleet.v1.default.get", asked).await
    }

    /// What an endpoint answers to this body.
    ///
    /// # Panics
    ///
    /// No dispatcher answers.
    pub async fn ask(&self, subject: &'static str, asked: &Value) -> Answer {
        let answer = self.ask_bytes(subject, asked.to_string()).await;
        answer.expect("a dispatcher answers")
    }

    /// What an endpoint answers to these bytes; `None` when none does within [`LONG`].
    pub async fn ask_bytes(
        &self,
        subject: &'static str,
        body: impl Into<bytes::Bytes>,
    ) -> Option<Answer> {
        let question = Question {
            patience: LONG,
            ..Question::new(subject.to_owned(), body)
        };
        let answer = self.caller.ask(question).await;
        answer.ok().map(|answer| Answer::read(&answer))
    }

    /// Every call that was ever answered for.
    pub fn accepted(&self) -> Vec<CallId> {
        let accepted = self.accepted.lock().unwrap_or_else(PoisonError::into_inner);
        accepted.iter().copied().collect()
    }

    /// The stream of pointers, if it is there.
    pub async fn stream(&self) -> Option<jetstream::stream::Stream> {
        let jetstream = jetstream::new(self.client.clone());
        jetstream.get_stream(STREAM).await.ok()
    }

    /// A folder that goes with this fleet.
    pub(crate) fn folder(&self) -> &Path {
        self.nats_folder.path()
    }

    pub(crate) fn settings<C: Args>(
        &self,
        user: User,
        name: &str,
        database: &Database,
        flags: &[&str],
    ) -> C {
        let login = self.login(user, self.nats_port);
        let own = [
            "fleet-tests",
            "--name",
            name,
            "--database-url",
            &database.url,
        ];
        let own = own.into_iter().chain(login.iter().map(String::as_str));
        let flags = Flags::<C>::try_parse_from(own.chain(flags.iter().copied()));
        flags.expect("the flags of a test are good").config
    }
}

/// Settings as they are on a command line; of a flag that stands there twice the last one counts.
#[derive(Parser)]
#[command(args_override_self = true)]
struct Flags<C: Args> {
    #[command(flatten)]
    config: C,
}

/// One counter of this process, over all fleets in it, with the labels it is written with: `name{label="value"}`.
pub fn counter(series: &str) -> f64 {
    let text = telemetry::metrics_text();
    let value = text
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .find(|(name, _)| *name == series)
        .and_then(|(_, value)| value.parse().ok());
    value.unwrap_or(0.0)
}

/// A program that was built with the tests.
///
/// # Panics
///
/// The test does not run in its build.
pub fn built(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    let built = program
        .ancestors()
        .nth(2)
        .expect("a test runs in its build");
    built.join(name)
}

/// What the program does once, before it is a dispatcher or a worker: TLS, and telemetry, without which metrics count
/// nothing. `TOOLFLEET_LOG` shows logs.
fn start_process() {
    static STARTED: OnceLock<Option<Telemetry>> = OnceLock::new();
    STARTED.get_or_init(|| {
        // The only failure is that there is one already.
        drop(rustls::crypto::ring::default_provider().install_default());
        #[expect(clippy::disallowed_methods, reason = "a test has no command line")]
        let log = std::env::var("TOOLFLEET_LOG").unwrap_or_else(|_unset| "off".to_owned());
        let options = TelemetryOptions {
            log,
            ..TelemetryOptions::default()
        };
        // A test that wants spans has started it already.
        telemetry::start("tests", &options).ok()
    });
}

/// Long enough for a bell that was missed and the poll behind it.
pub const FLEET_WIDE: Duration = Duration::from_secs(2);

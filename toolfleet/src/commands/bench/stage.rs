//! The fleet that is measured: one that runs, or one of the bench's own in a temporary folder. And the bench's workers,
//! processes of this very program.

use std::{
    fs::Permissions,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use fleet::{bus::connect::Bus, config::BusArgs};
use nix::sys::signal::Signal;
use secrecy::{ExposeSecret, SecretString};
use tempfile::TempDir;
use tokio::{
    net::lookup_host,
    process::Command,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use toolfleet_load::{
    GatewayPlace, Ledger, QUEUE,
    processes::{self, Watched},
};
use uuid::Uuid;

use crate::{
    commands::{connect, dev::hooks},
    dev::{Dev, DevOptions, Screen, is_ready},
    servers::{
        free_ports,
        process::{Ending, Launch, Process},
    },
};

/// How long workers may take until they are ready.
const READY_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
/// A worker drains what it runs, which takes a moment.
const ENDING: Ending = Ending {
    ask: Signal::SIGTERM,
    grace: Duration::from_secs(15),
    at_once: Signal::SIGKILL,
};

/// Where the fleet is.
#[derive(Debug, Clone)]
pub(super) struct FleetPlace {
    pub(super) database_url: SecretString,
    /// The same for sql tools; without it there are no transactions.
    pub(super) tool_database_url: Option<SecretString>,
    pub(super) bus: BusArgs,
}

/// Everything that runs for the bench.
pub(super) struct Stage {
    pub(super) place: FleetPlace,
    /// A gateway, where something goes over HTTP.
    pub(super) gateway: Option<GatewayPlace>,
    pub(super) watched: Vec<Watched>,
    workers: Vec<Process>,
    dev: Option<Dev>,
    folder: TempDir,
}

impl Stage {
    /// A fleet of its own: Postgres, nats-server and dispatchers, all with their defaults.
    pub(super) async fn of_its_own(
        dispatchers: u16,
        gateways: u16,
        stop: &CancellationToken,
    ) -> anyhow::Result<Option<Self>> {
        let folder = folder()?;
        let options = DevOptions {
            data: folder.path().join("fleet"),
            tools: None,
            workers: 0,
            dispatchers,
            gateways,
            // It may be one of several on this machine, and is gone in a minute.
            nats_port: Some(0),
            postgres_port: Some(0),
            http_port: Some(0),
            gateway_port: Some(0),
            concurrency: 64,
            program: None,
        };
        let screen = Screen::new(std::io::sink());
        let unhurried = CancellationToken::new();
        let started = Dev::start(&options, hooks(), screen, stop, &unhurried);
        let Some(dev) = Box::pin(started).await? else {
            return Ok(None);
        };
        let state = dev.state();
        #[expect(
            clippy::disallowed_methods,
            reason = "the dispatchers read it from there, whatever a flag says"
        )]
        let prefix = std::env::var("TOOLFLEET_PREFIX").unwrap_or_else(|_| "toolfleet".to_owned());
        let place = FleetPlace {
            database_url: state.database_url.into(),
            tool_database_url: Some(state.tool_database_url.into()),
            bus: BusArgs {
                prefix: prefix.parse().context("read TOOLFLEET_PREFIX")?,
                ..BusArgs::at(state.nats_url.into())
            },
        };
        let mut watched = Vec::new();
        for (number, pid) in (1..).zip(state.dispatcher_pids) {
            watched.push(watch(&format!("dispatcher_{number}"), pid, false));
        }
        for (number, pid) in (1..).zip(state.gateway_pids) {
            watched.push(watch(&format!("gateway_{number}"), pid, false));
        }
        watched.extend(state.nats_pid.map(|pid| watch("nats", pid, false)));
        watched.extend(state.postgres_pid.map(|pid| watch("postgres", pid, true)));
        let gateway = match state.gateway_url.zip(state.gateway_token) {
            Some((url, token)) => Some(gateway_at(&url, token.into()).await?),
            None => None,
        };
        Ok(Some(Self {
            gateway,
            ..Self::new(place, watched, Some(dev), folder)
        }))
    }

    /// A fleet that runs already; its processes on this machine are measured.
    pub(super) async fn that_runs(place: FleetPlace, ledger: &mut Ledger) -> anyhow::Result<Self> {
        let mut watched = Vec::new();
        let programs = processes::all().into_iter();
        let url = place.database_url.expose_secret();
        let dispatchers: Vec<u32> = programs.clone().filter(|pid| is_dispatcher(*pid)).collect();
        let named = |pid: &u32| processes::has_variable(*pid, "DATABASE_URL", url);
        let of_ours = match dispatchers[..] {
            // Only root sees what it is told; with several it cannot be told which is meant.
            [only] if processes::is_hidden(only) => vec![only],
            _ => dispatchers.into_iter().filter(named).collect(),
        };
        for (number, pid) in (1..).zip(of_ours) {
            watched.push(watch(&format!("dispatcher_{number}"), pid, false));
        }
        let servers =
            programs.filter(|pid| processes::program(*pid).as_deref() == Some("nats-server"));
        // With several servers it cannot be told which is meant.
        if let [pid] = servers.collect::<Vec<_>>()[..] {
            watched.push(watch("nats", pid, false));
        }
        let backend = u32::try_from(ledger.backend().await?).unwrap_or_default();
        if processes::program(backend).is_some_and(|name| name.starts_with("postgres"))
            && let Some(postmaster) = processes::parent(backend)
        {
            watched.push(watch("postgres", postmaster, true));
        }
        Ok(Self::new(place, watched, None, folder()?))
    }

    fn new(
        place: FleetPlace,
        mut watched: Vec<Watched>,
        dev: Option<Dev>,
        folder: TempDir,
    ) -> Self {
        watched.push(watch("bench", std::process::id(), false));
        Self {
            place,
            gateway: None,
            watched,
            workers: Vec::new(),
            dev,
            folder,
        }
    }

    /// Whether the servers are its own.
    pub(super) const fn is_its_own(&self) -> bool {
        self.dev.is_some()
    }

    /// The folder for notes about effects.
    pub(super) fn effects(&self) -> PathBuf {
        self.folder.path().join("effects")
    }

    /// Connects to the bus.
    pub(super) async fn bus(&self) -> anyhow::Result<Bus> {
        Ok(connect::bus(&self.place.bus).await?)
    }

    /// Starts the workers and waits until they are ready.
    pub(super) async fn start_workers(&mut self, count: u16) -> anyhow::Result<()> {
        std::fs::create_dir_all(self.effects()).context("make the folder of effects")?;
        let program = std::env::current_exe().context("find this very program")?;
        let ports = free_ports(usize::from(count))?;
        let mut awaited = Vec::new();
        for (number, port) in (1..).zip(ports) {
            let address: SocketAddr = (Ipv4Addr::LOCALHOST, port).into();
            let name = format!("bench-worker-{number}");
            let instance = Uuid::new_v4();
            let process = self.worker(&program, &name, address, instance)?;
            self.watched
                .push(watch(&format!("worker_{number}"), process.pid(), false));
            self.workers.push(process);
            awaited.push((address, instance));
        }
        let until = Instant::now() + READY_MAX;
        for (process, (address, instance)) in self.workers.iter_mut().zip(awaited) {
            while !is_ready(address, instance).await {
                if process.ended().context("look after a worker")?.is_some()
                    || Instant::now() > until
                {
                    let (name, tail) = (process.name(), process.log_tail());
                    bail!("{name} does not get ready; its log says:\n{tail}");
                }
                sleep(POLL).await;
            }
        }
        Ok(())
    }

    fn worker(
        &self,
        program: &Path,
        name: &str,
        address: SocketAddr,
        instance: Uuid,
    ) -> anyhow::Result<Process> {
        let mut command = Command::new(program);
        command
            .args(["bench-worker", "--parent-pipe", "--name", name])
            .args(["--queues", QUEUE, "--http", &address.to_string()])
            .args(["--instance", &instance.to_string()])
            .arg("--effects")
            .arg(self.effects())
            .arg("--state-dir")
            .arg(self.folder.path().join("workers"))
            .env("DATABASE_URL", self.place.database_url.expose_secret())
            .env("NATS_URL", self.place.bus.nats_url.expose_secret())
            .env("NATS_INBOX", self.place.bus.nats_inbox.as_str())
            .env("TOOLFLEET_PREFIX", self.place.bus.prefix.as_str());
        if let Some(url) = &self.place.tool_database_url {
            command.env("WORKER_TOOL_DATABASE_URL", url.expose_secret());
        }
        Ok(Process::spawn(Launch {
            name: name.to_owned(),
            command,
            log: self.folder.path().join(format!("{name}.log")),
            ending: ENDING,
            parent_pipe: true,
        })?)
    }

    /// Ends everything that was started for the bench and removes its files.
    pub(super) async fn stop(self) {
        let go_on = CancellationToken::new();
        for mut worker in self.workers {
            worker.stop(&go_on).await;
        }
        if let Some(dev) = self.dev {
            dev.stop().await;
        }
        // Where Postgres could not have its cluster in the folder, there is a link to it.
        if let Ok(moved) = std::fs::read_link(self.folder.path().join("fleet/postgres"))
            && let Some(home) = moved.parent()
        {
            // It belongs to this temporary folder, and an empty folder that stays does no harm.
            std::fs::remove_dir_all(home).unwrap_or_default();
        }
        if let Err(problem) = self.folder.close() {
            crate::commands::output::warn(&format!("the temporary folder stays: {problem}"));
        }
    }
}

/// A gateway at `http://host:port`.
pub(super) async fn gateway_at(url: &str, token: SecretString) -> anyhow::Result<GatewayPlace> {
    let place = url.trim_end_matches('/').strip_prefix("http://");
    let place = place.context("--gateway-url is not http://host:port")?;
    let mut found = lookup_host(place)
        .await
        .context("find the gateway of --gateway-url")?;
    let address = found.next().context("--gateway-url leads nowhere")?;
    Ok(GatewayPlace { address, token })
}

/// The user who runs Postgres for root must be able to pass through it.
fn folder() -> anyhow::Result<TempDir> {
    tempfile::Builder::new()
        .prefix("toolfleet-bench-")
        .permissions(Permissions::from_mode(0o755))
        .tempdir()
        .context("make a temporary folder")
}

fn watch(name: &str, pid: u32, with_children: bool) -> Watched {
    Watched {
        name: name.to_owned(),
        pid,
        with_children,
    }
}

fn is_dispatcher(pid: u32) -> bool {
    let words = crate::servers::process::command_line(pid);
    let of_ours = words
        .first()
        .is_some_and(|first| first.ends_with("toolfleet"));
    of_ours && words.get(1).is_some_and(|verb| verb == "dispatcher")
}

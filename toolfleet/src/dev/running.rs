//! A whole `dev`: started in order, kept alive, stopped in the reverse order.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use fleet::fencing::StateDir;
use futures_util::future::BoxFuture;
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    child::{self, ChildSpec},
    console,
    deaths::{Deaths, Reporter},
    engines::{Engines, restart_postgres},
    hooks::DevHooks,
    keep::{Around, Tier},
    layout::Layout,
    lock::DevLock,
    logs,
    options::DevOptions,
    ports::{Choice, IsKept, Ports},
    private, ready,
    screen::Screen,
    state::{self, Board, DevState, Role, Urls},
    tools::ToolFolder,
    ways::Ways,
};
use crate::servers::{self, Nats, Postgres, find::SearchPaths, hold_ports};

/// How long the migrations may take.
const MIGRATE_MAX: Duration = Duration::from_secs(300);
/// How long the last dead workers may take to be reported and fenced when everything stops.
const REPORTS_MAX: Duration = Duration::from_secs(3);

/// Everything that runs, kept alive. Stop it with [`Dev::stop`]: dropping it only sends signals and does not wait.
pub struct Dev {
    layout: Layout,
    screen: Screen,
    board: Arc<Board>,
    hurry: CancellationToken,
    gateways: Tier,
    workers: Tier,
    dispatchers: Tier,
    nats: Tier,
    postgres: Tier,
    reporter: Option<Reporter>,
    watchers: JoinSet<()>,
    tools: String,
    notes: Vec<String>,
    postgres_bin: Option<PathBuf>,
    /// Where the person signs in to the console.
    console: Option<String>,
    ready_after: Duration,
    // Last: no other `dev` may have the folder before everything above is gone.
    _lock: DevLock,
}

impl Dev {
    /// Starts everything and waits until it is ready; `None` when `stop` came first.
    ///
    /// # Errors
    ///
    /// Something does not start; everything that ran is stopped again.
    pub async fn start(
        options: &DevOptions,
        hooks: DevHooks,
        screen: Screen,
        stop: &CancellationToken,
        hurry: &CancellationToken,
    ) -> anyhow::Result<Option<Self>> {
        let began = Instant::now();
        let layout = Layout::create(&options.data)?;
        let lock = DevLock::take(&layout.at("dev.lock"))?;
        let mut dev = Self {
            screen,
            board: Arc::new(Board::new(layout.at("dev.json"))),
            layout,
            hurry: hurry.clone(),
            gateways: Tier::new(),
            workers: Tier::new(),
            dispatchers: Tier::new(),
            nats: Tier::new(),
            postgres: Tier::new(),
            reporter: None,
            watchers: JoinSet::new(),
            tools: "none (--tools DIR applies a folder of manifests)".to_owned(),
            notes: Vec::new(),
            postgres_bin: None,
            console: None,
            ready_after: Duration::ZERO,
            _lock: lock,
        };
        let started = tokio::select! {
            started = Box::pin(dev.bring_up(options, hooks)) => started.map(|()| true),
            () = stop.cancelled() => Ok(false),
        };
        match started {
            Ok(true) => {
                dev.ready_after = began.elapsed();
                Ok(Some(dev))
            }
            Ok(false) => {
                dev.stop().await;
                Ok(None)
            }
            Err(problem) => {
                dev.stop().await;
                Err(problem)
            }
        }
    }

    /// The addresses and the pids of this moment, as in `dev.json`.
    pub fn state(&self) -> DevState {
        self.board.state()
    }

    /// Lines for the person, once everything is up.
    pub fn summary(&self) -> Vec<String> {
        let state = self.state();
        let data = self.layout.path();
        let mut lines = vec![format!(
            "toolfleet dev is ready after {:.1} s",
            self.ready_after.as_secs_f32()
        )];
        lines.extend(self.notes.iter().map(|note| format!("  note      {note}")));
        lines.extend(Ways::new(data, &state, self.postgres_bin.as_deref()).lines());
        let console = self.console.iter();
        lines.extend(console.map(|link| format!("  console   {link} signs in once")));
        lines.extend([
            format!("  tools     {}", self.tools),
            format!(
                "  kept      {}: data, ports, passwords and logs; the next run goes on with them",
                data.display()
            ),
            "Ctrl-C stops everything".to_owned(),
        ]);
        lines
    }

    /// Stops everything: gateways, workers, dispatchers, nats-server, Postgres, each bounded; then removes `dev.json`.
    pub async fn stop(mut self) {
        self.watchers.shutdown().await;
        self.gateways.stop().await;
        self.workers.stop().await;
        self.dispatchers.stop().await;
        if let Some(reporter) = self.reporter.take() {
            reporter.finish(REPORTS_MAX).await;
        }
        self.nats.stop().await;
        self.postgres.stop().await;
        // A server whose start was interrupted was told to end, and is waited for here.
        if let Err(problem) = self.end_servers().await {
            self.screen.line(&format!("{problem:#}"));
        }
        if let Err(reason) = self.board.withdraw() {
            self.screen
                .line(&format!("dev.json cannot be removed: {reason}"));
        }
    }

    async fn bring_up(&mut self, options: &DevOptions, hooks: DevHooks) -> anyhow::Result<()> {
        if let Some(folder) = &options.tools {
            ensure!(
                folder.is_dir(),
                "--tools {} is not a folder",
                folder.display()
            );
        }
        self.watchers
            .spawn(logs::keep_small(self.layout.at("logs")));
        let left = self.clear_leftovers().await?;
        let (kept, is_kept) = Ports::kept(&self.layout.at("ports.json"));
        let http = Choice::of(
            "the first dispatcher",
            "--http-port",
            options.http_port,
            kept.http_port,
            is_kept,
        )?;
        self.notes.extend(http.note.clone());
        let gateway = match options.gateways {
            0 => None,
            _some => Some(Choice::of(
                "the first gateway",
                "--gateway-port",
                options.gateway_port,
                kept.gateway_port,
                is_kept,
            )?),
        };
        self.notes
            .extend(gateway.iter().filter_map(|choice| choice.note.clone()));
        let servers = self.start_servers(options, hooks, (kept, is_kept)).await?;
        let (database_url, nats_url, deaths) = servers;
        let migrated = timeout(MIGRATE_MAX, (hooks.migrate)(database_url.clone())).await;
        migrated
            .context("the migrations take too long")?
            .context("apply the migrations")?;
        self.report_predecessors(left, &deaths)?;

        let mut tools = None;
        if let Some(folder) = &options.tools {
            let mut found = ToolFolder::new(
                folder.clone(),
                database_url.clone(),
                hooks,
                self.screen.clone(),
            );
            found.apply_all().await;
            self.tools = found.summary();
            tools = Some(found);
        }
        let file = self.layout.at("tools.password");
        let password = private::password(&file)
            .with_context(|| format!("keep the password of sql tools in {}", file.display()))?;
        let tool_database_url = servers::tools::provision(&database_url, &password).await?;
        let gateway = match gateway {
            None => None,
            Some(port) => Some((port, self.gateway_token(hooks, &database_url).await?)),
        };
        let servers = Servers {
            database_url,
            tool_database_url,
            nats_url: nats_url.clone(),
        };
        self.start_children(options, &servers, http, gateway, deaths)
            .await?;
        if let Some(tools) = tools {
            self.watchers.spawn(tools.watch(nats_url));
        }
        self.keep_ways()?;
        self.console = console::link(&self.state()).await;
        self.board.publish().context("write dev.json")
    }

    /// Writes the files for the next run, and the addresses.
    fn keep_ways(&self) -> anyhow::Result<()> {
        let state = self.state();
        let data = self.layout.path();
        let ports = Ports {
            nats_port: port_of(&state.nats_url)?,
            postgres_port: port_of(&state.database_url)?,
            http_port: port_of(&state.http_url)?,
            gateway_port: match &state.gateway_url {
                Some(url) => port_of(url)?,
                None => Ports::kept(&data.join("ports.json")).0.gateway_port,
            },
        };
        let write = || {
            ports.keep(&data.join("ports.json"))?;
            Ways::new(data, &state, self.postgres_bin.as_deref()).write()
        };
        write().with_context(|| format!("write down ports and ways in {}", data.display()))
    }

    /// Ends what a killed predecessor left running; returns what its `dev.json` said.
    async fn clear_leftovers(&self) -> anyhow::Result<Option<DevState>> {
        let (file, aside) = (
            self.layout.at("dev.json"),
            self.layout.at("dev.json.previous"),
        );
        // Renamed at once, so that client commands do not take it for this one's; kept until its workers' deaths are reported.
        if file.exists() {
            std::fs::rename(&file, &aside).context("put the previous dev.json aside")?;
        }
        let left = state::read(&aside);
        if let Some(left) = &left {
            child::end_orphans(left).await?;
        }
        for ended in self.end_servers().await? {
            self.screen
                .line(&format!("ended the {ended} of a `dev` that was killed"));
        }
        Ok(left)
    }

    /// Ends servers on this data without a `dev`; returns lines about them for the person.
    async fn end_servers(&self) -> anyhow::Result<Vec<String>> {
        let (store, data) = (self.layout.at("nats"), self.layout.at("postgres"));
        let (nats, postgres) =
            tokio::try_join!(Nats::end_orphan(&store), Postgres::end_orphan(&data))?;
        let found = [("nats-server", nats), ("Postgres", postgres)].into_iter();
        Ok(found
            .filter_map(|(what, pid)| Some(format!("{what} (pid {})", pid?)))
            .collect())
    }

    async fn start_servers(
        &mut self,
        options: &DevOptions,
        hooks: DevHooks,
        kept: (Ports, IsKept),
    ) -> anyhow::Result<(String, String, Deaths)> {
        let Engines {
            postgres,
            nats,
            postgres_options,
            nats_options,
            notes,
        } = Engines::start(&self.layout, options, kept).await?;
        self.notes.extend(notes);
        self.postgres_bin = servers::find::postgres_bin(&SearchPaths::of_this_process())
            .await
            .ok();
        let (database_url, nats_url) = (postgres.url(), nats.url());

        let (url, screen) = (database_url.clone(), self.screen.clone());
        let state_dir = StateDir::open(&self.layout.at("workers"))?;
        let (reporter, deaths) = Reporter::start(url, state_dir, hooks, screen);
        self.reporter = Some(reporter);
        let around = self.around(None);
        let again = move || -> BoxFuture<'static, _> {
            let options = postgres_options.clone();
            Box::pin(restart_postgres(options))
        };
        self.postgres.keep(
            postgres.into_process(),
            Role::Postgres,
            Box::new(again),
            around.clone(),
        );
        let again = move || -> BoxFuture<'static, _> {
            let options = nats_options.clone();
            Box::pin(async { Ok(Nats::start(options).await?.into_process()) })
        };
        self.nats
            .keep(nats.into_process(), Role::Nats, Box::new(again), around);
        Ok((database_url, nats_url, deaths))
    }

    /// Its workers are gone: this process ended them, or they did not run any more.
    fn report_predecessors(&self, left: Option<DevState>, deaths: &Deaths) -> anyhow::Result<()> {
        let Some(left) = left else { return Ok(()) };
        left.worker_pids
            .into_iter()
            .for_each(|pid| deaths.report(pid));
        std::fs::remove_file(self.layout.at("dev.json.previous"))
            .context("remove the previous dev.json")
    }

    /// The token of the last run, where it still holds, else a new one.
    async fn gateway_token(&self, hooks: DevHooks, database_url: &str) -> anyhow::Result<String> {
        let file = self.layout.at("gateway.token");
        let kept = private::read(&file).ok();
        let kept = kept.and_then(|text| String::from_utf8(text).ok());
        let token = (hooks.token)(database_url.to_owned(), kept.clone()).await;
        let token = token.context("make a token for the gateway")?;
        if kept.as_ref() != Some(&token) {
            private::replace(&file, token.as_bytes())
                .with_context(|| format!("keep the gateway's token in {}", file.display()))?;
        }
        Ok(token)
    }

    async fn start_children(
        &mut self,
        options: &DevOptions,
        servers: &Servers,
        http: Choice,
        gateway: Option<(Choice, String)>,
        deaths: Deaths,
    ) -> anyhow::Result<()> {
        let roles: Vec<Role> = (1..=options.dispatchers)
            .map(Role::Dispatcher)
            .chain((1..=options.workers).map(Role::Worker))
            .chain((1..=options.gateways).map(Role::Gateway))
            .collect();
        // Held until its process starts: the last ones start seconds after the first.
        let free = hold_ports(2 * roles.len())?;
        let mut probes: Vec<Choice> = free.into_iter().map(Choice::from).collect();
        let mut apis = probes.split_off(roles.len());
        probes[0] = http;
        let first = usize::from(options.dispatchers + options.workers);
        let api = gateway.map(|(choice, token)| {
            let url = format!("http://127.0.0.1:{}", choice.port);
            apis[first] = choice;
            (url, token)
        });
        let program = program(options)?;
        let specs: Vec<ChildSpec> = roles
            .into_iter()
            .zip(probes.iter().zip(&apis))
            .map(|(role, (probe, listen))| ChildSpec {
                role,
                program: program.clone(),
                http_port: probe.port,
                listen_port: listen.port,
                gateway_url: api.as_ref().map(|(url, _token)| url.clone()),
                instance: Uuid::new_v4(),
                nats_url: servers.nats_url.clone(),
                database_url: servers.database_url.clone(),
                tool_database_url: servers.tool_database_url.clone(),
                concurrency: options.concurrency,
                secrets: self.layout.at("secrets"),
                state_dir: self.layout.at("workers"),
                log: self.layout.log(&role.to_string()),
            })
            .collect();
        let http_url = format!("http://{}", specs[0].address());
        self.board.locate(Urls {
            nats: servers.nats_url.clone(),
            database: servers.database_url.clone(),
            tool_database: servers.tool_database_url.clone(),
            http: http_url,
            gateway: api,
        });

        let mut held = probes.into_iter().zip(apis);
        let (engine, gateways) = specs.split_at(first);
        let (dispatchers, workers) = engine.split_at(usize::from(options.dispatchers));
        for tier in [dispatchers, workers, gateways] {
            for spec in tier {
                drop(held.next());
                self.keep_child(spec.clone(), &deaths)?;
            }
            let awaited: Vec<_> = tier.iter().map(ChildSpec::awaited).collect();
            ready::wait_for_all(&awaited, &self.board, |role| {
                self.layout.log(&role.to_string())
            })
            .await?;
        }
        Ok(())
    }

    fn keep_child(&mut self, spec: ChildSpec, deaths: &Deaths) -> anyhow::Result<()> {
        let (first, role) = (spec.start()?, spec.role);
        let is_worker = matches!(role, Role::Worker(_));
        let around = self.around(is_worker.then(|| deaths.clone()));
        let tier = match role {
            Role::Worker(_) => &mut self.workers,
            Role::Gateway(_) => &mut self.gateways,
            Role::Dispatcher(_) | Role::Nats | Role::Postgres => &mut self.dispatchers,
        };
        let again = move || -> BoxFuture<'static, _> {
            let started = spec.start().map_err(anyhow::Error::from);
            Box::pin(std::future::ready(started))
        };
        tier.keep(first, role, Box::new(again), around);
        Ok(())
    }

    fn around(&self, deaths: Option<Deaths>) -> Around {
        Around {
            board: Arc::clone(&self.board),
            screen: self.screen.clone(),
            deaths,
            hurry: self.hurry.clone(),
        }
    }
}

/// The addresses of both servers.
struct Servers {
    database_url: String,
    /// The same for sql tools.
    tool_database_url: String,
    nats_url: String,
}

fn program(options: &DevOptions) -> anyhow::Result<PathBuf> {
    match &options.program {
        Some(program) => Ok(program.clone()),
        None => std::env::current_exe().context("find this very program, to start workers with it"),
    }
}

/// The port in one of our URLs.
fn port_of(url: &str) -> anyhow::Result<u16> {
    let place = url.rsplit(['@', '/']).find(|part| part.contains(':'));
    let port = place.and_then(|place| place.rsplit(':').next()?.parse().ok());
    port.context("find the port in a URL of our own")
}

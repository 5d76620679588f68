//! The running whole: started in order, kept alive, stopped in the reverse order.

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

use super::{
    DevHooks, DevOptions, Layout, Screen,
    child::{self, ChildSpec},
    deaths::{Deaths, Reporter},
    keep::{Around, Tier},
    lock::DevLock,
    logs, ready,
    state::{self, Board, DevState, Role, Urls},
    tools::Tools,
};
use crate::servers::{
    self, Nats, NatsOptions, Postgres, PostgresOptions, free_ports, nats::MAX_PAYLOAD,
    process::Process,
};

/// How long the migrations may take.
const MIGRATE_MAX: Duration = Duration::from_secs(300);
/// How long the last dead workers may take to be reported and fenced when everything stops.
const REPORTS_MAX: Duration = Duration::from_secs(3);

/// Everything, up and kept alive. Stop it with [`Dev::stop`]: dropping it only sends signals and does not wait.
pub struct Dev {
    layout: Layout,
    screen: Screen,
    board: Arc<Board>,
    hurry: CancellationToken,
    workers: Tier,
    dispatchers: Tier,
    nats: Tier,
    postgres: Tier,
    reporter: Option<Reporter>,
    watchers: JoinSet<()>,
    tools: String,
    notes: Vec<String>,
    ready_after: Duration,
    // Last: nobody else may have the folder before everything above is gone.
    _lock: DevLock,
}

impl Dev {
    /// Starts everything and waits until it is ready; none when `stop` came first.
    ///
    /// # Errors
    ///
    /// Something does not start; whatever was running is stopped again.
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
            workers: Tier::new(),
            dispatchers: Tier::new(),
            nats: Tier::new(),
            postgres: Tier::new(),
            reporter: None,
            watchers: JoinSet::new(),
            tools: "none (--tools DIR applies a folder of manifests)".to_owned(),
            notes: Vec::new(),
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

    /// Where everything is and who runs it at this moment; what `dev.json` says.
    pub fn state(&self) -> DevState {
        self.board.state()
    }

    /// What a person wants to know once it is up.
    pub fn summary(&self) -> Vec<String> {
        let state = self.state();
        let mut lines = vec![format!(
            "toolfleet dev is ready after {:.1} s",
            self.ready_after.as_secs_f32()
        )];
        lines.extend(self.notes.iter().map(|note| format!("  note      {note}")));
        lines.extend([
            format!("  NATS      {}", state.nats_url),
            format!("  Postgres  psql {}", state.database_url),
            format!("  sql tools psql {}", state.tool_database_url),
            format!("  HTTP      {}", state.http_url),
            format!("  tools     {}", self.tools),
            format!("  logs      {}", self.layout.at("logs").display()),
            "Ctrl-C stops everything".to_owned(),
        ]);
        lines
    }

    /// Stops everything: workers, dispatchers, nats-server, Postgres, each bounded; then removes `dev.json`.
    pub async fn stop(mut self) {
        self.watchers.shutdown().await;
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
        let (database_url, nats_url, deaths) = self.start_servers(options, hooks).await?;
        let migrated = timeout(MIGRATE_MAX, (hooks.migrate)(database_url.clone())).await;
        migrated
            .context("the migrations take too long")?
            .context("apply the migrations")?;
        self.report_predecessors(left, &deaths)?;

        if let Some(folder) = &options.tools {
            let mut tools = Tools::new(
                folder.clone(),
                database_url.clone(),
                hooks,
                self.screen.clone(),
            );
            tools.apply_all().await;
            self.tools = tools.summary();
            self.watchers.spawn(tools.watch());
        }
        let password = uuid::Uuid::new_v4().simple().to_string();
        let tool_database_url = servers::tools::provision(&database_url, &password).await?;
        self.start_children(
            options,
            &database_url,
            &tool_database_url,
            &nats_url,
            deaths,
        )
        .await?;
        self.board.publish().context("write dev.json")
    }

    /// Ends what a killed predecessor left running; what it had written down is what is left of it.
    async fn clear_leftovers(&self) -> anyhow::Result<Option<DevState>> {
        let (file, aside) = (
            self.layout.at("dev.json"),
            self.layout.at("dev.json.previous"),
        );
        // Out of the way at once, so that nobody takes it for ours; kept until its workers' deaths are reported.
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

    /// Ends servers on this data that nobody keeps; what they were, for people.
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
    ) -> anyhow::Result<(String, String, Deaths)> {
        let mut postgres_options = PostgresOptions {
            data: self.layout.at("postgres"),
            port: given(options.postgres_port),
            log: self.layout.log("postgres"),
            fsync: true,
            variables: Vec::new(),
        };
        let mut nats_options = NatsOptions {
            store: self.layout.at("nats"),
            port: given(options.nats_port),
            log: self.layout.log("nats-server"),
            max_payload: MAX_PAYLOAD,
        };
        let (postgres, nats) = tokio::try_join!(
            Postgres::start(postgres_options.clone()),
            Nats::start(nats_options.clone())
        )?;
        postgres_options.port = Some(postgres.port());
        nats_options.port = Some(nats.port());
        self.notes.extend(postgres.note().map(str::to_owned));
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

    /// Its workers are gone: ended by us, or not among the living when we looked.
    fn report_predecessors(&self, left: Option<DevState>, deaths: &Deaths) -> anyhow::Result<()> {
        let Some(left) = left else { return Ok(()) };
        left.worker_pids
            .into_iter()
            .for_each(|pid| deaths.report(pid));
        std::fs::remove_file(self.layout.at("dev.json.previous"))
            .context("remove the previous dev.json")
    }

    async fn start_children(
        &mut self,
        options: &DevOptions,
        database_url: &str,
        tool_database_url: &str,
        nats_url: &str,
        deaths: Deaths,
    ) -> anyhow::Result<()> {
        let roles: Vec<Role> = (1..=options.dispatchers)
            .map(Role::Dispatcher)
            .chain((1..=options.workers).map(Role::Worker))
            .collect();
        let mut ports = free_ports(roles.len())?;
        if let Some(port) = given(options.http_port) {
            ports[0] = port;
        }
        let program = program(options)?;
        let specs: Vec<ChildSpec> = roles
            .into_iter()
            .zip(ports)
            .map(|(role, http_port)| ChildSpec {
                role,
                program: program.clone(),
                http_port,
                nats_url: nats_url.to_owned(),
                database_url: database_url.to_owned(),
                tool_database_url: tool_database_url.to_owned(),
                concurrency: options.concurrency,
                secrets: self.layout.at("secrets"),
                state_dir: self.layout.at("workers"),
                log: self.layout.log(&role.to_string()),
            })
            .collect();
        let http_url = format!("http://{}", specs[0].address());
        self.board.locate(Urls {
            nats: nats_url.to_owned(),
            database: database_url.to_owned(),
            tool_database: tool_database_url.to_owned(),
            http: http_url,
        });

        let (dispatchers, workers) = specs.split_at(usize::from(options.dispatchers));
        for tier in [dispatchers, workers] {
            for spec in tier {
                self.keep_child(spec.clone(), &deaths)?;
            }
            let addresses: Vec<_> = tier
                .iter()
                .map(|spec| (spec.role, spec.address()))
                .collect();
            ready::wait_for_all(&addresses, &self.board, |role| {
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
        let tier = if is_worker {
            &mut self.workers
        } else {
            &mut self.dispatchers
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

/// Never creates a cluster: a new one has another password, and nothing of what was promised to be kept.
async fn restart_postgres(options: PostgresOptions) -> anyhow::Result<Process> {
    let data = options.data.display();
    ensure!(
        options.data.join("PG_VERSION").exists(),
        "its data folder {data} is gone: stop this `dev`"
    );
    Ok(Postgres::start(options).await?.into_process())
}

fn program(options: &DevOptions) -> anyhow::Result<PathBuf> {
    match &options.program {
        Some(program) => Ok(program.clone()),
        None => std::env::current_exe().context("find this very program, to start workers with it"),
    }
}

/// 0 on the command line means a free port.
const fn given(port: u16) -> Option<u16> {
    if port == 0 { None } else { Some(port) }
}

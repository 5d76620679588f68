//! `toolfleet bench`: load against a fleet, the results, and whether every effect happened exactly once.
//!
//! The crate `toolfleet-load` measures. Here are its `flags`, the `stage`, which starts servers and workers, and the `text` for
//! people.

mod flags;

mod stage;

mod text;

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, bail};
use fleet::{
    call::Effect,
    config::{ConfigError, ParentArgs},
    explain::chain,
    process::{self, asked_to_stop},
};
use tokio_util::sync::CancellationToken;
pub(super) use toolfleet_load::BenchWorker;
use toolfleet_load::{
    Ledger, Mode, Plan, Progress, Site,
    floor::{self, Floor},
    report::Report,
};

pub(super) use self::flags::BenchArgs;
use self::{
    flags::BATCH_BYTES,
    stage::{FleetPlace, Stage, gateway_at},
};
use super::{
    children, connect,
    exit::{FAILED, OK},
    output,
    usage::UsageError,
};
use crate::servers::find::{self, SearchPaths};

/// The most callers over HTTP: a gateway takes so many connections from one address, and a few more.
const HTTP_MAX: usize = 4_000;

fn no_database() -> UsageError {
    UsageError("say which fleet: DATABASE_URL, or --dev for one of its own".to_owned())
}

/// Checks that a picture can be written there. A file that exists stays until a new one is ready.
fn can_be_drawn(file: &Path) -> Result<(), ConfigError> {
    let was_there = file.exists();
    let opened = OpenOptions::new().append(true).create(true).open(file);
    let drawn = opened.and_then(|_empty| match was_there {
        true => Ok(()),
        false => std::fs::remove_file(file),
    });
    drawn.map_err(|problem| {
        ConfigError(vec![format!(
            "--svg is {}, which cannot be written: {}; name a file that this user may write",
            file.display(),
            chain(&problem)
        )])
    })
}

impl BenchArgs {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        if self.mode == Mode::Batch && self.batch * self.bytes > BATCH_BYTES {
            let what = format!("a batch may have {BATCH_BYTES} bytes: lower --batch or --bytes");
            return Err(UsageError(what).into());
        }
        if self.hits > 0 && (self.mode != Mode::Sync || self.tenants > 1 || self.failures > 0) {
            let what =
                "--hits is for callers of one tenant that wait, of a tool that does not fail: \
                        leave --mode, --tenants and --failures out"
                    .to_owned();
            return Err(UsageError(what).into());
        }
        let over_http = self.is_over_http();
        if over_http && (self.rate.is_some() || self.in_flight > HTTP_MAX) {
            let what = format!(
                "--via http and mcp are a connection for each caller: leave --rate out, and have at most {HTTP_MAX} in flight"
            );
            return Err(UsageError(what).into());
        }
        if over_http && !self.dev && (self.gateway_url.is_none() || self.gateway_token.is_none()) {
            let what =
                "--via http and mcp need --gateway-url and --gateway-token, or --dev for one of its own"
                    .to_owned();
            return Err(UsageError(what).into());
        }
        if !self.with.is_empty() && self.failures > 0 {
            let what =
                "--with measures brakes that hold nothing up, and failures would open a breaker: \
                        leave --failures out"
                    .to_owned();
            return Err(UsageError(what).into());
        }
        let floor = match self.floor {
            true => Some(floor::find(self.floor_program.as_ref())?),
            false => None,
        };
        self.check().await?;
        let stop = CancellationToken::new();
        let asked = asked_to_stop(ParentArgs::default())?;
        let shows = !self.json;
        let mut progress = Progress::new(shows.then_some(output::warn as fn(&str)));
        let mut running = Box::pin(self.on_stage(floor, &mut progress, &stop));
        tokio::select! {
            ended = &mut running => return ended,
            () = asked => stop.cancel(),
        }
        running.await
    }

    /// Whether some calls go through a gateway.
    fn is_over_http(&self) -> bool {
        self.via.iter().any(|via| via.spoken().is_some())
    }

    /// Checks every flag before anything is started.
    async fn check(&self) -> anyhow::Result<()> {
        let mut wrong = Vec::new();
        let mut note = |checked: Result<(), ConfigError>| {
            if let Err(ConfigError(sentences)) = checked {
                wrong.extend(sentences);
            }
        };
        let temporary = std::env::temp_dir();
        if !temporary.is_dir() {
            let what = format!(
                "TMPDIR is {}, which is not a folder; name one for temporary files",
                temporary.display()
            );
            note(Err(ConfigError(vec![what])));
        }
        if let Some(file) = &self.svg {
            note(can_be_drawn(file));
        }
        if !self.dev {
            let database = self.database_url.as_ref().ok_or_else(no_database)?;
            note(process::check_postgres_url("DATABASE_URL", database));
            if let Some(tools) = &self.tool_database_url {
                note(process::check_postgres_url(
                    "WORKER_TOOL_DATABASE_URL",
                    tools,
                ));
            }
        }
        if !wrong.is_empty() {
            return Err(ConfigError(wrong).into());
        }
        let prefix = self.bus.prefix.as_str();
        // With the flags that its workers get, whatever the environment says.
        children::check_worker(&[
            "--queues",
            toolfleet_load::QUEUE,
            "--name",
            "bench",
            "--prefix",
            prefix,
        ])?;
        if self.dev {
            children::check_dispatcher()?;
            let paths = SearchPaths::of_this_process();
            find::nats_server(&paths).await?;
            find::postgres_bin(&paths).await?;
        } else {
            process::check_bus_url(&self.bus)?;
        }
        Ok(())
    }

    /// Sets the stage, measures, and clears the stage whatever the result.
    async fn on_stage(
        &self,
        floor: Option<PathBuf>,
        progress: &mut Progress,
        stop: &CancellationToken,
    ) -> anyhow::Result<ExitCode> {
        progress.step("starting");
        let (mut stage, mut ledger) = if self.dev {
            let gateways = u16::from(self.is_over_http());
            let started = Stage::of_its_own(self.dispatchers, gateways, stop).await?;
            let Some(stage) = started else {
                return Ok(ExitCode::from(FAILED));
            };
            match Ledger::open(&stage.place.database_url).await {
                Ok(ledger) => (stage, ledger),
                Err(problem) => {
                    stage.stop().await;
                    return Err(problem);
                }
            }
        } else {
            let place = FleetPlace {
                database_url: self.database_url.clone().ok_or_else(no_database)?,
                tool_database_url: self.tool_database_url.clone(),
                bus: self.bus.clone(),
            };
            let mut ledger = Ledger::open(&place.database_url).await?;
            let mut stage = Stage::that_runs(place, &mut ledger).await?;
            if let (Some(url), Some(token)) = (&self.gateway_url, &self.gateway_token) {
                stage.gateway = Some(gateway_at(url, token.clone()).await?);
            }
            (stage, ledger)
        };
        let measuring = Box::pin(self.measure(&mut stage, &mut ledger, floor, progress));
        let measured = stop.run_until_cancelled(measuring).await;
        progress.end();
        let cleared = ledger.clear_table().await;
        stage.stop().await;
        let Some(report) = measured else {
            bail!("it was stopped before the end");
        };
        let report = report?;
        if let Err(problem) = cleared {
            output::warn(&format!("the table of effects is not emptied: {problem:#}"));
        }
        if let Some(file) = &self.svg {
            let drawn = std::fs::write(file, toolfleet_load::svg(&report.workloads));
            drawn.with_context(|| format!("write {}", file.display()))?;
        }
        if self.json {
            output::print_json(&report)?;
        } else {
            output::print(&text::report(&report))?;
        }
        let exit = if report.is_good() { OK } else { FAILED };
        Ok(ExitCode::from(exit))
    }

    async fn measure(
        &self,
        stage: &mut Stage,
        ledger: &mut Ledger,
        floor: Option<PathBuf>,
        progress: &mut Progress,
    ) -> anyhow::Result<Report> {
        let bus = stage.bus().await?;
        let mut plan = self.plan();
        let effects = self.effects(stage)?;
        if let Some(tools) = &stage.place.tool_database_url {
            ledger.make_table(tools).await?;
        }
        let mut connection = connect::writer(&stage.place.database_url).await?;
        toolfleet_load::apply(&plan, &mut connection, &bus).await?;
        drop(connection);
        stage.start_workers(self.workers).await?;
        plan.effects = effects;
        let floor = floor.map(|program| self.floor_of(stage, program));
        let site = Site {
            bus: &bus,
            gateway: stage.gateway.as_ref(),
            watched: &stage.watched,
            effects: stage.effects(),
            is_its_own: stage.is_its_own(),
        };
        toolfleet_load::measure(&plan, &site, ledger, floor, progress).await
    }

    /// The effect classes that can be measured here.
    fn effects(&self, stage: &Stage) -> anyhow::Result<Vec<Effect>> {
        let mut effects = self.effect.clone();
        if stage.place.tool_database_url.is_none() {
            effects.retain(|effect| *effect != Effect::Transaction);
            if effects.is_empty() {
                let what = "transactions need --tool-database-url".to_owned();
                return Err(UsageError(what).into());
            }
            if effects.len() < self.effect.len() {
                output::warn("without --tool-database-url no transactions are measured");
            }
        }
        Ok(effects)
    }

    fn plan(&self) -> Plan {
        Plan {
            effects: self.effect.clone(),
            ways: self.via.clone(),
            mode: self.mode,
            in_flight: self.in_flight,
            rate: self.rate,
            batch: self.batch as usize,
            bytes: self.bytes as usize,
            result_bytes: self.result_bytes,
            takes_ms: self.tool_ms,
            failures: self.failures,
            hits: self.hits,
            brakes: self.with.clone(),
            tenants: self.tenants,
            priority: self.priority,
            copies: self.tools,
            history: self.history,
            held: self.held,
            backlog: self.backlog,
            seconds: Duration::from_secs(self.seconds),
            warm_up: Duration::from_secs(self.warm_up),
            workers: self.workers,
        }
    }

    fn floor_of(&self, stage: &Stage, program: PathBuf) -> Floor {
        Floor {
            program,
            nats_url: stage.place.bus.nats_url.clone(),
            database_url: stage.place.database_url.clone(),
            in_flight: self.in_flight,
            bytes: self.bytes as usize,
            seconds: self.floor_seconds.unwrap_or(self.seconds.min(5)),
            warm_up: self.warm_up.min(1),
        }
    }
}

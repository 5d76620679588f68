//! The world before its first fault: what is started, in which order, and with what.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use fleet::store::{rights::Duty, tools};
use fleet_tests::postgres::with_port;
use nix::sys::signal::Signal;
use sqlx::AssertSqlSafe;
use tokio::{
    process::Command,
    task::JoinSet,
    time::{Instant, sleep},
};
use toolfleet::servers::{
    free_ports,
    process::{Ending, Launch, Process},
};
use worker::Worker;

use super::{
    Deaths, POLL, READY_MAX, World,
    clock::Clock,
    seat::{Arming, Program, Seat},
    servers::Servers,
};
use crate::{
    effects::{self, File, Places, native},
    login::Who,
    mutants::Mutant,
    plan::{Member, Plan, What, When},
    wire::{nats, postgres},
};

/// Calls that one worker runs at a time.
const CONCURRENCY: &str = "16";
/// Requests that one dispatcher has in hand at a time: a large batch and some others are too many.
const REQUESTS_MAX: &str = "48";

impl World {
    /// Starts all of it, with the plan's faults armed, and waits until it is ready.
    ///
    /// # Errors
    ///
    /// Something does not start.
    pub async fn start(
        plan: &Plan,
        mutant: Option<&Mutant>,
        roles: bool,
        out: &Path,
    ) -> Result<Self> {
        let toolfleet = program("chaos_toolfleet")?;
        let servers = Servers::start(roles.then_some(&toolfleet)).await?;
        let effects_file = out.join("effects.jsonl");
        let (effects, effects_url) = start_effects(&effects_file, &servers, out).await?;
        prepare(&servers, &effects_url, &effects_file, mutant).await?;
        if roles {
            servers.database.grant_roles().await;
        }
        let postgres_port = servers.cluster.port();
        let tools = postgres::Wire::to(postgres_port).await?;
        let clients = nats::Wire::to(servers.nats_port()).await?;
        let mut world = Self {
            seats: Vec::new(),
            effects_file,
            effects_url,
            _effects: effects,
            undo: Vec::new(),
            hogs: JoinSet::new(),
            drawn: plan.seed,
            looked: super::moment(),
            deaths: Deaths::default(),
            times: BTreeMap::new(),
            struck: Vec::new(),
            exits: Vec::new(),
            started: BTreeMap::new(),
            clock_moves: Vec::new(),
            processes: Vec::new(),
            servers,
            clients,
            tools,
        };
        if let Some(mutant) = mutant {
            world.tools.rewrite(mutant.rewrites());
        }
        for member in Member::PROCESSES {
            let name = member.to_string();
            let clock = Clock::new(&world.servers.library, world.servers.folder(), &name)?;
            let seat = world
                .make_seat(member, plan, (mutant, roles), clock, out)
                .await?;
            world.seats.push(seat);
        }
        world.arm(plan);
        world.look_after().await?;
        if let Some(late) = world.until_ready().await? {
            bail!("{late} is not ready after {READY_MAX:?}");
        }
        Ok(world)
    }

    async fn make_seat(
        &self,
        member: Member,
        plan: &Plan,
        (mutant, roles): (Option<&Mutant>, bool),
        clock: Clock,
        out: &Path,
    ) -> Result<Seat> {
        let postgres = postgres::Wire::to(self.servers.cluster.port()).await?;
        let nats = nats::Wire::to(self.servers.nats_port()).await?;
        let database = &self.servers.database;
        let (who, duty) = match member {
            Member::Worker(_) => (Who::Worker, Duty::Worker),
            _ => (Who::Dispatcher, Duty::Dispatcher),
        };
        let url = if roles {
            with_port(&database.url_of(duty.role()), postgres.port())
        } else {
            database.url_through(postgres.port())
        };
        let mut variables = who.variables(self.servers.folder(), nats.port())?;
        variables.push(("DATABASE_URL".to_owned(), url));
        variables.extend(clock.variables());
        if let Some(mutant) = mutant {
            postgres.rewrite(mutant.rewrites());
            let hook = mutant.variable();
            variables.extend(hook.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        let common = ["--parent-pipe", "--http", "127.0.0.1:0", "--log", "info"];
        let common = common.iter().map(ToString::to_string);
        let (file, args) = if let Member::Worker(_) = member {
            variables.push((
                "WORKER_TOOL_DATABASE_URL".to_owned(),
                database.tool_url_through(self.tools.port()),
            ));
            variables.push((
                native::FILE.to_owned(),
                self.effects_file.display().to_string(),
            ));
            // The same for all: they are neighbours, who see at once that one of them is gone.
            let state = self.servers.folder().join("workers");
            let own = [
                "--concurrency".to_owned(),
                CONCURRENCY.to_owned(),
                "--drain-timeout".to_owned(),
                "10s".to_owned(),
                "--state-dir".to_owned(),
                state.display().to_string(),
            ];
            (program("chaos_worker")?, common.chain(own).collect())
        } else {
            let role = std::iter::once("dispatcher".to_owned());
            let own = ["--requests-max", REQUESTS_MAX].map(str::to_owned);
            (
                program("chaos_toolfleet")?,
                role.chain(common).chain(own).collect(),
            )
        };
        let armed = plan.entries.iter().filter_map(|entry| match entry.when {
            When::Checkpoint(at_whom, start, at, times) if at_whom == member => Some(Arming {
                start,
                at,
                times,
                pause: match entry.what {
                    What::Pause(_, ms) => Some(Duration::from_millis(ms.into())),
                    _ => None,
                },
            }),
            _ => None,
        });
        let program = Program {
            file,
            args,
            variables,
            logs: out.to_owned(),
        };
        Ok(Seat::new(
            member,
            postgres,
            nats,
            program,
            clock,
            armed.collect(),
        ))
    }

    fn arm(&self, plan: &Plan) {
        for entry in &plan.entries {
            match (entry.when, entry.what) {
                (When::Statement(member, statement, nth), What::Statement(fault)) => {
                    if let Some(wire) = self.postgres(member) {
                        wire.arm(statement, nth, fault);
                    }
                }
                (When::Message(member, message, nth), What::Message(fault)) => {
                    if let Some(wire) = self.nats(member) {
                        wire.arm(message, nth, fault);
                    }
                }
                _ => {}
            }
        }
        if plan.noise_per_mille > 0 {
            let wires = self.seats.iter().map(|seat| &seat.nats);
            for (number, wire) in (0_u64..).zip(wires.chain([&self.clients])) {
                // Another stream of choices for each wire.
                let seed = plan.seed.wrapping_mul(31).wrapping_add(number);
                wire.noise(seed, plan.noise_per_mille);
            }
        }
    }
}

/// A program that was built with this one.
fn program(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("the path of this program")?;
    let folder = own.parent().context("a program lies in a folder")?;
    let program = folder.join(name);
    if !program.exists() {
        bail!(
            "{} is missing: cargo build -p fleet-chaos",
            program.display()
        );
    }
    Ok(program)
}

async fn start_effects(file: &Path, servers: &Servers, out: &Path) -> Result<(Process, String)> {
    let log = out.join("effects.log");
    let mut command = Command::new(program("chaos_effects")?);
    command
        .arg("serve")
        .arg("--file")
        .arg(file)
        .arg("--run")
        .arg(servers.folder())
        .args(["--nats-port", &servers.nats_port().to_string()])
        // It compares the deadline that it is told with its own clock, so it has to be in step with Postgres's, as every service
        // that does so.
        .envs(servers.clock.variables());
    let mut process = Process::spawn(Launch {
        name: "effects".to_owned(),
        command,
        log: log.clone(),
        ending: Ending {
            ask: Signal::SIGTERM,
            grace: Duration::from_secs(2),
            at_once: Signal::SIGKILL,
        },
        parent_pipe: true,
    })?;
    let began = Instant::now();
    loop {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        let address = said.split_once("listening address=");
        if let Some(address) = address.and_then(|(_, after)| after.split_whitespace().next()) {
            return Ok((process, format!("http://{address}")));
        }
        if process.ended()?.is_some() || began.elapsed() > READY_MAX {
            bail!("the world outside does not start:\n{}", process.log_tail());
        }
        sleep(POLL).await;
    }
}

/// The tables of SQL tools, the tools, and a mistake in the ledger's functions if there is to be one.
async fn prepare(
    servers: &Servers,
    effects_url: &str,
    effects_file: &Path,
    mutant: Option<&Mutant>,
) -> Result<()> {
    let mut connection = servers.database.connect().await;
    effects::lay_out(&mut connection).await?;
    let places = Places {
        effects_url: effects_url.to_owned(),
        effects_program: program("chaos_effects")?,
        effects_file: effects_file.to_owned(),
        refused_port: free_ports(1)?[0],
    };
    for manifest in effects::manifests(&places) {
        let manifest = fleet::manifest::parse(&manifest)
            .map_err(|problem| anyhow::anyhow!("a tool of the world outside: {problem:?}"))?;
        tools::apply(&mut connection, &manifest, "fleet-chaos").await?;
    }
    // Under its role a worker applies nothing: it finds that its own tools are there.
    let own = native::with_tools(Worker::builder(), File::open(effects_file)?);
    for manifest in own.manifests() {
        tools::apply(&mut connection, manifest, "fleet-chaos").await?;
    }
    if let Some(sql) = mutant.and_then(Mutant::sql) {
        // Made of constants of this program.
        let planting = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection);
        planting.await.context("plant a mistake in the database")?;
    }
    Ok(())
}

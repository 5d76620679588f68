//! The servers, the processes, the wires between them, and the world outside.

mod clock;
mod hog;
pub mod seat;
pub mod servers;
mod strike;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use fleet::store::tools;
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

use self::{
    clock::Clock,
    seat::{Arming, Found, Program, Seat},
    servers::Servers,
};
use crate::{
    effects::{self, Places},
    moment::{Moment, as_ms, moment},
    mutants::Mutant,
    oracle::{self, How, Struck},
    plan::{Member, Plan, Server, What, When},
    wire::{nats, postgres},
};

/// How long processes may take to be ready on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);
/// Between two starts of processes at one place.
const START_PAUSE_MS: Moment = 500;
/// Calls that one worker runs at a time.
const CONCURRENCY: &str = "16";
/// Requests that one dispatcher has in hand at a time: a large batch and some others are too many.
const REQUESTS_MAX: &str = "48";

/// All of it.
#[derive(Debug)]
pub struct World {
    /// Postgres and nats-server.
    pub servers: Servers,
    /// Between the clients and nats-server.
    pub clients: nats::Wire,
    /// Between the SQL tools of all workers and Postgres.
    pub tools: postgres::Wire,
    /// The file that remembers every effect.
    pub effects_file: PathBuf,
    seats: Vec<Seat>,
    effects_url: String,
    _effects: Process,
    undo: Vec<(Instant, Undo)>,
    hogs: JoinSet<()>,
    drawn: u64,
    /// What happened to processes, in words.
    pub deaths: Deaths,
    /// How often each fault has struck that does not strike on a wire.
    pub times: BTreeMap<&'static str, u64>,
    /// What was done to whom, and when.
    pub struck: Vec<Struck>,
    /// Processes that ended without our doing.
    pub exits: Vec<Left>,
    started: BTreeMap<Member, Moment>,
    /// When Postgres's time of day was moved, and by how many milliseconds.
    pub clock_moves: Vec<(Moment, i64)>,
    /// Every process of the fleet that was started.
    pub processes: Vec<oracle::Process>,
}

/// How processes ended.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deaths {
    /// At a place where they were to.
    pub at_checkpoints: u64,
    /// Stopped at a place where they were to.
    pub stopped_at_checkpoints: u64,
}

/// A process that ended without our doing.
#[derive(Debug, Clone)]
pub struct Left {
    /// Its place.
    pub member: Member,
    /// Its name.
    pub name: String,
    /// When it was started.
    pub started: Moment,
    /// When it was found gone.
    pub at: Moment,
    /// How it ended.
    pub status: ExitStatus,
}

/// What is undone when its time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Undo {
    Silence(Member, Server),
    Slow(Member),
    BrokenTools,
    FewFiles(Member),
}

impl World {
    /// Starts all of it, with the plan's faults armed, and waits until it is ready.
    ///
    /// # Errors
    ///
    /// Something does not start.
    pub async fn start(plan: &Plan, mutant: Option<&Mutant>, out: &Path) -> Result<Self> {
        let servers = Servers::start().await?;
        let effects_file = out.join("effects.jsonl");
        let (effects, effects_url) = start_effects(&effects_file, &servers.nats_url(), out).await?;
        prepare(&servers, &effects_url, &effects_file, mutant).await?;
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
            let seat = world.make_seat(member, plan, mutant, clock, out).await?;
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
        mutant: Option<&Mutant>,
        clock: Clock,
        out: &Path,
    ) -> Result<Seat> {
        let postgres = postgres::Wire::to(self.servers.cluster.port()).await?;
        let nats = nats::Wire::to(self.servers.nats_port()).await?;
        let database = &self.servers.database;
        let mut variables = vec![
            (
                "DATABASE_URL".to_owned(),
                database.url_through(postgres.port()),
            ),
            (
                "NATS_URL".to_owned(),
                format!("nats://127.0.0.1:{}", nats.port()),
            ),
        ];
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
                effects::native::FILE.to_owned(),
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

    /// The wire of one of them to Postgres.
    pub fn postgres(&self, member: Member) -> Option<&postgres::Wire> {
        match member {
            Member::Tools => Some(&self.tools),
            _ => self.seat(member).map(|seat| &seat.postgres),
        }
    }

    /// The wire of one of them to NATS.
    pub fn nats(&self, member: Member) -> Option<&nats::Wire> {
        match member {
            Member::Clients => Some(&self.clients),
            _ => self.seat(member).map(|seat| &seat.nats),
        }
    }

    fn seat(&self, member: Member) -> Option<&Seat> {
        self.seats.iter().find(|seat| seat.member == member)
    }

    fn seat_mut(&mut self, member: Member) -> Option<&mut Seat> {
        self.seats.iter_mut().find(|seat| seat.member == member)
    }

    /// The places of the processes.
    pub fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// Looks after everybody: who is gone is started again, who was stopped goes on, what lasted long enough is undone.
    ///
    /// # Errors
    ///
    /// A process cannot be started.
    pub async fn look_after(&mut self) -> Result<()> {
        self.servers.resume_if_due();
        for seat in &mut self.seats {
            seat.resume_if_due();
            let (member, pid, now) = (seat.member, seat.pid(), moment());
            let mut note = |how, until| {
                self.struck.push(Struck {
                    member: Some(member),
                    pid,
                    how,
                    from: now,
                    until,
                });
            };
            match seat.look()? {
                Found::Running => {}
                Found::EndedAtCheckpoint => {
                    self.deaths.at_checkpoints += 1;
                    note(How::Killed, now);
                }
                Found::EndedByItself(status) => self.exits.push(Left {
                    member,
                    name: seat.name(),
                    started: self.started.get(&member).copied().unwrap_or_default(),
                    at: now,
                    status,
                }),
                Found::StoppedAtCheckpoint(pause) => {
                    self.deaths.stopped_at_checkpoints += 1;
                    note(How::Paused, now + as_ms(pause));
                }
            }
            // As a supervisor does: not again and again at once.
            let since = self.started.get(&member).map_or(Moment::MAX, |at| now - at);
            if !seat.is_taken() && since >= START_PAUSE_MS {
                self.started.insert(member, moment());
                seat.start()?;
                self.processes.extend(seat.pid().map(|pid| oracle::Process {
                    member: seat.member,
                    pid,
                }));
            }
        }
        while self.hogs.try_join_next().is_some() {}
        let now = Instant::now();
        let due: Vec<Undo> = self
            .undo
            .extract_if(.., |(at, _)| *at <= now)
            .map(|(_, undo)| undo)
            .collect();
        for undo in due {
            // The same again, and longer: it goes on.
            if !self.undo.iter().any(|(_, later)| *later == undo) {
                self.undo(undo).await?;
            }
        }
        Ok(())
    }

    async fn undo(&mut self, undo: Undo) -> Result<()> {
        match undo {
            Undo::Silence(member, Server::Postgres) => {
                if let Some(wire) = self.postgres(member) {
                    wire.silence(None, false);
                }
            }
            Undo::Silence(member, Server::Nats) => {
                if let Some(wire) = self.nats(member) {
                    wire.silence(None, false);
                }
            }
            Undo::Slow(member) => {
                if let Some(wire) = self.postgres(member) {
                    wire.slow(None);
                }
            }
            Undo::BrokenTools => effects::weather(&self.effects_url, false).await?,
            Undo::FewFiles(member) => self.limit_files(member, None),
        }
        Ok(())
    }

    /// Ends every fault: nothing is spoilt, stopped or missing from now on.
    ///
    /// # Errors
    ///
    /// A process cannot be started.
    pub async fn heal(&mut self) -> Result<()> {
        for seat in &mut self.seats {
            seat.disarm();
            seat.resume();
            seat.postgres.healed();
            seat.nats.healed();
        }
        self.tools.healed();
        self.clients.healed();
        self.servers.resume(Server::Postgres);
        self.servers.resume(Server::Nats);
        self.hogs.shutdown().await;
        for (_, undo) in std::mem::take(&mut self.undo) {
            self.undo(undo).await?;
        }
        self.look_after().await
    }

    /// Waits until every process is ready, and looks after them in the meantime. Returns who is not in time.
    ///
    /// # Errors
    ///
    /// A process cannot be started.
    pub async fn until_ready(&mut self) -> Result<Option<Member>> {
        let began = Instant::now();
        loop {
            self.look_after().await?;
            let mut waits_for = None;
            for seat in &self.seats {
                if !matches!(seat.get("/readyz").await, Some((200, _))) {
                    waits_for = Some(seat.member);
                }
            }
            if waits_for.is_none() || began.elapsed() > READY_MAX {
                return Ok(waits_for);
            }
            sleep(POLL).await;
        }
    }

    /// Remembers what every process tells of itself.
    pub async fn scrape(&mut self) {
        futures_util::future::join_all(self.seats.iter_mut().map(Seat::scrape)).await;
    }

    /// The sum of every counter over all processes that there were.
    pub fn metrics(&self) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        let texts = self.seats.iter().flat_map(Seat::metrics);
        for line in texts.flat_map(|text| text.lines()) {
            if let Some((series, value)) = line.rsplit_once(' ')
                && !line.starts_with('#')
                && let Ok(value) = value.parse::<f64>()
            {
                *sums.entry(series.to_owned()).or_default() += value;
            }
        }
        sums
    }

    /// How often each change of a statement was made, on all wires together.
    pub fn rewritten(&self) -> Vec<u64> {
        let mut sums: Vec<u64> = self.tools.rewritten();
        for seat in &self.seats {
            for (sum, times) in sums.iter_mut().zip(seat.postgres.rewritten()) {
                *sum += times;
            }
        }
        sums
    }

    /// Remembers what was done to somebody.
    fn note(&mut self, member: Option<Member>, how: How, from: Moment, lasts_ms: u32) {
        // A wire stays when its process is another.
        let is_wire = matches!(how, How::Ledger | How::Bus);
        let pid = member.and_then(|member| self.seat(member)?.pid());
        let pid = pid.filter(|_| !is_wire);
        self.struck.push(Struck {
            member,
            pid,
            how,
            from,
            until: moment().max(from + Moment::from(lasts_ms)),
        });
    }

    /// Asks every process to leave. Returns those that did not leave by themselves.
    ///
    /// # Errors
    ///
    /// The kernel does not know a child.
    pub async fn leave(&mut self) -> Result<Vec<Member>> {
        let mut stayed = Vec::new();
        // Workers first, as an operator would.
        for seat in self.seats.iter_mut().rev() {
            if !seat.leave().await? {
                stayed.push(seat.member);
            }
        }
        Ok(stayed)
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

async fn start_effects(file: &Path, nats_url: &str, out: &Path) -> Result<(Process, String)> {
    let log = out.join("effects.log");
    let mut command = Command::new(program("chaos_effects")?);
    command
        .arg("serve")
        .arg("--file")
        .arg(file)
        .args(["--nats-url", nats_url]);
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
    if let Some(sql) = mutant.and_then(Mutant::sql) {
        // Made of constants of this program.
        let planting = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection);
        planting.await.context("plant a mistake in the database")?;
    }
    Ok(())
}

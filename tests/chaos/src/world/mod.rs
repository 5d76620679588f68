//! The servers, the processes, the wires between them, and the world outside.

mod clock;
mod hog;
pub mod seat;
pub mod servers;
mod start;
mod strike;

use std::{collections::BTreeMap, path::PathBuf, process::ExitStatus, time::Duration};

use anyhow::Result;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use toolfleet::servers::process::Process;

use self::{
    seat::{Found, Seat},
    servers::Servers,
};
use crate::{
    effects,
    moment::{Moment, as_ms, moment},
    oracle::{self, ClockMove, How, Struck},
    plan::{Member, Server},
    wire::{nats, postgres},
};

/// How long processes may take to be ready on a busy machine.
const READY_MAX: Duration = Duration::from_secs(60);
/// How long the last calls may take before workers leave; the oracle is told of those that take longer.
const LAST_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
/// Between two starts of processes at one place.
const START_PAUSE_MS: Moment = 500;

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
    /// When the processes were last looked after.
    looked: Moment,
    /// How Postgres's time of day was moved, in the order of time.
    pub clock_moves: Vec<ClockMove>,
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
    BrokenTarget,
    FewFiles(Member),
}

impl World {
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

    /// Looks after all processes: starts those that are gone, continues those that are stopped, and undoes faults whose time is
    /// over.
    ///
    /// # Errors
    ///
    /// A process cannot be started.
    pub async fn look_after(&mut self) -> Result<()> {
        self.servers.resume_if_due();
        // A fault that waits for a server, and a busy machine, put off a look for seconds: what is found happened in between.
        let before = std::mem::replace(&mut self.looked, moment());
        for seat in &mut self.seats {
            seat.resume_if_due();
            let (member, pid, now) = (seat.member, seat.pid(), moment());
            let mut note = |how, until| {
                self.struck.push(Struck {
                    member: Some(member),
                    pid,
                    how,
                    from: before,
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
            Undo::BrokenTarget => effects::spell(&self.effects_url, false).await?,
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

    /// Remembers what was done to a process.
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
        // Dispatchers come first in the list: a probe that one accepts while it leaves needs a worker.
        for seat in &mut self.seats {
            if seat.member == Member::Worker(0) {
                until_decided(&self.servers).await;
            }
            if !seat.leave().await? {
                stayed.push(seat.member);
            }
        }
        Ok(stayed)
    }
}

/// Waits until nothing is left to run.
async fn until_decided(servers: &Servers) {
    let began = Instant::now();
    while began.elapsed() < LAST_MAX && !servers.is_all_decided().await {
        sleep(POLL).await;
    }
}

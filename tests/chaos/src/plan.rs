//! The faults of a run, and the event at which each strikes.
//!
//! A seed chooses kinds of faults first, and then how often and when each of them strikes: so seeds differ in kind, and not
//! only in timing. The plan is printed whole and can be run again, or with entries left out, without the seed.

mod draw;

use std::fmt;

use fleet::checkpoint::Checkpoint;
use serde::{Deserialize, Serialize};

use crate::wire::{nats, postgres};

/// Everything about a run that is decided before it begins. The same seed makes the same plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What it was made of, and what the calls are made of.
    pub seed: u64,
    /// For how long clients make calls.
    pub seconds: u64,
    /// What the run is after.
    pub mode: Kind,
    /// How many of a thousand messages on every wire to NATS are spoilt, beside what the entries say.
    pub noise_per_mille: u64,
    /// The faults.
    pub entries: Vec<Entry>,
}

/// What a run is after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Faults from the beginning to the end: nothing wrong may happen.
    Safety,
    /// Faults in the first half, then none: everything must be finished soon, with clients at work.
    Liveness,
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When it strikes.
    pub when: When,
    /// What it does.
    pub what: What,
}

/// An event of the run. No entry depends on the time of day, or on how fast the machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Clients have asked so often.
    Asked(u64),
    /// So many messages of this kind have passed the wire of this process.
    Message(Member, nats::Message, u64),
    /// So many of these statements have passed the wire of this process.
    Statement(Member, postgres::Statement, u64),
    /// This process was started for the so-manieth time, and gets to this place for the so-manieth time since; both from 1.
    Checkpoint(Member, u32, Checkpoint, u32),
}

/// Who has a wire of his own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Member {
    /// A dispatcher, from 0.
    Dispatcher(u8),
    /// A worker, from 0.
    Worker(u8),
    /// The clients, who share a wire to NATS.
    Clients,
    /// The SQL tools of all workers, which share a wire to Postgres.
    Tools,
}

impl Member {
    /// The processes of a fleet.
    pub const PROCESSES: [Self; 5] = [
        Self::Dispatcher(0),
        Self::Dispatcher(1),
        Self::Worker(0),
        Self::Worker(1),
        Self::Worker(2),
    ];
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dispatcher(place) => write!(f, "dispatcher-{place}"),
            Self::Worker(place) => write!(f, "worker-{place}"),
            Self::Clients => f.write_str("clients"),
            Self::Tools => f.write_str("tools"),
        }
    }
}

/// One of the two servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Server {
    /// The ledger.
    Postgres,
    /// The bus.
    Nats,
}

/// What a fault does. Durations are milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Spoils the message.
    Message(nats::Fault),
    /// Spoils the statement.
    Statement(postgres::Fault),
    /// Kills a process, which is started again.
    Kill(Member),
    /// Kills both dispatchers.
    KillDispatchers,
    /// Stops a process for so long.
    Pause(Member, u32),
    /// Asks every process in turn to leave, and starts it again.
    RollOut,
    /// Kills a server, which is started again on what it left.
    KillServer(Server),
    /// Shuts a server down in order and starts it again.
    RestartServer(Server),
    /// Stops a server for so long.
    PauseServer(Server, u32),
    /// What nats-server keeps is gone when it comes back.
    WipeNats,
    /// What nats-server keeps is what it kept when it was last down.
    RollBackNats,
    /// One byte of what nats-server keeps is another when it comes back.
    DamageNats,
    /// The stream of pointers is deleted.
    DeleteStream,
    /// A consumer of the stream is deleted.
    DeleteConsumer,
    /// A process hears nothing of a server and says nothing to it for so long.
    Isolate(Member, Server, u32),
    /// A process says what it wants and hears no answer of Postgres for so long.
    Deafen(Member, u32),
    /// Every piece between a process and Postgres is late by so much (first), for so long.
    Slow(Member, u32, u32),
    /// Every connection of a process to a server breaks.
    Cut(Member, Server),
    /// Postgres ends a tenth of its sessions.
    EndSessions,
    /// Another session locks the table of open calls for so long.
    LockTable(u32),
    /// Another program takes every free connection of Postgres for so long.
    Exhaust(u32),
    /// Every tool outside fails for so long.
    BreakTools(u32),
    /// What tools with a breaker depend on fails for so long.
    BreakTarget(u32),
    /// A worker may have only this many files open (first), for so long.
    StarveFiles(Member, u32, u32),
    /// The time of day of a process jumps by so many seconds, and stays there.
    MoveClock(Member, i64),
    /// The time of day of Postgres jumps by so many seconds, and stays there.
    MovePostgresClock(i64),
}

impl What {
    /// Its name in a table.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Message(fault) => match fault {
                nats::Fault::Drop => "message dropped",
                nats::Fault::Duplicate => "message duplicated",
                nats::Fault::Delay(_) => "message delayed",
                nats::Fault::Reorder => "message reordered",
                nats::Fault::RepeatLast => "old message repeated",
                nats::Fault::Cut => "connection cut in a message",
            },
            Self::Statement(fault) => match fault {
                postgres::Fault::CutBefore => "cut before a statement",
                postgres::Fault::CutAfter => "cut after a statement, answer lost",
                postgres::Fault::Outage(_) => "answer lost, and Postgres out of reach",
                postgres::Fault::CutWithin => "cut within an answer",
                postgres::Fault::DelayAnswer(_) => "answer delayed",
                postgres::Fault::DelayQuestion(_) => "statement delayed",
                postgres::Fault::SwallowAnswer => "answer swallowed",
                postgres::Fault::Error(_) => "error injected",
                postgres::Fault::Trickle => "answer in single bytes",
            },
            Self::Kill(Member::Dispatcher(_)) => "dispatcher killed",
            Self::Kill(_) => "worker killed",
            Self::KillDispatchers => "both dispatchers killed",
            Self::Pause(Member::Dispatcher(_), _) => "dispatcher stopped for a while",
            Self::Pause(..) => "worker stopped for a while",
            Self::RollOut => "rolling restart",
            Self::KillServer(Server::Postgres) => "Postgres killed",
            Self::KillServer(Server::Nats) => "NATS killed",
            Self::RestartServer(Server::Postgres) => "Postgres restarted",
            Self::RestartServer(Server::Nats) => "NATS restarted",
            Self::PauseServer(Server::Postgres, _) => "Postgres stopped for a while",
            Self::PauseServer(Server::Nats, _) => "NATS stopped for a while",
            Self::WipeNats => "NATS store wiped",
            Self::RollBackNats => "NATS store rolled back",
            Self::DamageNats => "NATS store damaged",
            Self::DeleteStream => "stream deleted",
            Self::DeleteConsumer => "consumer deleted",
            Self::Isolate(_, Server::Postgres, _) => "process without Postgres",
            Self::Isolate(_, Server::Nats, _) => "process without NATS",
            Self::Deafen(..) => "process deaf to Postgres",
            Self::Slow(..) => "slow Postgres",
            Self::Cut(_, Server::Postgres) => "connections to Postgres cut",
            Self::Cut(_, Server::Nats) => "connections to NATS cut",
            Self::EndSessions => "sessions ended by Postgres",
            Self::LockTable(_) => "table locked",
            Self::Exhaust(_) => "connections exhausted",
            Self::BreakTools(_) => "all tools fail",
            Self::BreakTarget(_) => "target of guarded tools fails",
            Self::StarveFiles(..) => "open files exhausted",
            Self::MoveClock(..) => "clock of a process moved",
            Self::MovePostgresClock(_) => "clock of Postgres moved",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_plan() {
        let plan = Plan::draw(11, 60, Kind::Safety);
        assert_eq!(plan, Plan::draw(11, 60, Kind::Safety));
        assert_ne!(plan.entries, Plan::draw(12, 60, Kind::Safety).entries);
    }

    #[test]
    fn a_plan_that_was_printed_can_be_read() {
        for seed in 0..50 {
            let plan = Plan::draw(seed, 60, Kind::Liveness);
            let text = serde_json::to_string_pretty(&plan).unwrap();
            assert_eq!(plan, serde_json::from_str(&text).unwrap());
        }
    }

    #[test]
    fn twenty_seeds_have_every_kind_of_fault() {
        let drawn: std::collections::BTreeSet<&str> = (1..=20)
            .flat_map(|seed| Plan::draw(seed, 180, Kind::Safety).entries)
            .map(|entry| entry.what.name())
            .collect();
        assert_eq!(drawn.len(), What::NAMES, "{drawn:?}");
    }

    #[test]
    fn a_plan_that_heals_has_no_fault_in_its_second_half() {
        let plan = Plan::draw(5, 90, Kind::Liveness);
        let last = plan.entries.iter().filter_map(|entry| match entry.when {
            When::Asked(times) => Some(times),
            _ => None,
        });
        assert!(last.max().unwrap() <= draw::asked_in(90) / 2);
    }
}

//! The options of a bench: workloads, times, callers.

use std::time::Duration;

use fleet::call::{Effect, Priority};

use crate::{
    tools::{Brake, Kind},
    workload::{Mode, Via, Workload},
};

/// What the bench measures, and the load beside it.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What to call, one after the other.
    pub effects: Vec<Effect>,
    /// How calls reach the fleet, one after the other.
    pub ways: Vec<Via>,
    /// How calls are made.
    pub mode: Mode,
    /// Calls in the air at a time, in a closed loop.
    pub in_flight: usize,
    /// Calls per second; `None`: a closed loop.
    pub rate: Option<u32>,
    /// Calls in one request, in batches.
    pub batch: usize,
    /// Size of the arguments.
    pub bytes: usize,
    /// Size of the text in the result.
    pub result_bytes: u32,
    /// How long a tool takes; a transaction takes what it takes.
    pub takes_ms: u32,
    /// How many of a hundred calls go wrong.
    pub failures: u8,
    /// How many of a hundred reads ask what was asked before; then reads are measured twice, without and with a cache.
    pub hits: u8,
    /// What each effect is measured with again, after without.
    pub brakes: Vec<Brake>,
    /// How many tenants call, in turn.
    pub tenants: u32,
    /// Which of a tenant's calls go first.
    pub priority: Option<Priority>,
    /// Copies of each tool, which are called in turn.
    pub copies: u32,
    /// Finished calls that are put into the history first.
    pub history: u64,
    /// Calls of another tenant that stay open meanwhile.
    pub held: u64,
    /// Reads of another tenant that are run meanwhile, for each workload.
    pub backlog: u64,
    /// How long each workload is measured.
    pub seconds: Duration,
    /// How long it runs before that.
    pub warm_up: Duration,
    /// How many workers were started.
    pub workers: u16,
}

/// What is measured at a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    pub(crate) effect: Effect,
    pub(crate) kind: Kind,
    pub(crate) via: Via,
}

impl Plan {
    /// What is called, one after the other.
    pub(crate) fn turns(&self) -> impl Iterator<Item = Turn> {
        let first = match self.failures {
            0 => Kind::Plain,
            _some => Kind::Faulty,
        };
        self.effects.iter().flat_map(move |effect| {
            let asks_again = self.hits > 0 && *effect == Effect::Read;
            let cached = asks_again.then_some(Kind::Cached);
            let braked = self.brakes.iter().copied().map(Kind::Braked);
            let kinds = [first].into_iter().chain(cached).chain(braked);
            kinds.flat_map(move |kind| {
                self.ways.iter().map(move |via| Turn {
                    effect: *effect,
                    kind,
                    via: *via,
                })
            })
        })
    }

    /// One workload of it; the numbers tell its calls from those of others.
    pub(crate) fn workload(
        &self,
        run: u32,
        number: u32,
        Turn { effect, kind, via }: Turn,
    ) -> Workload {
        let hits = match effect {
            Effect::Read => self.hits,
            Effect::Idempotent | Effect::Once | Effect::Transaction => 0,
        };
        Workload {
            hits,
            kind,
            via,
            effect,
            mode: self.mode,
            run,
            number,
            in_flight: self.in_flight,
            rate: self.rate,
            batch: self.batch,
            bytes: self.bytes,
            result_bytes: self.result_bytes,
            takes_ms: self.takes_ms,
            failures: self.failures,
            tenants: self.tenants,
            copies: self.copies,
            priority: self.priority,
            tenant: "bench",
            parked: false,
            limit: None,
        }
    }
}

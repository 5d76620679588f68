//! Worlds whose differences can never be noticed are made one: calls that ask the same are alike, and so are workers; and what an
//! attempt will say is nothing where its call is not its own any more.

use super::{
    rules::FlightConfig,
    state::{CALLS, FlightLedger, FlightRow, FlightState, Gate, KeptRow, OpenCall, Over, WORKERS},
};

/// Other names for calls and workers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Renaming {
    calls: [u8; CALLS],
    workers: [u8; WORKERS],
}

impl Renaming {
    /// Those that change nothing but names.
    pub(super) fn all(config: &FlightConfig) -> Vec<Self> {
        let mut all = Vec::new();
        for calls in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ] {
            let asks = |call: u8| config.asks[usize::from(call)];
            if (0..).zip(calls).all(|(old, new)| asks(old) == asks(new)) {
                all.extend([[0, 1], [1, 0]].map(|workers| Self { calls, workers }));
            }
        }
        all
    }

    /// The first of all the worlds that are the same as this one.
    pub(super) fn first(alike: &[Self], s: &FlightState) -> FlightState {
        let worlds = alike.iter().map(|names| names.rename(s));
        worlds.min().unwrap_or(*s)
    }

    fn call(&self, old: u8) -> u8 {
        self.calls[usize::from(old)]
    }

    fn worker(&self, old: u8) -> u8 {
        self.workers[usize::from(old)]
    }

    fn rename(&self, s: &FlightState) -> FlightState {
        let mut gates = s.gates;
        for (old, gate) in (0..).zip(s.gates) {
            gates[usize::from(self.worker(old))] = match gate {
                Gate::Idle => Gate::Idle,
                Gate::Read(call, begun) => Gate::Read(self.call(call), begun),
                Gate::Waits(call, begun) => Gate::Waits(self.call(call), begun),
                Gate::Aside(call, leader) => Gate::Aside(self.call(call), self.call(leader)),
                Gate::Answers(call, from) => Gate::Answers(self.call(call), self.call(from)),
                Gate::Goes(call, part) => Gate::Goes(self.call(call), part),
                Gate::Runs(call, part) => Gate::Runs(self.call(call), part),
            };
        }
        let mut sweep = s.sweep;
        for (old, seen) in (0..).zip(s.sweep) {
            sweep[usize::from(self.call(old))] = seen;
        }
        FlightState {
            ledger: self.of_ledger(&s.ledger),
            backup: s.backup.map(|backup| self.of_ledger(&backup)),
            gates,
            sweep,
            ..*s
        }
    }

    fn of_ledger(&self, ledger: &FlightLedger) -> FlightLedger {
        let mut calls = ledger.calls;
        for (old, row) in (0..).zip(ledger.calls) {
            calls[usize::from(self.call(old))] = match row {
                FlightRow::Open(open) => FlightRow::Open(OpenCall {
                    by: open.by.map(|worker| self.worker(worker)),
                    after: open.after.map(|call| self.call(call)),
                    ..open
                }),
                over @ FlightRow::Over(_) => over,
            };
        }
        let kept = ledger.kept.map(|row| {
            row.map(|row| KeptRow {
                leader: self.call(row.leader),
                answer: row.answer.map(|call| self.call(call)),
                ..row
            })
        });
        FlightLedger { calls, kept }
    }
}

impl FlightState {
    pub(super) fn forget(&mut self) {
        let held = |ledger: &FlightLedger, call: u8, worker: u8| {
            ledger.open(call).is_some_and(|row| row.by == Some(worker))
        };
        for worker in 0..WORKERS {
            if let Gate::Runs(call, _) = self.gates[worker] {
                let by = u8::try_from(worker).expect("a handful");
                let in_backup = self.backup.is_some_and(|backup| held(&backup, call, by));
                if !held(&self.ledger, call, by) && !in_backup {
                    self.gates[worker] = Gate::Idle;
                }
            }
        }
        // Of which kind an end without an answer was is never asked.
        let named = |ledger: &FlightLedger, call: u8| {
            ledger
                .kept
                .iter()
                .flatten()
                .any(|row| row.answer == Some(call))
        };
        for ledger in [Some(&mut self.ledger), self.backup.as_mut()]
            .into_iter()
            .flatten()
        {
            for call in 0..CALLS {
                let number = u8::try_from(call).expect("a handful");
                if ledger.calls[call] == FlightRow::Over(Over::Dropped) && !named(ledger, number) {
                    ledger.calls[call] = FlightRow::Over(Over::Bad);
                }
            }
        }
    }
}

//! The statements, each as atomic as it is in Postgres: `look` in its parts, the endings, and what the sweep and operators do.

use fleet::{
    call::{Effect, State},
    ending::Happened,
    retry::{self, Loss, RetryDecision},
    state::{Move, next},
};

use super::{
    model::FlightModel,
    rules::{Asks, FlightMutant},
    state::{CALLS, FlightBreach, FlightRow, FlightState, Gate, KeptRow, OpenCall, Over, Part},
    verdict::{Leader, Seen, Verdict, leads, verdict},
};

/// How many workers a call of this model may lose before it is set aside.
const LOSSES: u32 = 1;

impl FlightModel {
    /// Of which row a call is.
    pub(super) fn key(&self, call: u8) -> usize {
        usize::from(self.is_other_tenant(call) && !self.lacks(FlightMutant::KeyWithoutTenant))
    }

    fn is_other_tenant(&self, call: u8) -> bool {
        self.config.asks[usize::from(call)] == Asks::OtherTenant
    }

    /// Whether the ledger lets it take part.
    fn shares(&self, call: u8) -> bool {
        let asks = self.config.asks[usize::from(call)];
        match asks {
            Asks::NoStore => self.lacks(FlightMutant::NoStoreShares),
            Asks::Probe => self.lacks(FlightMutant::ProbeSeesCache),
            Asks::Equal | Asks::OtherTenant => true,
        }
    }

    /// The row of its question, as a call sees it.
    fn sees(&self, s: &FlightState, call: u8) -> Option<Seen> {
        let row = s.ledger.kept[self.key(call)]?;
        let stands = |call: u8| s.ledger.calls[usize::from(call)];
        let answer = row.answer.map(stands);
        let leader = match stands(row.leader).as_leader() {
            Leader::Bad if self.lacks(FlightMutant::FailureInherited) => Leader::Good,
            leader => leader,
        };
        let trusted = self.lacks(FlightMutant::OldAnswerCounts) && answer.is_some();
        Some(Seen {
            // A row has the time of the answer that it names.
            is_fresh: trusted || answer == Some(FlightRow::Over(Over::Good)),
            has_answer: answer.is_some_and(|row| row != FlightRow::Over(Over::Dropped)) || trusted,
            is_of_leader: row.answer == Some(row.leader),
            is_mine: row.leader == call && !self.lacks(FlightMutant::FollowsItself),
            leader,
            is_apart: row.is_apart,
        })
    }

    /// `look` begins: the call's row is read. It is queued, and stands at the gate.
    pub(super) fn deliver(s: &mut FlightState, worker: usize, call: u8) -> bool {
        let row = s.ledger.open(call).filter(OpenCall::is_at_gate);
        let Some(row) = row.filter(|_| s.gates[worker] == Gate::Idle) else {
            return false;
        };
        s.gates[worker] = if row.passes {
            Gate::Goes(call, Part::Leads)
        } else {
            Gate::Read(call, row.has_begun())
        };
        true
    }

    /// `look` reads the kept row, without its lock.
    pub(super) fn read(&self, s: &mut FlightState, worker: usize) -> bool {
        let Gate::Read(call, has_begun) = s.gates[worker] else {
            return false;
        };
        s.gates[worker] = if self.shares(call) {
            let said = verdict(self.sees(s, call));
            if said.needs_lock() {
                Gate::Waits(call, has_begun)
            } else {
                self.becomes(s, call, has_begun, said)
            }
        } else {
            Gate::Goes(call, Part::Alone)
        };
        true
    }

    /// `look` has the lock, reads the kept row again, and writes it.
    pub(super) fn lock(&self, s: &mut FlightState, worker: usize) -> bool {
        let Gate::Waits(call, has_begun) = s.gates[worker] else {
            return false;
        };
        let key = self.key(call);
        let row = *s.ledger.kept[key].get_or_insert(KeptRow {
            leader: call,
            answer: None,
            failed_before: false,
            is_apart: false,
        });
        let mut said = verdict(self.sees(s, call));
        if self.lacks(FlightMutant::FollowerChecksBeforeLock) {
            said = Verdict::Free;
        }
        match said {
            Verdict::Found => {
                s.ledger.kept[key] = Some(KeptRow {
                    answer: Some(row.leader),
                    failed_before: false,
                    is_apart: false,
                    ..row
                });
                said = Verdict::Hit;
            }
            Verdict::Free | Verdict::Old | Verdict::Large | Verdict::Failed => {
                let row = if said == Verdict::Old && self.config.keeps {
                    KeptRow {
                        answer: Some(row.leader),
                        failed_before: false,
                        is_apart: false,
                        ..row
                    }
                } else {
                    row
                };
                let (failed_before, is_apart) = leads(said, row.failed_before, row.is_apart);
                s.ledger.kept[key] = Some(KeptRow {
                    leader: call,
                    failed_before,
                    is_apart,
                    ..row
                });
                said = Verdict::Lead;
            }
            Verdict::Hit | Verdict::Lead | Verdict::Follow | Verdict::Alone => {}
        }
        s.gates[worker] = self.becomes(s, call, has_begun, said);
        true
    }

    /// Where a call stands that has been told this.
    fn becomes(&self, s: &mut FlightState, call: u8, has_begun: bool, said: Verdict) -> Gate {
        let Some(row) = s.ledger.kept[self.key(call)] else {
            return Gate::Goes(call, Part::Leads);
        };
        let takes_part = self.config.asks[usize::from(call)].shares();
        match said {
            // What it was told by then is its own.
            Verdict::Hit | Verdict::Follow if has_begun => Gate::Goes(call, Part::Alone),
            Verdict::Hit => {
                let from = row.answer.unwrap_or(row.leader);
                match s.ledger.calls[usize::from(from)] {
                    FlightRow::Over(Over::Old | Over::OldLarge | Over::Dropped) => {
                        s.breach(FlightBreach::OldAnswer);
                    }
                    _ if !takes_part => s.breach(FlightBreach::TookPart),
                    _ => {}
                }
                Gate::Answers(call, from)
            }
            Verdict::Follow => {
                if !takes_part {
                    s.breach(FlightBreach::TookPart);
                }
                Gate::Aside(call, row.leader)
            }
            Verdict::Alone => Gate::Goes(call, Part::Alone),
            _ => Gate::Goes(call, Part::Leads),
        }
    }

    /// `look` ends: the call is held, where its row still stands at the gate.
    pub(super) fn put_aside(s: &mut FlightState, worker: usize) -> bool {
        let Gate::Aside(call, leader) = s.gates[worker] else {
            return false;
        };
        if let Some(row) = s.ledger.open(call).filter(OpenCall::is_at_gate) {
            s.ledger.calls[usize::from(call)] = FlightRow::Open(OpenCall {
                after: Some(leader),
                ..row
            });
        }
        s.gates[worker] = Gate::Idle;
        true
    }

    /// The worker ends a queued call with another one's answer, or finds that this is gone.
    pub(super) fn answer(&self, s: &mut FlightState, worker: usize) -> bool {
        let Gate::Answers(call, from) = s.gates[worker] else {
            return false;
        };
        let is_queued = s.ledger.open(call).is_some_and(|row| row.by.is_none());
        let source = s.ledger.calls[usize::from(from)];
        s.gates[worker] = match source {
            _ if !is_queued => Gate::Idle,
            FlightRow::Over(
                Over::Good | Over::Old | Over::Copied | Over::Large | Over::OldLarge,
            ) => {
                // After lost writes the call that was found may have been answered anew, itself by another.
                let is_own = source != FlightRow::Over(Over::Copied) || s.lost_writes;
                if self.is_other_tenant(call) != self.is_other_tenant(from) || !is_own {
                    s.breach(FlightBreach::OtherQuestion);
                }
                if !self.config.asks[usize::from(from)].shares() {
                    s.breach(FlightBreach::TookPart);
                }
                end(s, call, Happened::Answered.words().event, Over::Copied);
                Gate::Idle
            }
            FlightRow::Over(Over::Bad) if self.lacks(FlightMutant::FailureInherited) => {
                s.breach(FlightBreach::Inherited);
                end(s, call, Move::Fail, Over::Bad);
                Gate::Idle
            }
            FlightRow::Open(_) | FlightRow::Over(Over::Bad | Over::Dropped) => {
                Gate::Goes(call, Part::Alone)
            }
        };
        true
    }

    /// `claim`: the call is queued, and not held.
    pub(super) fn claim(s: &mut FlightState, worker: u8) -> bool {
        let Gate::Goes(call, part) = s.gates[usize::from(worker)] else {
            return false;
        };
        let row = s.ledger.open(call).filter(OpenCall::is_at_gate);
        s.gates[usize::from(worker)] = match row {
            Some(row) => {
                check(s, State::Queued, Move::Claim);
                s.ledger.calls[usize::from(call)] = FlightRow::Open(OpenCall {
                    by: Some(worker),
                    ..row
                });
                Gate::Runs(call, part)
            }
            None => Gate::Idle,
        };
        true
    }

    /// The attempt ends; a worker that does not hold the call any more is not heard.
    pub(super) fn complete(s: &mut FlightState, worker: u8, ends: AttemptEnds) -> bool {
        let Gate::Runs(call, _) = s.gates[usize::from(worker)] else {
            return false;
        };
        let held = s.ledger.open(call).filter(|row| row.by == Some(worker));
        if let Some(row) = held {
            match ends {
                AttemptEnds::With(over) => {
                    let event = match over {
                        Over::Good | Over::Large => Move::Succeed,
                        _ if row.cancel_requested => Move::Cancel,
                        _ => Move::Fail,
                    };
                    end(s, call, event, over);
                }
                AttemptEnds::NotNow if row.spent || row.cancel_requested => return false,
                AttemptEnds::NotNow => {
                    check(s, State::Running, Move::Again);
                    s.ledger.calls[usize::from(call)] = FlightRow::Open(OpenCall {
                        by: None,
                        spent: true,
                        ..row
                    });
                }
            }
        }
        s.gates[usize::from(worker)] = Gate::Idle;
        true
    }

    /// The sweep takes a running call from its worker.
    pub(super) fn take_lost(s: &mut FlightState, call: u8) -> bool {
        let Some(row) = s.ledger.open(call).filter(|row| row.by.is_some()) else {
            return false;
        };
        let decision = retry::after_loss(Loss {
            effect: Effect::Read,
            lost: u32::from(row.lost) + 1,
            allowed: LOSSES,
            cancelled: row.cancel_requested,
        });
        match decision {
            RetryDecision::Again(_) => {
                check(s, State::Running, Move::Again);
                s.ledger.calls[usize::from(call)] = FlightRow::Open(OpenCall {
                    by: None,
                    lost: true,
                    ..row
                });
            }
            RetryDecision::Cancelled | RetryDecision::FailCancelled => {
                end(s, call, Move::Cancel, Over::Bad);
            }
            _ => end(s, call, Move::Fail, Over::Bad),
        }
        true
    }

    /// `toolfleet.cancel`; it ends what is queued, held or not.
    pub(super) fn cancel(s: &mut FlightState, call: u8) -> bool {
        let Some(row) = s.ledger.open(call).filter(|row| !row.cancel_requested) else {
            return false;
        };
        if row.by.is_none() {
            end(s, call, Move::Cancel, Over::Bad);
        } else {
            s.ledger.calls[usize::from(call)] = FlightRow::Open(OpenCall {
                cancel_requested: true,
                ..row
            });
        }
        true
    }

    /// A queued call's deadline has passed.
    pub(super) fn expire(s: &mut FlightState, call: u8) -> bool {
        let is_queued = s.ledger.open(call).is_some_and(|row| row.by.is_none());
        if is_queued {
            end(s, call, Move::Expire, Over::Bad);
        }
        is_queued
    }

    /// The sweep looks, of all lines at once, which are waited in in vain.
    pub(super) fn look_at_lines(&self, s: &mut FlightState) -> bool {
        if s.sweep != [false; CALLS] {
            return false;
        }
        let rows = s.ledger.calls.iter();
        for leader in rows.filter_map(|row| row.open()?.after) {
            s.sweep[usize::from(leader)] = self.is_waited_for_in_vain(s, leader);
        }
        s.sweep != [false; CALLS]
    }

    /// Whether the kept row of its question names it.
    pub(super) fn fetches(&self, s: &FlightState, call: u8) -> bool {
        let row = s.ledger.kept[self.key(call)];
        row.is_some_and(|row| row.leader == call)
    }

    fn is_waited_for_in_vain(&self, s: &FlightState, leader: u8) -> bool {
        match s.ledger.calls[usize::from(leader)] {
            // What it fetches was purged.
            FlightRow::Open(_) => {
                !self.fetches(s, leader) && !self.lacks(FlightMutant::PurgeUnseen)
            }
            FlightRow::Over(Over::Bad | Over::Dropped) => {
                !self.lacks(FlightMutant::LeaderDeathUnseen)
            }
            FlightRow::Over(_) => true,
        }
    }

    /// The sweep hands back who is in one of these lines. That they are released from their own line is not looked at here.
    pub(super) fn let_go(&self, s: &mut FlightState) -> bool {
        let Some(leader) = (0..)
            .zip(s.sweep)
            .find_map(|(call, seen)| seen.then_some(call))
        else {
            return false;
        };
        s.sweep[usize::from(leader)] = false;
        for row in &mut s.ledger.calls {
            if let FlightRow::Open(open) = row
                && open.after == Some(leader)
            {
                open.after = None;
                open.passes = self.lacks(FlightMutant::RestNotRepointed);
            }
        }
        true
    }

    /// Time passes: an answer does not count any more. It is as old in each copy of the ledger.
    pub(super) fn grow_old(s: &mut FlightState, call: u8) -> bool {
        let mut grown = false;
        for ledger in [Some(&mut s.ledger), s.backup.as_mut()]
            .into_iter()
            .flatten()
        {
            let row = &mut ledger.calls[usize::from(call)];
            let old = match row {
                FlightRow::Over(Over::Good) => Over::Old,
                FlightRow::Over(Over::Large) => Over::OldLarge,
                _ => continue,
            };
            *row = FlightRow::Over(old);
            grown = true;
        }
        grown
    }

    /// Postgres falls back to the copy. Statements under way end with the server; what workers know they know.
    pub(super) fn fail_over(s: &mut FlightState) -> bool {
        let Some(backup) = s.backup.take() else {
            return false;
        };
        s.ledger = backup;
        s.lost_writes = true;
        for gate in &mut s.gates {
            if matches!(gate, Gate::Read(..) | Gate::Waits(..) | Gate::Aside(..)) {
                *gate = Gate::Idle;
            }
        }
        true
    }
}

/// How an attempt ends.
#[derive(Clone, Copy)]
pub(super) enum AttemptEnds {
    With(Over),
    /// The tool said no, and is asked again.
    NotNow,
}

fn check(s: &mut FlightState, from: State, event: Move) {
    if next(from, event).is_err() {
        s.breach(FlightBreach::IllegalMove);
    }
}

fn end(s: &mut FlightState, call: u8, event: Move, over: Over) {
    if let Some(row) = s.ledger.open(call) {
        let from = if row.by.is_some() {
            State::Running
        } else {
            State::Queued
        };
        check(s, from, event);
    }
    s.ledger.calls[usize::from(call)] = FlightRow::Over(over);
}

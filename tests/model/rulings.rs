//! What the sweep, people and a lossy failover decide about a call, whatever runs it.

use fleet::{
    call::{Effect, EffectKnown, State},
    ending::Happened,
    retry::RetryDecision,
    state::Move,
};

use crate::{
    ledger::{Ending, advance},
    protocol::Protocol,
    rules::Mutant,
    state::{Ended, Job, Row, Step, System, is_write},
};

impl Protocol {
    /// The sweep takes a running call from its worker.
    pub(crate) fn take_lost(&self, s: &mut System, call: u8) -> bool {
        let Some(row) = s.ledger.open[usize::from(call)].filter(|row| row.state == State::Running)
        else {
            return false;
        };
        let Some(attempt) = row.attempt else {
            return false;
        };
        let job = Job {
            call,
            attempt,
            earlier_unknown: row.effect_unknown,
        };
        // Whose row is taken from it, that transaction does not commit any more.
        let transaction = self.config.effect == Effect::Transaction;
        let again = Ending::Again {
            spent: 0,
            lost: 1,
            effect_unknown: Some(!transaction),
            suspect: !transaction,
        };
        let over = |event| Ending::Over {
            event,
            known: if transaction {
                EffectKnown::NotApplied
            } else {
                EffectKnown::None
            },
            unstarted: false,
        };
        let cancelled = row.cancel_requested && !self.lacks(Mutant::CancelLostByRequeue);
        let ending = match self.decisions.after_loss(row.lost, cancelled) {
            RetryDecision::Again(_) => again,
            RetryDecision::Doubt if self.lacks(Mutant::RequeueLostOnce) => again,
            RetryDecision::Doubt => Ending::Doubt { suspect: true },
            RetryDecision::Cancelled | RetryDecision::FailCancelled => over(Move::Cancel),
            RetryDecision::Fail
            | RetryDecision::Suppressed
            | RetryDecision::Exhausted
            | RetryDecision::OutOfTime
            | RetryDecision::Succeed => over(Move::Fail),
        };
        self.complete(s, None, job, ending)
    }

    /// A queued call whose deadline has passed.
    pub(crate) fn expire(&self, s: &mut System, at: usize) -> bool {
        self.end_queued(s, at, Move::Expire)
    }

    /// `toolfleet.cancel` on a row it has locked.
    pub(crate) fn cancel(&self, s: &mut System, at: usize) {
        match s.ledger.open[at] {
            Some(row) if row.state == State::Running => {
                s.ledger.open[at] = Some(Row {
                    cancel_requested: true,
                    ..row
                });
            }
            _ => {
                self.end_queued(s, at, Move::Cancel);
            }
        }
    }

    fn end_queued(&self, s: &mut System, at: usize, event: Move) -> bool {
        let Some(row) = s.ledger.open[at].filter(|row| row.state == State::Queued) else {
            return false;
        };
        let write = is_write(self.config.effect);
        let known = if write {
            EffectKnown::NotApplied
        } else {
            EffectKnown::None
        };
        if row.effect_unknown && write {
            advance(s, at, Move::Doubt, row);
        } else {
            advance(
                s,
                at,
                event,
                Row {
                    ended: Ended::Platform,
                    known,
                    ..row
                },
            );
        }
        true
    }

    /// `toolfleet.settle`: what a person who looked found out. A look sees the truth of this moment.
    pub(crate) fn settle(&self, s: &mut System, at: usize, applied: bool) -> bool {
        let Some(row) = s.ledger.open[at].filter(|row| row.state == State::InDoubt) else {
            return false;
        };
        if applied != (s.effects(at) > 0) {
            return false;
        }
        let ended = Ended::Settled;
        if applied {
            advance(
                s,
                at,
                Move::Succeed,
                Row {
                    ended,
                    known: EffectKnown::Applied,
                    ..row
                },
            );
            return true;
        }
        let fence_matters =
            !self.lacks(Mutant::SettleUnfenced) && !self.lacks(Mutant::RequeueNotAppliedUnfenced);
        if fence_matters && !row.is_fenced() {
            return false;
        }
        if self.lacks(Mutant::RequeueNotApplied) || self.lacks(Mutant::RequeueNotAppliedUnfenced) {
            // There is no such move; these two mutants go around the list.
            let queued = Row {
                state: State::Queued,
                attempt: None,
                worker: None,
                ..row
            };
            s.ledger.open[at] = Some(queued);
            s.pointer[at] = true;
        } else {
            advance(
                s,
                at,
                Move::Fail,
                Row {
                    ended,
                    known: EffectKnown::NotApplied,
                    ..row
                },
            );
        }
        true
    }

    /// `toolfleet.settle` as abandoned: the call is over, whoever may still act for it, and nothing is claimed of its effect.
    pub(crate) fn abandon(&self, s: &mut System, at: usize) -> bool {
        let Some(row) = s.ledger.open[at].filter(|row| row.state == State::InDoubt) else {
            return false;
        };
        let known = if self.lacks(Mutant::AbandonedIsNotApplied) {
            EffectKnown::NotApplied
        } else {
            EffectKnown::Unknown
        };
        let ended = Ended::Settled;
        let event = Happened::Abandoned.words().event;
        advance(
            s,
            at,
            event,
            Row {
                ended,
                known,
                ..row
            },
        );
        true
    }

    /// `toolfleet.key_lapsed`, of an abandoned call.
    pub(crate) fn forget_key(s: &mut System) -> bool {
        let is_abandoned = |call: u8| {
            let row = s.ledger.history[usize::from(call)];
            row.is_some_and(|row| row.is_abandoned())
        };
        let lapses = s.ledger.key.is_some_and(is_abandoned);
        if lapses {
            s.ledger.key = None;
        }
        lapses
    }

    /// Postgres falls back to the copy; in one statement, before any other process writes, what it says of calls is distrusted.
    pub(crate) fn fail_over(&self, s: &mut System) -> bool {
        let Some(backup) = s.backup.take() else {
            return false;
        };
        s.ledger = backup;
        s.lost_writes = true;
        for worker in &mut s.workers {
            // Statements under way end with the server.
            worker.late = None;
            if let Step::Asking(claim) = worker.step {
                worker.step = Step::Silent(claim.job);
            }
        }
        for at in 0..s.ledger.open.len() {
            self.quarantine(s, at);
        }
        true
    }

    /// `toolfleet.quarantine` for one row.
    fn quarantine(&self, s: &mut System, at: usize) {
        let Some(row) = s.ledger.open[at] else { return };
        let undecided = matches!(row.state, State::Queued | State::Running);
        let row = Row {
            quarantined: true,
            ..row
        };
        match self.config.effect {
            Effect::Once if undecided && !self.lacks(Mutant::FailoverUnquarantined) => {
                advance(s, at, Move::Quarantine, row);
            }
            // An attempt that the ledger has forgotten may have had its effect, and may still be at it; and the attempt that
            // it remembers may have been followed by another. So the call begins anew, with what is known: nothing.
            Effect::Idempotent if undecided && !self.lacks(Mutant::QuarantineSparesIdempotent) => {
                let quarantined = !self.lacks(Mutant::QuarantineTrustsFences);
                let row = Row {
                    effect_unknown: true,
                    quarantined,
                    ..row
                };
                if row.state == State::Running && !self.lacks(Mutant::QuarantineKeepsAttempt) {
                    advance(
                        s,
                        at,
                        Move::Again,
                        Row {
                            attempt: None,
                            worker: None,
                            ..row
                        },
                    );
                } else {
                    s.ledger.open[at] = Some(row);
                }
            }
            // What was lost of a transaction was lost effect and outcome together.
            Effect::Read | Effect::Idempotent | Effect::Once | Effect::Transaction => {}
        }
    }
}

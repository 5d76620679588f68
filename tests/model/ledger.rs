//! The statements on calls, each as atomic as it is in Postgres. Every move goes through `fleet::state::next`.

use fleet::{
    call::{EffectKnown, State},
    state::{Move, next},
};

use crate::{
    protocol::Protocol,
    rules::Mutant,
    state::{
        Breach, Caller, Cancel, Claim, Ended, Job, Registered, Row, System, WORKERS, bit, slot,
    },
};

/// What becomes of a call whose attempt ended.
#[derive(Clone, Copy)]
pub(crate) enum Ending {
    Over {
        event: Move,
        known: EffectKnown,
        /// The attempt says that it never started.
        unstarted: bool,
    },
    Again {
        spent: u8,
        lost: u8,
        /// `None`: what was known before still holds.
        effect_unknown: Option<bool>,
        /// The worker may still act for the attempt.
        suspect: bool,
    },
    Doubt {
        suspect: bool,
    },
}

impl Ending {
    pub(crate) const fn succeeded(known: EffectKnown) -> Self {
        Self::Over {
            event: Move::Succeed,
            known,
            unstarted: false,
        }
    }
}

impl Protocol {
    /// `accept.sql`: the key's row decides. What the caller is told, if it is.
    pub(crate) fn accept(&self, s: &mut System, caller: usize) -> Option<u8> {
        let blind =
            self.lacks(Mutant::AcceptRepeatedBlindly) && s.callers[caller] == Caller::Unsure;
        match s.callers[caller] {
            Caller::Idle => {}
            Caller::Unsure if self.config.keyed || blind => {}
            Caller::Unsure | Caller::Told(_) | Caller::Refused => return None,
        }
        let call = if blind { 1 } else { slot(caller) };
        if self.config.keyed && !self.lacks(Mutant::KeyNotUnique) {
            if let Some(taken) = s.ledger.key {
                return Some(taken);
            }
            s.ledger.key = Some(call);
        }
        if s.ledger.find(usize::from(call)).is_none() {
            s.ledger.open[usize::from(call)] = Some(Row::QUEUED);
            s.pointer[usize::from(call)] = true;
        }
        Some(call)
    }

    /// `claim.sql`, second half: the row is queued, and not cancelled. Whether it was claimed.
    pub(crate) fn claim(&self, s: &mut System, worker: usize, claim: Claim) -> bool {
        let Job { call, attempt, .. } = claim.job;
        let at = usize::from(call);
        let Some(row) = s.ledger.open[at] else {
            return false;
        };
        let any_state = self.lacks(Mutant::ClaimAnyState);
        if row.cancel_requested || !(row.state == State::Queued || any_state) {
            return false;
        }
        if s.ledger.registered[worker] != Registered::Live {
            s.breach(Breach::ClaimedPastFence);
        }
        if at == 0 && s.cancel == Cancel::Answered && !s.lost_writes {
            s.breach(Breach::ClaimedAfterCancel);
        }
        let claimed = Row {
            attempt: Some(attempt),
            worker: Some(slot(worker)),
            ..row
        };
        s.pointer[at] = false;
        if any_state {
            s.ledger.open[at] = Some(Row {
                state: State::Running,
                ..claimed
            });
        } else {
            advance(s, at, Move::Claim, claimed);
        }
        true
    }

    /// `complete.sql`: guarded by the attempt. Whether the call moved.
    pub(crate) fn complete(
        &self,
        s: &mut System,
        by: Option<usize>,
        job: Job,
        ending: Ending,
    ) -> bool {
        let at = usize::from(job.call);
        let Some(row) = s.ledger.open[at] else {
            return false;
        };
        let running = row.state == State::Running;
        let held = if self.lacks(Mutant::CompleteByState) {
            running
        } else {
            row.is_of(job.attempt) && (running || row.state == State::InDoubt)
        };
        let cancel_is_lost = self.lacks(Mutant::CancelLostByRequeue);
        let allowed = match ending {
            Ending::Again { .. } => running && (!row.cancel_requested || cancel_is_lost),
            Ending::Doubt { .. } => running,
            Ending::Over {
                event,
                known,
                unstarted,
            } => {
                // A doubt ends by evidence, not by a wish; where attempts may be forgotten, only success is evidence.
                let only_success = row.quarantined && !self.lacks(Mutant::QuarantineTakesLateNo);
                let evident =
                    running || event == Move::Succeed || (event != Move::Cancel && !only_success);
                // That it never started says nothing of another attempt that is unaccounted for.
                let hasty = unstarted && known == EffectKnown::NotApplied && row.effect_unknown;
                evident && !hasty
            }
        };
        if !held || !allowed {
            return false;
        }
        if by.is_some() && by.map(slot) != row.worker {
            s.breach(Breach::WrongRecorder);
        }
        let suspects = row.suspects
            | row
                .worker
                .map(usize::from)
                .filter(|w| *w < WORKERS)
                .map_or(0, bit);
        match ending {
            Ending::Over { event, known, .. } => {
                let ended = match by {
                    None => Ended::Platform,
                    Some(_) if running => Ended::Attempt,
                    Some(_) => Ended::Late,
                };
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
            }
            Ending::Again {
                spent,
                lost,
                effect_unknown,
                suspect,
            } => {
                let requeued = Row {
                    attempt: None,
                    worker: None,
                    spent: row.spent + spent,
                    lost: row.lost + lost,
                    effect_unknown: effect_unknown.unwrap_or(row.effect_unknown),
                    cancel_requested: row.cancel_requested && !cancel_is_lost,
                    suspects: if suspect { suspects } else { row.suspects },
                    ..row
                };
                advance(s, at, Move::Again, requeued);
            }
            Ending::Doubt { suspect } => {
                let suspects = if suspect { suspects } else { row.suspects };
                advance(s, at, Move::Doubt, Row { suspects, ..row });
            }
        }
        true
    }

    /// A `transaction`: its effect happens if, and only if, its attempt still holds the call.
    pub(crate) fn commit(&self, s: &mut System, worker: usize, job: Job) -> bool {
        let at = usize::from(job.call);
        let moved = self.complete(
            s,
            Some(worker),
            job,
            Ending::succeeded(EffectKnown::Applied),
        );
        if moved || self.lacks(Mutant::TransactionUnguarded) {
            let effects = if self.lacks(Mutant::TransactionElsewhere) {
                &mut s.outside[at].effects
            } else {
                &mut s.ledger.effects[at]
            };
            *effects = (*effects + 1).min(2);
        }
        moved
    }
}

/// Moves a call as `fleet::state` says, within the open table or on to the history, in one statement.
pub(crate) fn advance(s: &mut System, at: usize, event: Move, row: Row) {
    let Ok(state) = next(row.state, event) else {
        return s.breach(Breach::IllegalMove);
    };
    let row = Row { state, ..row };
    // A requeued call is published under a new number; pointers of old ones find nothing to claim.
    s.pointer[at] = false;
    if state.is_terminal() {
        s.ledger.open[at] = None;
        if s.ledger.history[at].replace(row).is_some() {
            s.breach(Breach::FinishedTwice);
        }
    } else {
        s.ledger.open[at] = Some(row);
    }
}

//! How calls move. Every move goes through `fleet::state::next`, what follows an attempt through `fleet::retry`.

use fleet::{
    call::{Effect, State},
    retry::RetryDecision,
    state::{Move, next},
};

use super::{
    model::HeldModel,
    rules::HeldMutant,
    state::{HeldBreach, HeldRow, HeldState, Run},
};
use crate::{
    rules::Learned,
    state::{Ran, Registered},
};

impl HeldModel {
    /// `complete.sql`, guarded by the attempt; of a doubt only evidence is taken.
    pub(crate) fn record(&self, s: &mut HeldState, run: Run, ran: Ran) {
        let at = usize::from(run.call);
        if self.lacks(HeldMutant::PlaceFreedTwice)
            && ran != Ran::Unknown
            && let Some(place) = run.place
        {
            s.places[usize::from(place)] = super::state::NOTHING;
        }
        let Some(row) = s.rows[at].filter(|row| row.attempt == Some(run.attempt)) else {
            return;
        };
        match row.state {
            State::Running => {
                let learned = Learned {
                    spent_before: 0,
                    earlier_unknown: row.effect_unknown,
                    cancelled: row.cancel_requested,
                };
                let decision = if ran == Ran::TakenBack && !row.cancel_requested {
                    RetryDecision::Again(std::time::Duration::ZERO)
                } else {
                    self.decisions.after(ran, learned)
                };
                self.decided(s, at, decision, ran == Ran::Unknown);
            }
            State::InDoubt if ran == Ran::Applied => self.advance(s, at, Move::Succeed, row),
            _ => {}
        }
    }

    /// The sweep decides about a running call whose worker is dead.
    pub(crate) fn take_from_dead(&self, s: &mut HeldState, at: usize) -> bool {
        let Some(row) = s.rows[at].filter(|row| row.state == State::Running) else {
            return false;
        };
        let worker = row.worker.map(usize::from);
        if worker.is_none_or(|worker| s.workers[worker].registered == Registered::Live) {
            return false;
        }
        let decision = self.decisions.after_loss(0, row.cancel_requested);
        self.decided(s, at, decision, true);
        true
    }

    fn decided(&self, s: &mut HeldState, at: usize, decision: RetryDecision, unknown: bool) {
        let Some(row) = s.rows[at] else { return };
        match decision {
            RetryDecision::Succeed => self.advance(s, at, Move::Succeed, row),
            // `again`: it waits for the end of its pause, under a new number.
            RetryDecision::Again(_) => {
                let write = self.config.effect != Effect::Read;
                let effect_unknown = row.effect_unknown || unknown && write;
                let again = HeldRow {
                    waits: true,
                    effect_unknown,
                    ..HeldRow::accepted(false)
                };
                s.renumber(at);
                self.advance(s, at, Move::Again, again.in_state(row.state));
            }
            RetryDecision::Doubt => self.doubt(s, at, Move::Doubt),
            RetryDecision::Cancelled => self.advance(s, at, Move::Cancel, row),
            RetryDecision::Fail
            | RetryDecision::FailCancelled
            | RetryDecision::Suppressed
            | RetryDecision::Exhausted
            | RetryDecision::OutOfTime => self.advance(s, at, Move::Fail, row),
        }
    }

    /// A queued call ends, held or not; one whose effect is unknown is in doubt then.
    pub(crate) fn end_queued(&self, s: &mut HeldState, at: usize, event: Move) -> bool {
        let Some(row) = s.rows[at].filter(|row| row.state == State::Queued) else {
            return false;
        };
        if row.effect_unknown {
            self.doubt(s, at, Move::Doubt);
        } else {
            self.advance(s, at, event, row);
        }
        true
    }

    /// `toolfleet.cancel`.
    pub(crate) fn cancel(&self, s: &mut HeldState, at: usize) -> bool {
        match &mut s.rows[at] {
            Some(row) if row.state == State::Running => {
                row.cancel_requested = true;
                true
            }
            _ => self.end_queued(s, at, Move::Cancel),
        }
    }

    /// `toolfleet.quarantine`: what is held stays held, or is in doubt.
    pub(crate) fn quarantine(&self, s: &mut HeldState) -> bool {
        if std::mem::replace(&mut s.quarantined, true) {
            return false;
        }
        for at in 0..s.rows.len() {
            let undecided = |row: &HeldRow| matches!(row.state, State::Queued | State::Running);
            let Some(row) = s.rows[at].filter(undecided) else {
                continue;
            };
            match self.config.effect {
                Effect::Idempotent if row.cancel_requested => self.doubt(s, at, Move::Quarantine),
                Effect::Idempotent if row.state == State::Running => {
                    self.decided(s, at, RetryDecision::Again(std::time::Duration::ZERO), true);
                }
                Effect::Idempotent => {
                    s.rows[at] = Some(HeldRow {
                        effect_unknown: true,
                        ..row
                    });
                }
                Effect::Once => self.doubt(s, at, Move::Quarantine),
                Effect::Read | Effect::Transaction => {}
            }
        }
        true
    }

    /// It is not held any more: nothing may release it. Its attempt keeps its place until its time is over.
    fn doubt(&self, s: &mut HeldState, at: usize, event: Move) {
        let Some(row) = s.rows[at] else { return };
        let held = row.held && self.lacks(HeldMutant::DoubtStaysHeld);
        self.advance(s, at, event, HeldRow { held, ..row });
    }

    /// Moves a call as `fleet::state` says.
    pub(crate) fn advance(&self, s: &mut HeldState, at: usize, event: Move, row: HeldRow) {
        match next(row.state, event) {
            Ok(state) if state.is_terminal() => {
                s.rows[at] = Some(HeldRow::accepted(false).in_state(state));
            }
            Ok(state) => s.rows[at] = Some(row.in_state(state)),
            Err(_) => s.breach(HeldBreach::IllegalMove),
        }
    }
}

impl HeldRow {
    const fn in_state(self, state: State) -> Self {
        Self { state, ..self }
    }
}

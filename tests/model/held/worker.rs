//! What workers do: take messages, claim a call with a place, run, record, die. `claim_limited.sql`, `worker/src/{claim,dispose}.rs`.

use fleet::{
    call::{Effect, State},
    state::Move,
};

use super::{
    model::HeldModel,
    places,
    rules::HeldMutant,
    state::{
        Disposal, HeldBreach, HeldLine, HeldRow, HeldState, HeldStep, HeldWorker, Judgement,
        Message, PLACES, Run, Taken,
    },
};
use crate::state::{Attempt, Ran, Registered, slot};

impl HeldModel {
    /// Takes a message and sends a claim, under a new name.
    pub(crate) fn deliver(s: &mut HeldState, worker: usize, call: u8, current: bool) -> bool {
        let of = s.pointers[usize::from(call)];
        let there = if current {
            of.current == Message::Waiting
        } else {
            of.earlier
        };
        if !there || s.workers[worker] != HeldWorker::IDLE {
            return false;
        }
        let attempt = s.fresh_attempt();
        let of = &mut s.pointers[usize::from(call)];
        if current {
            of.current = Message::InHand;
        } else {
            of.earlier = false;
        }
        s.workers[worker].step = HeldStep::Asking(Taken { call, current }, attempt);
        true
    }

    /// The claim begins: it locks its worker's row and sees the places as they are now.
    pub(crate) fn judge(&self, s: &mut HeldState, worker: usize) -> bool {
        let HeldStep::Asking(taken, attempt) = s.workers[worker].step else {
            return false;
        };
        if s.workers[worker].registered != Registered::Live {
            s.workers[worker].step = HeldStep::NotOurs(taken);
            return true;
        }
        let mut judgement = Judgement {
            free: [None; PLACES],
            limit: s.limit,
        };
        if self.config.lines[usize::from(taken.call)] == Some(HeldLine::Tool) {
            let mut live = s.live();
            if self.lacks(HeldMutant::PlaceOfDoubtFree) {
                let runs = |attempt| s.of(attempt).is_some_and(|row| row.state == State::Running);
                live = s.places.map(runs);
            }
            let limit = usize::from(s.limit);
            let free: Vec<usize> = if self.lacks(HeldMutant::LargerLimitForgotten) {
                (0..limit).filter(|place| !live[*place]).collect()
            } else {
                places::free(&live[..usize::from(self.config.limit)], limit).collect()
            };
            let taken = live.iter().filter(|live| **live).count();
            if !free.is_empty() && taken + free.len() > limit {
                s.breach(HeldBreach::PlaceBeyondLimit);
            }
            for place in free {
                judgement.free[place] = Some(s.places[place]);
            }
        }
        s.workers[worker].step = HeldStep::Judged(taken, attempt, judgement);
        true
    }

    /// The call and a place are locked, looked at again, and move; without a place the call goes back into its line.
    pub(crate) fn take_place(
        &self,
        s: &mut HeldState,
        worker: usize,
        locked: bool,
        answered: bool,
    ) -> bool {
        let HeldStep::Judged(taken, attempt, judgement) = s.workers[worker].step else {
            return false;
        };
        let at = usize::from(taken.call);
        let claimable = |row: &HeldRow| {
            row.may_run()
                || self.lacks(HeldMutant::HeldClaimed)
                    && HeldRow {
                        held: false,
                        ..*row
                    }
                    .may_run()
        };
        let row = s.rows[at].filter(claimable);
        let limited = self.config.lines[at] == Some(HeldLine::Tool);
        if locked && (row.is_none() || !limited || !self.another_claims(s, worker)) {
            return false;
        }
        let place = self.place_for(s, judgement).filter(|_| !locked);
        let heard = match row {
            None => HeldStep::NotOurs(taken),
            Some(row) if limited && place.is_none() => {
                let held = !self.lacks(HeldMutant::PutBackUnheld);
                s.rows[at] = Some(HeldRow { held, ..row });
                HeldStep::Disposing(taken, Disposal::Acknowledge)
            }
            Some(row) => {
                self.claim(s, worker, row, (taken, attempt), place);
                s.rows[at].iter_mut().for_each(|row| {
                    if limited && self.config.shrinks {
                        row.limit = judgement.limit;
                    }
                });
                self.running(taken, attempt, place)
            }
        };
        let ours = matches!(heard, HeldStep::Running(_));
        if answered {
            // Once claimed, the message is acknowledged.
            if ours && taken.current {
                s.pointers[at].current = Message::Absent;
            }
            s.workers[worker].step = heard;
        } else {
            s.workers[worker].step = HeldStep::Silent(taken, attempt);
        }
        true
    }

    fn another_claims(&self, s: &HeldState, worker: usize) -> bool {
        let others = s.workers.iter().enumerate();
        others
            .into_iter()
            .any(|(other, one)| other != worker && matches!(one.step, HeldStep::Judged(..)))
    }

    /// The first place that was free and, now that it is locked, names the same attempt still.
    fn place_for(&self, s: &HeldState, judgement: Judgement) -> Option<usize> {
        let old_snapshot = self.lacks(HeldMutant::PlaceByOldSnapshot);
        (0..PLACES).find(|place| {
            let seen = judgement.free[*place];
            seen.is_some_and(|attempt| attempt == s.places[*place] || old_snapshot)
        })
    }

    fn claim(
        &self,
        s: &mut HeldState,
        worker: usize,
        row: HeldRow,
        (taken, attempt): (Taken, Attempt),
        place: Option<usize>,
    ) {
        if row.held {
            s.breach(HeldBreach::ClaimedHeld);
        }
        if let Some(place) = place {
            if s.live()[place] {
                s.breach(HeldBreach::PlaceTaken);
            }
            s.places[place] = attempt;
        }
        let claimed = HeldRow {
            attempt: Some(attempt),
            worker: Some(slot(worker)),
            ..row
        };
        self.advance(s, usize::from(taken.call), Move::Claim, claimed);
    }

    fn running(&self, taken: Taken, attempt: Attempt, place: Option<usize>) -> HeldStep {
        let remembered = place.filter(|_| self.lacks(HeldMutant::PlaceFreedTwice));
        HeldStep::Running(Run {
            call: taken.call,
            attempt,
            place: remembered.map(slot),
        })
    }

    /// The statement came to nothing; the worker does not know.
    pub(crate) fn lose_claim(s: &mut HeldState, worker: usize) -> bool {
        let (HeldStep::Asking(taken, attempt) | HeldStep::Judged(taken, attempt, _)) =
            s.workers[worker].step
        else {
            return false;
        };
        s.workers[worker].step = HeldStep::Silent(taken, attempt);
        true
    }

    /// Asks whose the call is; what is not its own it hands back, for it does not know why.
    pub(crate) fn read_back(&self, s: &mut HeldState, worker: usize) -> bool {
        let HeldStep::Silent(taken, attempt) = s.workers[worker].step else {
            return false;
        };
        let ours = s.of(attempt).is_some_and(|row| row.state == State::Running);
        let place = s.places.iter().position(|named| *named == attempt);
        s.workers[worker].step = if ours {
            if taken.current {
                s.pointers[usize::from(taken.call)].current = Message::Absent;
            }
            self.running(taken, attempt, place)
        } else {
            HeldStep::Disposing(taken, Disposal::HandBack)
        };
        true
    }

    /// `why_not`: what the row says now decides what becomes of the message.
    pub(crate) fn look_why(s: &mut HeldState, worker: usize) -> bool {
        let HeldStep::NotOurs(taken) = s.workers[worker].step else {
            return false;
        };
        let row = s.rows[usize::from(taken.call)];
        let comes_again = row.is_some_and(|row| row.state == State::Queued && !row.held);
        let disposal = if comes_again {
            Disposal::HandBack
        } else {
            Disposal::Acknowledge
        };
        s.workers[worker].step = HeldStep::Disposing(taken, disposal);
        true
    }

    /// Tells NATS.
    pub(crate) fn dispose(s: &mut HeldState, worker: usize) -> bool {
        let HeldStep::Disposing(taken, disposal) = s.workers[worker].step else {
            return false;
        };
        let at = usize::from(taken.call);
        match disposal {
            Disposal::HandBack => s.hand_back(s.workers[worker].step),
            Disposal::Acknowledge if taken.current => {
                s.pointers[at].current = Message::Absent;
                if s.rows[at].is_some_and(|row| row.may_run()) {
                    s.breach(HeldBreach::PointerTaken);
                }
            }
            Disposal::Acknowledge => {}
        }
        s.workers[worker].step = HeldStep::Idle;
        true
    }

    /// The tool has come to an end, as the worker sees it.
    pub(crate) fn end_run(&self, s: &mut HeldState, worker: usize, ran: Ran, acts: bool) -> bool {
        let HeldStep::Running(run) = s.workers[worker].step else {
            return false;
        };
        self.act(s, run, acts);
        s.workers[worker].step = HeldStep::Ended(run, ran);
        true
    }

    fn act(&self, s: &mut HeldState, run: Run, acts: bool) {
        if acts && self.config.effect == Effect::Once {
            let effects = &mut s.effects[usize::from(run.call)];
            *effects = (*effects + 1).min(2);
        }
    }

    /// The process ends, before or after the tool had its effect. A message that it had comes again.
    pub(crate) fn end_worker(&self, s: &mut HeldState, worker: usize, acts: bool) -> bool {
        let step = s.workers[worker].step;
        match step {
            HeldStep::Gone => return false,
            HeldStep::Running(run) => self.act(s, run, acts),
            _ if acts => return false,
            _ => s.hand_back(step),
        }
        s.workers[worker].step = HeldStep::Gone;
        true
    }

    /// Waits for a claim that has locked the worker's row.
    pub(crate) fn declare_silent(s: &mut HeldState, worker: usize) -> bool {
        let one = &mut s.workers[worker];
        if one.registered != Registered::Live || matches!(one.step, HeldStep::Judged(..)) {
            return false;
        }
        one.registered = Registered::Dead;
        true
    }
}

impl HeldState {
    /// Whether the ledger says that the worker runs a call.
    pub(crate) fn runs_for(&self, worker: usize) -> bool {
        let rows = self.rows.iter().flatten();
        rows.into_iter()
            .any(|row| row.state == State::Running && row.worker == Some(slot(worker)))
    }
}

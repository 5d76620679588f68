//! What worker processes do: claim, run, record, die.

use fleet::{
    call::{Effect, EffectKnown, State},
    retry::RetryDecision,
    state::Move,
};

use crate::{
    ledger::Ending,
    protocol::Protocol,
    rules::{Learned, Mutant},
    state::{Claim, Job, Ran, Registered, Row, Step, System, Worker, bit, is_write, orphan_bit},
};

impl Protocol {
    /// Takes a pointer and sends a claim, under a name that it remembers from now on.
    pub(crate) fn deliver(&self, s: &mut System, worker: usize, call: u8) -> bool {
        let at = usize::from(call);
        // Whether it lives it learns from the claim; a worker that knows itself dead asks for nothing.
        if s.workers[worker].step != Step::Idle
            || !s.pointer[at]
            || s.ledger.registered[worker] != Registered::Live
        {
            return false;
        }
        let attempt = if self.lacks(Mutant::CountedAttempts) {
            s.ledger.open[at].map_or(1, |row| 1 + row.spent + row.lost)
        } else {
            s.fresh_attempt()
        };
        let job = Job {
            call,
            attempt,
            earlier_unknown: false,
        };
        s.workers[worker].step = Step::Asking(Claim {
            job,
            worker_was_live: false,
        });
        true
    }

    /// The first half of `claim.sql`. `None`: it is not live, and nothing is claimed.
    pub(crate) fn read_worker(s: &System, worker: usize, claim: Claim) -> Option<Claim> {
        let live = s.ledger.registered[worker] == Registered::Live;
        live.then_some(Claim {
            worker_was_live: true,
            ..claim
        })
    }

    /// What a worker does once it knows that the claim is its own.
    pub(crate) fn claimed(s: &System, job: Job) -> Step {
        let row = s.ledger.open[usize::from(job.call)];
        Step::Claimed(Job {
            earlier_unknown: row.is_some_and(|row| row.effect_unknown),
            ..job
        })
    }

    /// `claim_read_back.sql`: waits for the statement that still has the row, then believes what it sees.
    pub(crate) fn read_back(&self, s: &mut System, worker: usize) -> bool {
        let Step::Silent(job) = s.workers[worker].step else {
            return false;
        };
        if s.workers[worker]
            .late
            .is_some_and(|claim| claim.worker_was_live)
        {
            return false;
        }
        let row = s.ledger.open[usize::from(job.call)];
        let ours = row.is_some_and(|row| row.is_of(job.attempt) && row.state == State::Running);
        if ours || self.lacks(Mutant::RunOnUnknownClaim) {
            s.workers[worker].step = Self::claimed(s, job);
        } else if s.workers[worker].given_up.is_none() {
            s.workers[worker].step = Step::Idle;
            s.workers[worker].given_up = Some(job);
        } else {
            // The code remembers any number; here the first one has to be over before there is a second.
            return false;
        }
        true
    }

    /// Looks for the claim that was given up, and says that it was never started.
    pub(crate) fn give_back(&self, s: &mut System, worker: usize) -> bool {
        let Some(job) = s.workers[worker].given_up else {
            return false;
        };
        let row = s.ledger.open[usize::from(job.call)];
        let Some(row) = row.filter(|row| row.is_of(job.attempt) && row.state == State::Running)
        else {
            return false;
        };
        s.workers[worker].given_up = None;
        let ending = self.concluded(Ran::TakenBack, Self::learn(&row));
        self.complete(s, Some(worker), job, ending)
    }

    /// The tool has come to an end, as the worker sees it.
    pub(crate) fn run(&self, s: &mut System, worker: usize, ran: Ran, happens: bool) -> bool {
        let Step::Claimed(job) = s.workers[worker].step else {
            return false;
        };
        let at = usize::from(job.call);
        let void = s.outside[at].void & bit(worker) != 0;
        let no = matches!(ran, Ran::No | Ran::NotNow);
        let keyed_tool =
            self.config.effect == Effect::Idempotent && self.config.rules.no_is_for_good;
        if keyed_tool && ((void && happens) || (no && s.effects(at) > 0)) {
            return false;
        }
        if ran == Ran::Abandoned && !Self::orphan(s, worker, job) {
            return false;
        }
        s.outside[at].void &= !bit(worker);
        if happens {
            self.take_effect(s, at);
        }
        if no && keyed_tool && s.ledger.open[at].is_some_and(|row| row.is_of(job.attempt)) {
            self.void_earlier_requests(s, worker, job.call);
        }
        s.workers[worker].step = Step::Ended(job, ran);
        true
    }

    /// A tool that honours keys has said no to this one: what an earlier attempt still sends gets the same answer.
    fn void_earlier_requests(&self, s: &mut System, worker: usize, call: u8) {
        for other in 0..self.config.workers {
            let Worker { step, orphan, .. } = s.workers[other];
            let void = &mut s.outside[usize::from(call)].void;
            if other != worker && matches!(step, Step::Claimed(job) if job.call == call) {
                *void |= bit(other);
            }
            if orphan.is_some_and(|job| job.call == call) {
                *void |= orphan_bit(other);
            }
        }
    }

    /// What the worker had started runs on by itself.
    fn orphan(s: &mut System, worker: usize, job: Job) -> bool {
        let void = &mut s.outside[usize::from(job.call)].void;
        if *void & bit(worker) != 0 {
            *void = *void & !bit(worker) | orphan_bit(worker);
        }
        s.workers[worker].orphan.replace(job).is_none()
    }

    fn take_effect(&self, s: &mut System, at: usize) {
        let effects = &mut s.outside[at].effects;
        match self.config.effect {
            Effect::Read => {}
            // The tool recognises the key.
            Effect::Idempotent => *effects = 1,
            Effect::Once | Effect::Transaction => *effects = (*effects + 1).min(2),
        }
    }

    /// A tool without a waiting worker has its effect after all.
    pub(crate) fn orphan_acts(&self, s: &mut System, worker: usize) -> bool {
        let Some(job) = s.workers[worker].orphan else {
            return false;
        };
        let at = usize::from(job.call);
        match self.config.effect {
            Effect::Transaction => {
                self.commit(s, worker, job);
            }
            Effect::Read | Effect::Idempotent | Effect::Once => {
                if s.outside[at].void & orphan_bit(worker) != 0 {
                    return false;
                }
                self.take_effect(s, at);
            }
        }
        Self::orphan_ends(s, worker)
    }

    pub(crate) fn orphan_ends(s: &mut System, worker: usize) -> bool {
        let Some(job) = s.workers[worker].orphan.take() else {
            return false;
        };
        s.outside[usize::from(job.call)].void &= !orphan_bit(worker);
        true
    }

    /// Records how the attempt ended. When nothing moved, the row says why.
    pub(crate) fn record(&self, s: &mut System, worker: usize, job: Job, ran: Ran) {
        let at = usize::from(job.call);
        let remembered = Learned {
            spent_before: s.ledger.find(at).map_or(0, |row| row.spent),
            earlier_unknown: job.earlier_unknown,
            cancelled: false,
        };
        let ending = self.concluded(ran, remembered);
        if self.complete(s, Some(worker), job, ending) {
            return;
        }
        let Some(row) = s.ledger.open[at].filter(|row| row.is_of(job.attempt)) else {
            // Finished by this very attempt, or taken from it: evidence, not a move.
            return;
        };
        let ending = match row.state {
            // It was cancelled, or after lost writes earlier attempts are unknown.
            State::Running => Some(self.concluded(ran, Self::learn(&row))),
            State::InDoubt => Self::settling(ran, job, ending),
            _ => None,
        };
        if let Some(ending) = ending {
            self.complete(s, Some(worker), job, ending);
        }
    }

    fn learn(row: &Row) -> Learned {
        Learned {
            spent_before: row.spent,
            earlier_unknown: row.effect_unknown,
            cancelled: row.cancel_requested,
        }
    }

    /// What an attempt proves after all about the call that is in doubt because of it.
    fn settling(ran: Ran, job: Job, ending: Ending) -> Option<Ending> {
        let unstarted = matches!(ran, Ran::NotStarted | Ran::TakenBack);
        match ran {
            Ran::Applied => Some(ending),
            Ran::Unknown | Ran::Abandoned => None,
            Ran::NotStarted | Ran::TakenBack if job.earlier_unknown => None,
            Ran::No | Ran::NotNow | Ran::NotStarted | Ran::TakenBack => {
                let known = EffectKnown::NotApplied;
                Some(Ending::Over {
                    event: Move::Fail,
                    known,
                    unstarted,
                })
            }
        }
    }

    /// From how an attempt ended to what becomes of the call.
    fn concluded(&self, ran: Ran, learned: Learned) -> Ending {
        let unstarted = matches!(ran, Ran::NotStarted | Ran::TakenBack);
        // A transaction leaves nothing unknown: what moves its row sees to it that it does not commit any more.
        let transaction = self.config.effect == Effect::Transaction;
        let counts_as_over = transaction || self.lacks(Mutant::AbandonedCountsAsOver);
        let suspect = ran == Ran::Abandoned && !counts_as_over;
        let again = |spent| Ending::Again {
            spent,
            lost: 0,
            effect_unknown: match ran {
                Ran::Unknown | Ran::Abandoned => Some(!transaction),
                Ran::No | Ran::NotNow => Some(false),
                Ran::Applied | Ran::NotStarted | Ran::TakenBack => None,
            },
            suspect,
        };
        let known = match (self.config.effect, ran) {
            (Effect::Read, _) => EffectKnown::None,
            (_, Ran::Applied) => EffectKnown::Applied,
            (Effect::Idempotent | Effect::Once, Ran::Unknown | Ran::Abandoned) => {
                EffectKnown::Unknown
            }
            (_, Ran::NotStarted | Ran::TakenBack | Ran::No | Ran::NotNow)
            | (Effect::Transaction, Ran::Unknown | Ran::Abandoned) => EffectKnown::NotApplied,
        };
        let over = |event| Ending::Over {
            event,
            known,
            unstarted,
        };
        if ran == Ran::TakenBack && !learned.cancelled {
            return again(0);
        }
        match self.decisions.after(ran, learned) {
            RetryDecision::Succeed => over(Move::Succeed),
            RetryDecision::Again(_) => again(1),
            RetryDecision::Doubt
                if ran == Ran::Unknown && self.lacks(Mutant::RetryOnceAfterTimeout) =>
            {
                again(1)
            }
            RetryDecision::Doubt => Ending::Doubt { suspect },
            RetryDecision::Cancelled => over(Move::Cancel),
            RetryDecision::Fail
            | RetryDecision::FailCancelled
            | RetryDecision::Suppressed
            | RetryDecision::Exhausted
            | RetryDecision::OutOfTime => over(Move::Fail),
        }
    }

    /// The process dies; what it had started or sent goes on by itself.
    pub(crate) fn crash(&self, s: &mut System, worker: usize) -> bool {
        match s.workers[worker].step {
            Step::Gone => return false,
            Step::Claimed(job) | Step::Unsure(job) if is_write(self.config.effect) => {
                if !Self::orphan(s, worker, job) {
                    return false;
                }
            }
            Step::Asking(claim) => {
                let late = &mut s.workers[worker].late;
                *late = late.or(Some(claim));
            }
            Step::Idle | Step::Silent(_) | Step::Claimed(_) | Step::Unsure(_) | Step::Ended(..) => {
            }
        }
        s.workers[worker].step = Step::Gone;
        s.workers[worker].given_up = None;
        true
    }

    /// Goes in order: it has nothing in hand. Only if it also left nothing behind does that prove it gone.
    pub(crate) fn leave(&self, s: &mut System, worker: usize) -> bool {
        if s.workers[worker].step != Step::Idle {
            return false;
        }
        s.workers[worker].step = Step::Gone;
        s.workers[worker].given_up = None;
        self.fence(s, worker);
        true
    }

    /// Takes the worker's row `FOR UPDATE`: waits for claims under way, or, without that rule, does not.
    pub(crate) fn declare_dead(&self, s: &mut System, worker: usize) -> bool {
        let waits = s.workers[worker].locks_its_row() && !self.lacks(Mutant::ClaimPastFence);
        if waits || s.ledger.registered[worker] != Registered::Live {
            return false;
        }
        s.ledger.registered[worker] = Registered::Dead;
        true
    }

    /// The lock that the process and all it started held is free: it is proven gone. Another process takes its slot.
    ///
    /// Takes the worker's row `FOR UPDATE` too; claims that have not read that row yet will find it fenced.
    pub(crate) fn fence(&self, s: &mut System, worker: usize) -> bool {
        let one = s.workers[worker];
        if one.step != Step::Gone || one.orphan.is_some() || one.locks_its_row() {
            return false;
        }
        s.ledger.fence(worker);
        s.ledger.registered[worker] = Registered::Live;
        if let Some(backup) = &mut s.backup {
            backup.fence(worker);
            // The copy has never heard of the new process.
            backup.registered[worker] = Registered::Dead;
        }
        s.workers[worker] = Worker::IDLE;
        true
    }
}

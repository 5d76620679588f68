//! One call as it should be: `fleet::state::next`, and the guards' rules in a few lines each. Pure; no clock runs here.

use fleet::{
    call::{Effect, EffectKnown, Source, State},
    ids::{AttemptId, CallId, WorkerId},
    outcome::OutcomeWord,
    state::{Move, next},
    store::{complete::AttemptCost, probe::ProbeState, settle::SettledAs},
};

/// What may be done to a call. A guard is what an actor believes, right or wrong.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Claim {
        worker: WorkerId,
        alive: bool,
        attempt: AttemptId,
        far: bool,
    },
    End {
        guard: Guard,
        state: State,
        effect: EffectKnown,
    },
    Again {
        guard: Guard,
        cost: AttemptCost,
        outcome: OutcomeWord,
        over: bool,
        long: bool,
    },
    Doubt {
        guard: Guard,
        over: bool,
    },
    Postpone {
        rev: i32,
        long: bool,
    },
    Cancel,
    Settle {
        finding: SettledAs,
        by_time_only: bool,
    },
    Probe {
        rev: i32,
        probe: CallId,
    },
    Remark {
        rev: i32,
        state: ProbeState,
        last: bool,
    },
    /// Time passes: its pause, which the sweep then takes, its deadline, its wait for the first attempt.
    Pass(Clock),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Guard {
    Attempt(AttemptId),
    Queued(i32),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Clock {
    Pause,
    Deadline,
    QueueWait,
}

/// What the ledger says to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It moved, or took a remark, and stands there now.
    Moved(State),
    /// The guard did not hold.
    Nothing,
    /// The tables refused the move.
    Refused,
    /// The answer of a function, and the state that it names.
    Said(&'static str, Option<State>),
}

/// What is known of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Alive,
    Dead,
    /// Fenced, or left in order: nothing of it can act any more.
    Gone,
}

#[derive(Debug, Clone)]
pub(super) struct Model {
    pub(super) id: CallId,
    pub(super) effect: Effect,
    pub(super) row: Row,
    /// Whether its pause is over, its deadline ahead, its wait for the first attempt not over.
    due: bool,
    /// Whether the sweep has still to take it: until then no message may give it another pause.
    awaits_sweep: bool,
    in_time: bool,
    awaited: bool,
    /// Whether `attempt_until` is there, and lies ahead.
    until: Option<bool>,
    /// Attempts that ended with an unknown effect.
    unknown: Vec<Unknown>,
    probe_state: Option<ProbeState>,
    /// Every attempt that there was.
    pub(super) attempts: Vec<AttemptId>,
    pub(super) ended_attempts: i64,
    /// Where each revision led from and to, from revision 1.
    pub(super) history: Vec<(State, State)>,
}

#[derive(Debug, Clone)]
struct Unknown {
    worker: WorkerId,
    over: bool,
    far: bool,
}

/// What the tables say of a call: of its open row, or of its finished one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) state: State,
    pub(super) rev: i32,
    pub(super) attempts: i32,
    pub(super) lost: i32,
    pub(super) unspent: i32,
    pub(super) publish_n: i32,
    pub(super) attempt: Option<AttemptId>,
    pub(super) worker: Option<WorkerId>,
    pub(super) cancel_requested: bool,
    pub(super) effect_unknown: bool,
    pub(super) probe: Option<CallId>,
    pub(super) probes: i32,
    pub(super) finished: Option<Finished>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finished {
    pub(super) from: State,
    pub(super) source: Source,
    pub(super) effect: EffectKnown,
}

impl Model {
    pub(super) fn queued(id: CallId, effect: Effect) -> Self {
        Self {
            id,
            effect,
            row: Row {
                state: State::Queued,
                rev: 0,
                attempts: 0,
                lost: 0,
                unspent: 0,
                publish_n: 1,
                attempt: None,
                worker: None,
                cancel_requested: false,
                effect_unknown: false,
                probe: None,
                probes: 0,
                finished: None,
            },
            due: true,
            awaits_sweep: false,
            in_time: true,
            awaited: true,
            until: None,
            unknown: Vec::new(),
            probe_state: None,
            attempts: Vec::new(),
            ended_attempts: 0,
            history: Vec::new(),
        }
    }

    pub(super) const fn waits_for_its_time(&self) -> bool {
        !self.due
    }

    /// Whether a remark like this says something new, as the pass decides it.
    pub(super) fn is_news(&self, state: ProbeState, last: bool) -> bool {
        self.probe_state != Some(ProbeState::Asking) && self.probe_state != Some(state)
            || self.row.probes <= 1
            || last
    }

    pub(super) const fn probe_state(&self) -> Option<ProbeState> {
        self.probe_state
    }

    /// Does it, if it may be done.
    pub(super) fn apply(&mut self, op: &Op, standing: impl Fn(WorkerId) -> Standing) -> Verdict {
        let (state, open) = (self.row.state, self.row.finished.is_none());
        match op {
            Op::Claim {
                worker,
                alive,
                attempt,
                far,
            } => {
                let first_in_time = self.row.attempts > 0 || self.awaited;
                if !(*alive && state == State::Queued && self.due && self.in_time && first_in_time)
                {
                    return Verdict::Nothing;
                }
                self.goes(Move::Claim);
                self.row.attempts += 1;
                self.row.attempt = Some(*attempt);
                self.row.worker = Some(*worker);
                self.until = Some(*far);
                self.attempts.push(*attempt);
                Verdict::Moved(State::Running)
            }
            Op::End {
                guard,
                state: to,
                effect,
            } => {
                // A doubt ends by evidence; and an ending of no attempt says nothing of one before it.
                let wish = state == State::InDoubt && *to == State::Cancelled;
                let unproven = matches!(guard, Guard::Queued(_))
                    && *effect == EffectKnown::NotApplied
                    && self.row.effect_unknown
                    && self.effect != Effect::Read;
                if !self.holds(*guard) || wish || unproven {
                    return Verdict::Nothing;
                }
                // A doubt ends by evidence, not by a wish.
                if state == State::InDoubt && *to == State::Cancelled {
                    return Verdict::Nothing;
                }
                if next(state, event_to(*to)).is_err() {
                    return Verdict::Refused;
                }
                let source = [Source::Error, Source::Live][usize::from(*to == State::Succeeded)];
                self.ends(event_to(*to), source, *effect);
                Verdict::Moved(*to)
            }
            Op::Again {
                guard,
                cost,
                outcome,
                over,
                long,
            } => {
                if !self.holds(*guard) || state != State::Running || self.row.cancel_requested {
                    return Verdict::Nothing;
                }
                self.remember_attempt(*outcome, *over);
                self.goes(Move::Again);
                self.row.publish_n += 1;
                self.row.lost += i32::from(*cost == AttemptCost::Lost);
                self.row.unspent += i32::from(*cost != AttemptCost::Spent);
                self.row.effect_unknown = match outcome {
                    OutcomeWord::Unknown => true,
                    OutcomeWord::DefiniteFailure => false,
                    OutcomeWord::Applied | OutcomeWord::NotStarted => self.row.effect_unknown,
                };
                (self.row.attempt, self.row.worker, self.until) = (None, None, None);
                (self.due, self.awaits_sweep) = (!long, true);
                Verdict::Moved(State::Queued)
            }
            Op::Doubt { guard, over } => {
                if !self.holds(*guard) || state == State::InDoubt {
                    return Verdict::Nothing;
                }
                match guard {
                    Guard::Attempt(_) => self.remember_attempt(OutcomeWord::Unknown, *over),
                    Guard::Queued(_) => self.until = self.until_of_unknown(),
                }
                self.goes(Move::Doubt);
                Verdict::Moved(State::InDoubt)
            }
            Op::Postpone { rev, long } => {
                if state != State::Queued || self.row.rev != *rev || self.awaits_sweep {
                    return Verdict::Nothing;
                }
                self.row.publish_n += 1;
                (self.due, self.awaits_sweep) = (!long, true);
                Verdict::Moved(state)
            }
            Op::Cancel => self.cancel(),
            Op::Settle {
                finding,
                by_time_only,
            } => self.settle(*finding, *by_time_only, standing),
            Op::Probe { rev, probe } => {
                if state != State::InDoubt || self.row.rev != *rev || self.row.probe.is_some() {
                    return Verdict::Nothing;
                }
                self.row.probe = Some(*probe);
                self.row.probes += 1;
                self.probe_state = Some(ProbeState::Asking);
                Verdict::Moved(state)
            }
            Op::Remark {
                rev,
                state: said,
                last,
            } => {
                if state != State::InDoubt || self.row.rev != *rev {
                    return Verdict::Nothing;
                }
                if self.is_news(*said, *last) {
                    self.remarks();
                }
                // One that could not be made counts as one.
                self.row.probes += i32::from(self.row.probe.is_none());
                self.row.probe = None;
                self.probe_state = Some(*said);
                Verdict::Moved(state)
            }
            Op::Pass(clock) if open => {
                match clock {
                    Clock::Pause => {
                        self.due = true;
                        self.awaits_sweep &= state != State::Queued;
                    }
                    Clock::Deadline => self.in_time = false,
                    Clock::QueueWait => self.awaited = false,
                }
                Verdict::Moved(state)
            }
            Op::Pass(_) => Verdict::Nothing,
        }
    }

    fn holds(&self, guard: Guard) -> bool {
        match guard {
            Guard::Attempt(attempt) => {
                self.row.attempt == Some(attempt)
                    && matches!(self.row.state, State::Running | State::InDoubt)
            }
            Guard::Queued(rev) => self.row.state == State::Queued && self.row.rev == rev,
        }
    }

    fn cancel(&mut self) -> Verdict {
        let state = self.row.state;
        match state {
            State::InDoubt => Verdict::Said("in_doubt", Some(state)),
            State::Running => {
                if !self.row.cancel_requested {
                    self.row.cancel_requested = true;
                    self.remarks();
                }
                Verdict::Said("cancel_requested", Some(state))
            }
            State::Queued if self.row.effect_unknown && self.effect != Effect::Read => {
                self.until = self.until_of_unknown();
                self.goes(Move::Doubt);
                Verdict::Said("in_doubt", Some(State::InDoubt))
            }
            State::Queued => {
                let nothing = [EffectKnown::NotApplied, EffectKnown::None];
                let effect = nothing[usize::from(self.effect == Effect::Read)];
                self.row.attempt = None;
                self.ends(Move::Cancel, Source::Error, effect);
                Verdict::Said("cancelled", Some(State::Cancelled))
            }
            _ => Verdict::Said("already_terminal", Some(state)),
        }
    }

    fn settle(
        &mut self,
        finding: SettledAs,
        by_time_only: bool,
        standing: impl Fn(WorkerId) -> Standing,
    ) -> Verdict {
        let state = self.row.state;
        let (event, effect) = match finding {
            SettledAs::Applied => (Move::Succeed, EffectKnown::Applied),
            SettledAs::NotApplied => (Move::Fail, EffectKnown::NotApplied),
            SettledAs::Abandoned => (Move::Fail, EffectKnown::Unknown),
        };
        if let Some(finished) = &self.row.finished {
            let same = finished.source == Source::Settled && finished.effect == effect;
            return Verdict::Said(if same { "settled" } else { "conflict" }, Some(state));
        }
        if state != State::InDoubt {
            return Verdict::Said("conflict", Some(state));
        }
        if finding == SettledAs::NotApplied {
            let fenced = |one: &Unknown| one.over || standing(one.worker) == Standing::Gone;
            if !by_time_only && !self.unknown.iter().all(fenced) {
                return Verdict::Said("worker_not_fenced", None);
            }
        }
        if finding != SettledAs::Applied && self.until == Some(true) {
            return Verdict::Said("too_early", None);
        }
        // No attempt decided it.
        self.row.attempt = None;
        self.ends(event, Source::Settled, effect);
        Verdict::Said("settled", Some(self.row.state))
    }

    /// An attempt ends without ending its call.
    fn remember_attempt(&mut self, outcome: OutcomeWord, over: bool) {
        self.ended_attempts += 1;
        if outcome == OutcomeWord::Unknown {
            self.unknown.push(Unknown {
                worker: self.row.worker.expect("a running call has a worker"),
                over,
                far: self.until.expect("a running call has an end"),
            });
        }
    }

    fn until_of_unknown(&self) -> Option<bool> {
        self.unknown.iter().map(|one| one.far).max()
    }

    fn goes(&mut self, event: Move) {
        let to = next(self.row.state, event).expect("the guards let only legal moves through");
        self.history.push((self.row.state, to));
        self.row.rev += 1;
        self.row.state = to;
    }

    fn remarks(&mut self) {
        self.history.push((self.row.state, self.row.state));
        self.row.rev += 1;
    }

    fn ends(&mut self, event: Move, source: Source, effect: EffectKnown) {
        let from = self.row.state;
        self.goes(event);
        // What the history does not keep.
        self.row = Row {
            lost: 0,
            unspent: 0,
            publish_n: 0,
            cancel_requested: false,
            effect_unknown: false,
            probe: None,
            probes: 0,
            finished: Some(Finished {
                from,
                source,
                effect,
            }),
            ..self.row.clone()
        };
    }
}

fn event_to(state: State) -> Move {
    match state {
        State::Succeeded => Move::Succeed,
        State::Failed => Move::Fail,
        State::Expired => Move::Expire,
        State::Cancelled => Move::Cancel,
        open => unreachable!("no call ends as {open}"),
    }
}

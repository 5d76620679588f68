//! What is promised, and what must come up for the promise to mean something.

use std::collections::BTreeSet;

use fleet::call::{Effect, EffectKnown, State};
use stateright::Property;

use crate::{
    actions::Action,
    protocol::Protocol,
    rules::Config,
    state::{Breach, CALLS, Caller, Ended, Ran, Row, Step, System, Worker, is_write, slot},
};

pub(crate) const AT_MOST_ONCE: &str = "an effect happens at most once";
pub(crate) const ONE_PER_REQUEST: &str = "one request has one effect";
pub(crate) const SUCCEEDED: &str = "what succeeded has happened";
pub(crate) const NOT_APPLIED: &str = "what was not applied or cancelled never happens";
pub(crate) const DEFINITE: &str = "a definite failure had no effect and never gets one";
pub(crate) const OWNER: &str = "only the attempt that holds a call records its outcome";
pub(crate) const FINAL: &str = "every move is legal, and a terminal state is final";
pub(crate) const ONE_PLACE: &str = "a call is in one place";
pub(crate) const EXISTS: &str = "a call whose id was given out exists";
pub(crate) const FENCE: &str = "nothing is claimed for a worker that was declared gone";
pub(crate) const CANCELLED: &str = "nothing is begun after a cancel was answered";
pub(crate) const PRESENT: &str = "no caller is told that a call which exists does not";

/// What is checked in a configuration.
pub(crate) fn of(config: &Config) -> Vec<Property<Protocol>> {
    let mut all = vec![
        always(AT_MOST_ONCE, |_, s| calls().all(|at| s.effects(at) <= 1)),
        always(ONE_PER_REQUEST, |_, s| {
            calls().map(|at| s.effects(at)).sum::<u8>() <= 1
        }),
        always(SUCCEEDED, |protocol, s| {
            let write = is_write(protocol.config.effect);
            finished(s)
                .all(|(at, row)| !write || row.state != State::Succeeded || s.effects(at) > 0)
        }),
        always(NOT_APPLIED, |_, s| {
            no_effect(s, |ended| ended != Ended::Attempt)
        }),
        always(DEFINITE, |_, s| {
            no_effect(s, |ended| ended == Ended::Attempt)
        }),
        always(OWNER, |_, s| s.breach != Some(Breach::WrongRecorder)),
        always(FINAL, |_, s| {
            !matches!(s.breach, Some(Breach::IllegalMove | Breach::FinishedTwice))
        }),
        always(ONE_PLACE, |_, s| {
            calls().all(|at| s.ledger.open[at].is_none() || s.ledger.history[at].is_none())
        }),
        // That Postgres may lose what it had committed is the one thing that no promise can exclude.
        always(EXISTS, |_, s| {
            let told = |caller: &Caller| match *caller {
                Caller::Told(call) => s.ledger.find(usize::from(call)).is_some(),
                Caller::Idle | Caller::Unsure | Caller::Refused => true,
            };
            s.lost_writes || s.callers.iter().all(told)
        }),
        always(FENCE, |_, s| s.breach != Some(Breach::ClaimedPastFence)),
        always(CANCELLED, |_, s| {
            s.breach != Some(Breach::ClaimedAfterCancel)
        }),
        always(PRESENT, |_, s| s.breach != Some(Breach::ToldAbsent)),
    ];
    if config.rules.without.is_none() {
        all.extend(situations(config));
    }
    all
}

/// A promise over situations that never come up proves nothing: these must.
fn situations(config: &Config) -> Vec<Property<Protocol>> {
    let mut all = vec![
        sometimes("succeeded", |_, s| ended_as(s, State::Succeeded)),
        sometimes("failed", |_, s| ended_as(s, State::Failed)),
        sometimes("expired", |_, s| ended_as(s, State::Expired)),
        sometimes("tried again", |_, s| open(s, |row| row.spent > 0)),
        sometimes("a call is set aside or lost", |_, s| {
            open(s, |row| row.lost > 0 || row.suspects != 0)
        }),
    ];
    if config.unanswered {
        all.extend([
            sometimes("an accept was committed, unheard", |_, s| {
                s.callers[0] == Caller::Unsure && s.ledger.find(0).is_some()
            }),
            sometimes("an accept was lost", |_, s| {
                s.callers[0] == Caller::Unsure && s.ledger.find(0).is_none()
            }),
            sometimes("a claim was committed, unheard", |_, s| {
                workers(
                    s,
                    |step| matches!(step, Step::Silent(job) if holds(s, job.call, job.attempt)),
                )
            }),
            sometimes("a claim was lost", |_, s| {
                s.workers.iter().any(|worker| {
                    let lost = |call, attempt| worker.late.is_none() && !holds(s, call, attempt);
                    matches!(worker.step, Step::Silent(job) if lost(job.call, job.attempt))
                })
            }),
        ]);
    }
    if config.late_claims {
        all.push(sometimes(
            "a claim was committed after it was given up",
            |_, s| {
                s.workers
                    .iter()
                    .filter_map(|w| w.given_up)
                    .any(|job| holds(s, job.call, job.attempt))
            },
        ));
    }
    if config.effect.may_doubt() {
        all.extend([
            sometimes("in doubt", |_, s| {
                open(s, |row| row.state == State::InDoubt)
            }),
            sometimes("settled by late evidence", |_, s| {
                finished(s).any(|(_, row)| row.ended == Ended::Late)
            }),
            sometimes("settled as not applied", |_, s| {
                finished(s).any(|(_, row)| {
                    row.ended == Ended::Settled && row.known == EffectKnown::NotApplied
                })
            }),
        ]);
    }
    if config.unsettled {
        all.extend([
            sometimes(
                "an abandoned call has happened, and nobody heard of it",
                |_, s| finished(s).any(|(at, row)| row.is_abandoned() && s.effects(at) > 0),
            ),
            sometimes("a tool may still act for an abandoned call", |_, s| {
                let acts = |worker: &Worker, call| {
                    let runs = matches!(worker.step, Step::Claimed(job) if job.call == call);
                    runs || worker.orphan.is_some_and(|job| job.call == call)
                };
                finished(s).any(|(at, row)| {
                    row.is_abandoned()
                        && s.effects(at) == 0
                        && s.workers.iter().any(|worker| acts(worker, slot(at)))
                })
            }),
        ]);
    }
    match config.effect {
        Effect::Transaction => all.extend([
            sometimes("a COMMIT was done, unheard", |_, s| {
                workers(s, |step| matches!(step, Step::Unsure(job) if finished_by(s, job.call, job.attempt)))
            }),
            sometimes("a COMMIT was lost", |_, s| {
                workers(s, |step| matches!(step, Step::Unsure(job) if holds(s, job.call, job.attempt)))
            }),
            sometimes("a COMMIT comes when another attempt has its call", |_, s| {
                let late = s.workers.iter().filter_map(|worker| worker.orphan);
                late.into_iter().any(|job| {
                    let row = s.ledger.open[usize::from(job.call)];
                    row.is_some_and(|row| row.state == State::Running && !row.is_of(job.attempt))
                })
            }),
        ]),
        Effect::Once | Effect::Idempotent => all.extend([
            sometimes("settled as applied", |_, s| {
                finished(s)
                    .any(|(_, row)| row.ended == Ended::Settled && row.state == State::Succeeded)
            }),
            sometimes("an effect that nobody heard of", |_, s| {
                workers(s, |step| matches!(step, Step::Ended(job, Ran::Unknown) if s.effects(usize::from(job.call)) > 0))
            }),
        ]),
        Effect::Read => {}
    }
    if config.cancel {
        all.push(sometimes("cancelled", |_, s| ended_as(s, State::Cancelled)));
        all.push(sometimes("asked to cancel while it runs", |_, s| {
            open(s, |row| row.cancel_requested)
        }));
    }
    if config.failover {
        all.push(sometimes("writes were lost", |_, s| s.lost_writes));
    }
    if config.keyed {
        all.push(sometimes(
            "a second caller gets the first one's call",
            |_, s| s.callers[..2] == [Caller::Told(1), Caller::Told(1)],
        ));
    }
    all
}

type Condition = fn(&Protocol, &System) -> bool;

fn always(name: &'static str, condition: Condition) -> Property<Protocol> {
    Property::always(name, condition)
}

fn sometimes(name: &'static str, condition: Condition) -> Property<Protocol> {
    Property::sometimes(name, condition)
}

fn calls() -> std::ops::Range<usize> {
    0..CALLS
}

fn finished(s: &System) -> impl Iterator<Item = (usize, &Row)> {
    let rows = s.ledger.history.iter().enumerate();
    rows.filter_map(|(at, row)| Some((at, row.as_ref()?)))
}

/// Whatever ended so and is said to have had no effect has none, in this state; as this holds in all states, for ever.
fn no_effect(s: &System, ended: fn(Ended) -> bool) -> bool {
    finished(s).all(|(at, row)| {
        row.known != EffectKnown::NotApplied || !ended(row.ended) || s.effects(at) == 0
    })
}

fn open(s: &System, is: impl Fn(&Row) -> bool) -> bool {
    s.ledger.open.iter().flatten().any(is)
}

fn workers(s: &System, is: impl Fn(Step) -> bool) -> bool {
    s.workers.iter().any(|worker| is(worker.step))
}

fn ended_as(s: &System, state: State) -> bool {
    finished(s).any(|(_, row)| row.state == state)
}

fn holds(s: &System, call: u8, attempt: u8) -> bool {
    s.ledger.open[usize::from(call)].is_some_and(|row| row.is_of(attempt))
}

fn finished_by(s: &System, call: u8, attempt: u8) -> bool {
    s.ledger.history[usize::from(call)].is_some_and(|row| row.is_of(attempt))
}

/// The moves that calls of a configuration make. Not looked at: a cached answer and an open breaker, which end a queued
/// call, and a deadline that passes while an attempt runs.
pub(crate) fn moves(config: &Config) -> BTreeSet<(State, State)> {
    use State::{Cancelled, Expired, Failed, InDoubt, Queued, Running, Succeeded};
    let mut moves = vec![
        (Queued, Running),
        (Queued, Expired),
        (Running, Queued),
        (Running, Succeeded),
        (Running, Failed),
    ];
    if config.effect.may_doubt() {
        moves.extend([(Running, InDoubt), (InDoubt, Succeeded), (InDoubt, Failed)]);
    }
    if config.effect == Effect::Idempotent {
        moves.push((Queued, InDoubt));
    }
    if config.cancel {
        moves.push((Queued, Cancelled));
        if config.effect != Effect::Once {
            moves.push((Running, Cancelled));
        }
    }
    moves.into_iter().collect()
}

/// Steps that the protocol itself rules out.
pub(crate) fn impossible(config: &Config) -> Vec<Action> {
    match config.effect {
        // Neither is ever in doubt: the one has no effect, that of the other commits with its outcome.
        Effect::Read | Effect::Transaction => {
            vec![Action::SettleApplied(0), Action::SettleNotApplied(0)]
        }
        Effect::Idempotent | Effect::Once => Vec::new(),
    }
}

/// Whether the call is decided: no caller waits any more, and nothing will run.
pub(crate) fn is_decided(protocol: &Protocol, s: &System) -> bool {
    let undecided = |row: &Row| matches!(row.state, State::Queued | State::Running);
    let waiting = |caller: &Caller| matches!(caller, Caller::Idle | Caller::Unsure);
    !open(s, undecided) && !s.callers[..protocol.config.callers].iter().any(waiting)
}

/// Whether the call is over, or in doubt because Postgres itself has forgotten what happened.
pub(crate) fn is_settled(protocol: &Protocol, s: &System) -> bool {
    is_decided(protocol, s) && !open(s, |row| !row.quarantined)
}

//! The facts about a call that may end it, and what follows from each, given what is known of the call.

#![deny(clippy::wildcard_enum_match_arm)]

use super::{
    handed::{self, LaterAnswer},
    lost::LostAttempt,
    record::{EndedAttempt, Ending, EndingKind, Guard, json},
    table::{Decision, Happened},
};
use crate::{
    call::{Awaiting, Effect, EffectKnown, State},
    ids::CallId,
    obstacle::Obstacle,
    outcome::{Outcome, OutcomeWord, ToolFailure, effect_after},
    retry::{self, Known, RetryDecision, Tries},
    state::Move,
    taken_back::{AttemptCost, TakenBack},
    wire::{code::Code, error::ErrorBody, message::Message},
};

/// What happened to a call.
#[derive(Debug, Clone, Copy)]
pub enum Fact<'a> {
    /// It ran: the executor answered with this outcome.
    Ran(&'a Outcome, Tries<'a>),
    /// It ran, and the platform took the attempt back before anything was started.
    TakenBack {
        /// The reason.
        why: TakenBack,
        /// The same reason as a failure.
        failure: &'a ToolFailure,
        /// How many of its attempts were taken back before.
        before: u32,
    },
    /// It was claimed, but nothing was started: an earlier attempt may have had its effect, and the tool would not recognise
    /// its key any more.
    KeyForgotten(&'a ToolFailure),
    /// It ran, and its worker is gone.
    Lost(LostAttempt),
    /// It is in doubt, and the attempt that left it in doubt now proves that it had no effect.
    Disproved(&'a ToolFailure),
    /// It is queued, and no worker could run its tool with its arguments; or none tries its target at present.
    Refused(&'a ToolFailure),
    /// It is queued, and an equal call has an answer that counts for it. Decided by `toolfleet.answer_calls`, which adds the answer.
    Answered,
    /// It is queued, and its time is over.
    Expired {
        /// What the last worker that put it back lacked.
        obstacle: Option<&'a Obstacle>,
        /// Whether only its wait for the first attempt was too long.
        waited_too_long: bool,
    },
    /// It was handed to somebody who answers later, and this is that answer; the call waits for it, is in doubt for lack of it, or still
    /// runs.
    Submitted {
        /// Where the call stands.
        from: State,
        /// Whose answer it is: the program of its caller, or its tool.
        by: Awaiting,
        /// The answer.
        answer: &'a LaterAnswer,
    },
    /// It was handed to the program of its caller, which has not answered in its time.
    ClientSilent,
    /// Its tool said that it would answer later, and has not in its time.
    ToolSilent(Tries<'a>),
    /// It waited for a yes, and its time was over before that came.
    Undecided,
    /// Its tool asked for something, and its time was over before that came.
    NotTold,
    /// It waited for a yes, and got a no. Decided by `toolfleet.decide`.
    Denied,
    /// It is queued or waits for a yes, and its caller cancels it. Decided by `toolfleet.cancel`.
    Withdrawn {
        /// How many attempts were made.
        attempts: i32,
    },
    /// It was handed to somebody who answers later, and is cancelled before that. Decided by `toolfleet.cancel`.
    TakenFrom(Awaiting),
    /// It is in doubt, and a person or a probe found out whether the effect happened. Decided by `toolfleet.settle`.
    Settled {
        /// What was found: it happened, it did not, or nobody will ever know.
        found: Found,
    },
}

/// What became of a doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The effect happened.
    Applied,
    /// It did not, and will not.
    NotApplied,
    /// Nobody will ever know.
    Nothing,
}

impl Ending {
    /// The ending that follows from a fact. `attempt`: how the attempt ended, where the fact is about one.
    pub fn by(
        fact: &Fact<'_>,
        known: &Known,
        call_id: CallId,
        guard: Guard,
        attempt: Option<EndedAttempt>,
        actor: String,
    ) -> Self {
        let (kind, reason) = decide(fact, known);
        Self {
            call_id,
            guard,
            kind,
            attempt,
            actor,
            reason: reason.to_owned(),
        }
    }
}

/// Why a call is in doubt, or has expired, whose caller's program did not answer.
const CLIENT_SILENT: &str = "client_silent";
/// Why a call has expired, or is in doubt, about which nobody decided.
const UNDECIDED: &str = "undecided";
/// Why a call is in doubt, is tried again or has expired, whose tool did not answer although it said that it would.
const COMPLETION_SILENT: &str = "completion_silent";
/// Why a call has expired, or is in doubt, whose caller did not tell its tool what that asked for.
const NOT_TOLD: &str = "not_told";

/// The kind of ending that follows from a fact, and the reason for the history.
pub fn decide(fact: &Fact<'_>, known: &Known) -> (EndingKind, &'static str) {
    let language = known.language;
    match *fact {
        Fact::Ran(outcome, tries) => {
            let (kind, reason) = after_run(outcome, &tries, known);
            (unless_contradicted(kind, known), reason)
        }
        Fact::TakenBack { failure, .. } if known.cancelled => {
            let kind = never_started(failure, known);
            (unless_contradicted(kind, known), Code::Cancelled.as_str())
        }
        Fact::TakenBack { why, before, .. } => {
            let again = EndingKind::again(why.pause(before), why.cost());
            (again, why.as_str())
        }
        Fact::KeyForgotten(failure) => {
            let doubt = EndingKind::doubt(State::Running, failure, language);
            (doubt, failure.code.as_str())
        }
        Fact::Lost(lost) => lost.decide(known),
        Fact::Disproved(failure) => {
            let effect = EffectKnown::NotApplied;
            let failed = EndingKind::failed(State::InDoubt, failure, effect, language);
            (failed, failure.code.as_str())
        }
        Fact::Refused(failure) => {
            let doubtful = known.earlier_unknown && known.effect == Effect::Idempotent;
            let kind = if doubtful {
                EndingKind::doubt(State::Queued, failure, language)
            } else {
                EndingKind::refused(failure, known.untouched(), language)
            };
            let reason = if failure.code == Code::CircuitOpen {
                failure.code.as_str()
            } else {
                "refused_at_the_gate"
            };
            (kind, reason)
        }
        Fact::Answered => {
            let happened = Happened::Answered;
            let decision = Decision::by(State::Queued, happened, known.untouched(), None);
            (EndingKind::End(decision), "answered_from_the_cache")
        }
        Fact::Expired {
            obstacle,
            waited_too_long,
        } => {
            let what = why_expired(obstacle, waited_too_long);
            let failure = ToolFailure::new(Code::DeadlineExceeded, what);
            let kind = unrun(
                State::Queued,
                &failure,
                Happened::Expired,
                known.untouched(),
                known,
            );
            (kind, Code::DeadlineExceeded.as_str())
        }
        Fact::Undecided => {
            let what = Message::fixed(
                "nobody decided in time whether the call may run",
                "没有人在规定的时间内决定这次调用是否可以执行",
            );
            let failure = ToolFailure::new(Code::DeadlineExceeded, what);
            let (from, after) = (State::AwaitingClient, known.untouched());
            let kind = unrun(from, &failure, Happened::Expired, after, known);
            (kind, UNDECIDED)
        }
        Fact::Denied => {
            let what = Message::fixed(
                "who had to decide about this call said no",
                "有权决定的人拒绝了这次调用",
            );
            let failure = ToolFailure::new(Code::Denied, what);
            // In the words of the function, as when it is withdrawn.
            let (from, after) = (State::AwaitingClient, EffectKnown::None);
            let kind = unrun(from, &failure, Happened::Denied, after, known);
            (kind, Code::Denied.as_str())
        }
        Fact::Submitted { from, by, answer } => handed::answered(from, by, answer, known),
        Fact::ClientSilent => (handed::silent_client(known), CLIENT_SILENT),
        Fact::ToolSilent(tries) => (handed::silent_tool(&tries, known), COMPLETION_SILENT),
        Fact::NotTold => {
            let what = Message::fixed(
                "nobody told the tool in time what it asked for",
                "没有人在规定的时间内告诉工具它所询问的内容",
            );
            let failure = ToolFailure::new(Code::DeadlineExceeded, what);
            let (from, after) = (State::AwaitingClient, known.untouched());
            let kind = unrun(from, &failure, Happened::Expired, after, known);
            (kind, NOT_TOLD)
        }
        Fact::TakenFrom(whom) => (handed::taken_back(whom, known), Code::Cancelled.as_str()),
        Fact::Withdrawn { attempts } => {
            let failure = ToolFailure::new(Code::Cancelled, why_withdrawn(attempts, known));
            // In the words of the function: whatever the tool, nothing was changed.
            let kind = unrun(
                State::Queued,
                &failure,
                Happened::Cancelled,
                EffectKnown::None,
                known,
            );
            (kind, Code::Cancelled.as_str())
        }
        Fact::Settled { found } => {
            let (happened, effect, reason) = match found {
                Found::Applied => {
                    let happened = Happened::SettledApplied;
                    (happened, EffectKnown::Applied, "settled_applied")
                }
                Found::NotApplied => {
                    let happened = Happened::SettledNotApplied;
                    (happened, EffectKnown::NotApplied, "settled_not_applied")
                }
                Found::Nothing => {
                    let happened = Happened::Abandoned;
                    (happened, EffectKnown::Unknown, "settled_abandoned")
                }
            };
            // The function adds the words of the error, and the result that was found.
            let decision = Decision::by(State::InDoubt, happened, effect, None);
            (EndingKind::End(decision), reason)
        }
    }
}

/// What follows from an executor's answer.
fn after_run(outcome: &Outcome, tries: &Tries<'_>, known: &Known) -> (EndingKind, &'static str) {
    let decision = retry::decide(outcome, tries, known);
    let own = outcome
        .failure()
        .map_or("applied", |failure| failure.code.as_str());
    let failure = || {
        let what = Message::fixed("the tool failed", "工具失败了");
        let failed = || ToolFailure::new(Code::ToolCrashed, what);
        outcome.failure().cloned().unwrap_or_else(failed)
    };
    let (language, effect) = (known.language, effect_after(known.effect, outcome.word()));
    let failed =
        |failure: &ToolFailure| EndingKind::failed(State::Running, failure, effect, language);
    let cancelled = Code::Cancelled.as_str();
    match decision {
        RetryDecision::Succeed => (succeeded(outcome, effect, known), own),
        RetryDecision::Again(pause) => {
            let taken_back = tries.taken_back;
            let cost = taken_back.map_or(AttemptCost::Spent, TakenBack::cost);
            let again = EndingKind::again(pause, cost);
            (again, taken_back.map_or(own, TakenBack::as_str))
        }
        RetryDecision::Fail => (failed(&failure()), own),
        RetryDecision::Suppressed => (failed(&retry::suppressed(&failure())), own),
        RetryDecision::Exhausted => {
            let exhausted = retry::exhausted(tries.spent, &failure(), language);
            (failed(&exhausted), own)
        }
        RetryDecision::OutOfTime => {
            let late = retry::out_of_time(&failure(), language);
            (failed(&late), own)
        }
        RetryDecision::Doubt => (EndingKind::doubt(State::Running, &failure(), language), own),
        RetryDecision::Cancelled => {
            let kind = EndingKind::cancelled(&failure(), effect, language);
            (kind, cancelled)
        }
        RetryDecision::FailCancelled => {
            let failure = retry::cancelled(&failure(), language);
            (failed(&failure), cancelled)
        }
    }
}

fn succeeded(outcome: &Outcome, effect: EffectKnown, known: &Known) -> EndingKind {
    let (result, flaw) = match outcome {
        Outcome::Applied { result, flaw } => (Some(result.get().to_owned()), flaw.as_ref()),
        Outcome::NotStarted(_) | Outcome::DefiniteFailure(_) | Outcome::Unknown(_) => {
            (None, outcome.failure())
        }
    };
    let error = flaw.map(|flaw| json(&ErrorBody::failed(flaw, effect, known.language)));
    EndingKind::End(Decision {
        result,
        ..Decision::by(State::Running, Happened::Worked, effect, error)
    })
}

/// What happens to an open call after lost writes; `None`: it stays where it is, an `idempotent` one with an effect that is unknown
/// from then on. Decided by `toolfleet.quarantine`.
pub const fn after_lost_writes(
    state: State,
    awaiting: Option<Awaiting>,
    effect: Effect,
    cancelled: bool,
) -> Option<Move> {
    match (effect, state) {
        (Effect::Once, State::Queued | State::Running | State::AwaitingClient) => {
            Some(Move::Quarantine)
        }
        // It is handed out once: its answer may be among what was lost.
        (Effect::Idempotent, State::AwaitingClient)
            if matches!(awaiting, Some(Awaiting::Client)) =>
        {
            Some(Move::Quarantine)
        }
        (Effect::Idempotent, State::AwaitingClient)
            if matches!(awaiting, Some(Awaiting::Completion)) =>
        {
            Some(Move::Again)
        }
        (Effect::Idempotent, State::Queued | State::Running) if cancelled => Some(Move::Quarantine),
        (Effect::Idempotent, State::Running) => Some(Move::Again),
        (Effect::Read | Effect::Idempotent | Effect::Once | Effect::Transaction, _) => None,
    }
}

/// The call was cancelled while it ran, and this attempt had not started anything.
fn never_started(failure: &ToolFailure, known: &Known) -> EndingKind {
    let (untouched, language) = (known.untouched(), known.language);
    let word = OutcomeWord::NotStarted;
    match retry::after_cancel(known.effect, word, known.earlier_unknown) {
        RetryDecision::Doubt => EndingKind::doubt(State::Running, failure, language),
        RetryDecision::Cancelled => EndingKind::cancelled(failure, untouched, language),
        RetryDecision::FailCancelled
        | RetryDecision::Fail
        | RetryDecision::Suppressed
        | RetryDecision::Exhausted
        | RetryDecision::OutOfTime
        | RetryDecision::Again(_)
        | RetryDecision::Succeed => {
            let failure = retry::cancelled(failure, language);
            EndingKind::failed(State::Running, &failure, untouched, language)
        }
    }
}

/// A call that is queued or waits for a yes, and will not run: it ends, or is in doubt if an earlier attempt left its effect
/// unknown. `after`: what its error says of the effect.
fn unrun(
    from: State,
    failure: &ToolFailure,
    happened: Happened,
    after: EffectKnown,
    known: &Known,
) -> EndingKind {
    if known.is_doubtful() {
        return EndingKind::doubt(from, failure, known.language);
    }
    let error = json(&ErrorBody::failed(failure, after, known.language));
    let untouched = known.untouched();
    EndingKind::End(Decision::by(from, happened, untouched, Some(error)))
}

/// The same ending, unless it denies an effect that another attempt has reported: then the call is in doubt.
fn unless_contradicted(kind: EndingKind, known: &Known) -> EndingKind {
    let denies = matches!(&kind, EndingKind::End(end) if end.effect == EffectKnown::NotApplied);
    if !(denies && known.applied_late && known.effect.may_doubt()) {
        return kind;
    }
    let what = Message::fixed(
        "this attempt did not do it, and an earlier one has said too late that it did",
        "这次尝试没有生效，而更早的一次尝试事后报告说已经生效",
    );
    let failure = ToolFailure::new(Code::ToolError, what);
    EndingKind::doubt(State::Running, &failure, known.language)
}

fn why_expired(obstacle: Option<&Obstacle>, waited_too_long: bool) -> Message {
    if let Some(obstacle) = obstacle {
        obstacle.kept_it_from_running()
    } else if waited_too_long {
        Message::fixed(
            "the call waited longer for its first attempt than its tool allows",
            "这次调用等待第一次尝试的时间超过了工具允许的上限",
        )
    } else {
        Message::fixed(
            "the call's deadline passed before it could run",
            "这次调用尚未执行就已过了截止时间",
        )
    }
}

fn why_withdrawn(attempts: i32, known: &Known) -> Message {
    if known.is_doubtful() {
        Message::fixed(
            "the call was cancelled after an attempt whose effect is unknown",
            "这次调用在一次效果未知的尝试之后被取消",
        )
    } else if attempts == 0 {
        Message::fixed(
            "the call was cancelled before it ran",
            "这次调用在执行之前被取消",
        )
    } else {
        Message::fixed(
            "the call was cancelled before its next attempt",
            "这次调用在下一次尝试之前被取消",
        )
    }
}

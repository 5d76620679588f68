//! A call that was handed to somebody who answers later: the program of its caller, or its tool. What the answer makes of it, and
//! what silence does.

#![deny(clippy::wildcard_enum_match_arm)]

use super::{
    record::{EndingKind, json},
    table::{Decision, Happened},
};
use crate::{
    call::{Awaiting, EffectKnown, State},
    outcome::{Outcome, OutcomeWord, ToolFailure, effect_after},
    retry::{self, Known, RetryDecision, Tries},
    taken_back::AttemptCost,
    wire::{code::Code, error::ErrorBody, message::Message},
};

/// What is said of a call by whoever was handed it: the program of its caller, or a tool that answers later.
#[derive(Debug, Clone)]
pub enum LaterAnswer {
    /// It did what was asked, with this result, JSON text.
    Did(String),
    /// It failed.
    Failed {
        /// In its own words.
        failure: ToolFailure,
        /// Whether it says that nothing was done.
        not_done: bool,
    },
}

impl LaterAnswer {
    /// The same as the outcome of an attempt.
    pub const fn word(&self) -> OutcomeWord {
        match self {
            Self::Did(_) => OutcomeWord::Applied,
            Self::Failed { not_done: true, .. } => OutcomeWord::DefiniteFailure,
            // A failure is no proof: a command may have changed half of what it was to change.
            Self::Failed {
                not_done: false, ..
            } => OutcomeWord::Unknown,
        }
    }

    /// What went wrong.
    pub const fn failure(&self) -> Option<&ToolFailure> {
        match self {
            Self::Did(_) => None,
            Self::Failed { failure, .. } => Some(failure),
        }
    }
}

/// The call has its answer.
pub(super) fn answered(
    from: State,
    by: Awaiting,
    answer: &LaterAnswer,
    known: &Known,
) -> (EndingKind, &'static str) {
    let effect = effect_after(known.effect, answer.word());
    let (did, said_no) = match by {
        // It is the tool's own answer.
        Awaiting::Completion => (Happened::Worked, Happened::SaidNo),
        Awaiting::Client | Awaiting::Approval | Awaiting::Input => {
            (Happened::ClientDid, Happened::ClientSaidNo)
        }
    };
    let (happened, result, reason) = match answer {
        LaterAnswer::Did(result) => (did, Some(result.clone()), "applied"),
        LaterAnswer::Failed { failure, .. } => (said_no, None, failure.code.as_str()),
    };
    let error = answer.failure();
    let error = error.map(|failure| json(&ErrorBody::failed(failure, effect, known.language)));
    let decision = Decision {
        result,
        ..Decision::by(from, happened, effect, error)
    };
    (EndingKind::End(decision), reason)
}

/// The program of the caller has not answered in its time.
pub(super) fn silent_client(known: &Known) -> EndingKind {
    let what = Message::fixed(
        "the program of the caller, which runs this tool, did not answer in its time",
        "运行这个工具的是调用方的程序，它没有在规定的时间内回答",
    );
    unanswered(
        &ToolFailure::new(out_of_time(known), what),
        Happened::Expired,
        known,
    )
}

/// It is cancelled before whoever has it has answered.
pub(super) fn taken_back(whom: Awaiting, known: &Known) -> EndingKind {
    let failure = ToolFailure::new(Code::Cancelled, why_taken(whom, known));
    unanswered(&failure, Happened::Cancelled, known)
}

const fn out_of_time(known: &Known) -> Code {
    if known.effect.may_doubt() {
        Code::Timeout
    } else {
        Code::DeadlineExceeded
    }
}

/// A call whose tool said that it would answer later, and has not: as after an attempt that ran out of time, but that a read for which
/// no other attempt may follow expires.
pub(super) fn silent_tool(tries: &Tries<'_>, known: &Known) -> EndingKind {
    let what = Message::fixed(
        "the tool said that it would answer later, and did not in its time",
        "工具表示稍后才会回答，却没有在规定的时间内回答",
    );
    let of = |code| ToolFailure::new(code, what.clone());
    let unknown = Outcome::Unknown(of(Code::Timeout));
    match retry::decide(&unknown, tries, known) {
        RetryDecision::Again(pause) => EndingKind::again(pause, AttemptCost::Spent),
        RetryDecision::Succeed
        | RetryDecision::Fail
        | RetryDecision::Suppressed
        | RetryDecision::Exhausted
        | RetryDecision::OutOfTime
        | RetryDecision::Doubt
        | RetryDecision::Cancelled
        | RetryDecision::FailCancelled => {
            unanswered(&of(out_of_time(known)), Happened::Expired, known)
        }
    }
}

/// Nothing was heard of it: a write may have happened, a read changed nothing.
fn unanswered(failure: &ToolFailure, happened: Happened, known: &Known) -> EndingKind {
    let (from, language) = (State::AwaitingClient, known.language);
    if known.effect.may_doubt() {
        return EndingKind::doubt(from, failure, language);
    }
    let error = json(&ErrorBody::failed(failure, EffectKnown::None, language));
    let untouched = known.untouched();
    EndingKind::End(Decision::by(from, happened, untouched, Some(error)))
}

fn why_taken(whom: Awaiting, known: &Known) -> Message {
    let is_tool = matches!(whom, Awaiting::Completion);
    match (is_tool, known.effect.may_doubt()) {
        (false, true) => Message::fixed(
            "the call was cancelled after the caller's program had got it",
            "这次调用在交给调用方的程序之后被取消",
        ),
        (false, false) => Message::fixed(
            "the call was cancelled before the caller's program answered",
            "这次调用在调用方的程序交回结果之前被取消",
        ),
        (true, true) => Message::fixed(
            "the call was cancelled after the tool had got it and before it answered",
            "这次调用在工具收到之后、回答之前被取消",
        ),
        (true, false) => Message::fixed(
            "the call was cancelled before the tool answered",
            "这次调用在工具回答之前被取消",
        ),
    }
}

//! From an outcome to an ending: pure. What the ledger records, and what the caller reads.

use std::time::Duration;

use fleet::{
    call::{CallOutcome, Effect, EffectKnown, Language, Source, State},
    delay,
    ids::CallId,
    manifest::Sensitive,
    outcome::{Outcome, OutcomeWord, ToolFailure},
    retry::{self, RetryDecision, Situation},
    store::complete::{AttemptCost, Ended, EndedAttempt, Ending, EndingKind, Guard},
    taken_back::TakenBack,
    wire::{
        code::Code,
        envelope::{Envelope, EnvelopeState, Timing, is_error, no_coercions},
        error::ErrorBody,
        message::Message,
    },
};
use serde_json::value::RawValue;

use crate::execute::{Executed, Execution};

/// What is known of a call besides what its attempt came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Learned {
    /// Somebody has asked it to stop.
    pub(crate) cancelled: bool,
    /// An attempt before may have had its effect.
    pub(crate) earlier_unknown: bool,
    /// An attempt before has said, too late to decide, that it did it.
    pub(crate) applied_late: bool,
}

/// What the attempt came to, in the words of the ledger. `elapsed`: since the claim was sent.
pub(crate) fn conclude(
    executed: &Executed,
    elapsed: Duration,
    learned: Learned,
    actor: String,
) -> Ending {
    let (claimed, execution) = (&executed.claimed, &executed.execution);
    let language = claimed.language;
    let attempt = ended_attempt(claimed.effect, execution, language);
    let own_reason = execution
        .failure()
        .map_or("applied", |failure| failure.code.as_str());
    let (kind, reason) = match execution {
        Execution::Ran(outcome)
        | Execution::Committed(outcome, _)
        | Execution::Abandoned(outcome) => {
            let situation = situation(executed, elapsed, learned, outcome);
            let decision = retry::decide(&situation, outcome);
            let kind = after(decision, outcome, &situation, attempt.effect, language);
            let own_reason = situation
                .taken_back
                .filter(|_| matches!(decision, RetryDecision::Again(_)))
                .map_or(own_reason, TakenBack::as_str);
            (kind, reason(decision, own_reason))
        }
        Execution::TakenBack(_, failure) if learned.cancelled => {
            never_started(claimed.effect, learned.earlier_unknown, failure, language)
        }
        Execution::TakenBack(why, _) => {
            let pause = why.pause(claimed.unspent_attempts);
            let again = EndingKind::Again {
                pause_ms: millis_of(pause),
                cost: why.cost(),
            };
            (again, why.as_str())
        }
        Execution::KeyForgotten(failure) => (doubt(failure, language), own_reason),
    };
    let kind = match kind {
        EndingKind::End {
            effect: EffectKnown::NotApplied,
            ..
        } if learned.applied_late && claimed.effect.may_doubt() => doubt(&contradicted(), language),
        other => other,
    };
    Ending {
        call_id: claimed.call_id,
        guard: Guard::Attempt(executed.attempt_id),
        kind,
        attempt: Some(attempt),
        actor,
        reason: reason.to_owned(),
    }
}

/// Two attempts of a call say different things of its effect.
fn contradicted() -> ToolFailure {
    let what = Message::fixed(
        "this attempt did not do it, and an earlier one has said too late that it did",
        "这次尝试没有生效，而更早的一次尝试事后报告说已经生效",
    );
    ToolFailure::new(Code::ToolError, what)
}

/// How the attempt ended, apart from what becomes of its call.
pub(crate) fn ended_attempt(
    effect: Effect,
    execution: &Execution,
    language: Language,
) -> EndedAttempt {
    let transaction = effect == Effect::Transaction;
    EndedAttempt {
        // It is recorded by moving the row that a transaction's COMMIT needs: then it has not committed and never will.
        outcome: match execution.word() {
            OutcomeWord::Unknown if transaction => OutcomeWord::DefiniteFailure,
            word => word,
        },
        effect: effect_of(effect, execution.word()),
        error: execution
            .failure()
            .map(|failure| json(&failure.told(language))),
        over: execution.is_over() || transaction,
    }
}

fn millis_of(pause: Duration) -> i64 {
    i64::try_from(pause.as_millis()).unwrap_or(i64::MAX)
}

fn situation<'a>(
    executed: &'a Executed,
    elapsed: Duration,
    learned: Learned,
    outcome: &Outcome,
) -> Situation<'a> {
    let (claimed, manifest) = (&executed.claimed, &executed.tool.manifest);
    let taken_back = executed.why_taken_back();
    let attempts_spent = claimed
        .attempt
        .saturating_sub(claimed.unspent_attempts)
        .max(1);
    let millis = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    let since_first_start = millis(claimed.since_first_start_ms).saturating_add(elapsed);
    Situation {
        effect: claimed.effect,
        policy: &manifest.retry,
        attempts_spent,
        taken_back,
        pause: match (taken_back, outcome.failure()) {
            (Some(why), _) => why.pause(claimed.unspent_attempts),
            (None, Some(_failed)) => {
                delay::after_attempt(&manifest.retry, claimed.call_id, attempts_spent)
            }
            // Nothing is tried again where nothing failed.
            (None, None) => Duration::ZERO,
        },
        remaining: millis(claimed.remaining_ms).saturating_sub(elapsed),
        earlier_unknown: learned.earlier_unknown,
        key_remaining: manifest
            .idempotency
            .as_ref()
            .map(|key| key.valid_for.saturating_sub(since_first_start)),
        cancelled: learned.cancelled,
    }
}

/// What follows what the tool did.
fn after(
    decision: RetryDecision,
    outcome: &Outcome,
    situation: &Situation<'_>,
    effect: EffectKnown,
    language: Language,
) -> EndingKind {
    let failure = || {
        let what = Message::fixed("the tool failed", "工具失败了");
        let failed = || ToolFailure::new(Code::ToolCrashed, what);
        outcome.failure().cloned().unwrap_or_else(failed)
    };
    match decision {
        RetryDecision::Succeed => succeeded(outcome, effect, language),
        RetryDecision::Again(pause) => EndingKind::Again {
            pause_ms: millis_of(pause),
            cost: situation
                .taken_back
                .map_or(AttemptCost::Spent, TakenBack::cost),
        },
        RetryDecision::Fail => failed(&failure(), effect, language),
        RetryDecision::Exhausted => {
            let exhausted = retry::exhausted(situation.attempts_spent, &failure(), language);
            failed(&exhausted, effect, language)
        }
        RetryDecision::OutOfTime => {
            let late = retry::out_of_time(&failure(), language);
            failed(&late, effect, language)
        }
        RetryDecision::Doubt => doubt(&failure(), language),
        RetryDecision::Cancelled => cancelled(&failure(), effect, language),
        RetryDecision::FailCancelled => {
            let cancelled = retry::cancelled(&failure(), language);
            failed(&cancelled, effect, language)
        }
    }
}

/// Why the call moved: that it was taken back, where that decided it.
fn reason(decision: RetryDecision, own: &'static str) -> &'static str {
    match decision {
        RetryDecision::Cancelled | RetryDecision::FailCancelled => Code::Cancelled.as_str(),
        RetryDecision::Succeed
        | RetryDecision::Again(_)
        | RetryDecision::Fail
        | RetryDecision::Exhausted
        | RetryDecision::OutOfTime
        | RetryDecision::Doubt => own,
    }
}

/// How a call ends that was taken back when this attempt had not started anything, and why.
pub(crate) fn never_started(
    effect: Effect,
    earlier_unknown: bool,
    failure: &ToolFailure,
    language: Language,
) -> (EndingKind, &'static str) {
    let known = effect_of(effect, OutcomeWord::NotStarted);
    let kind = match retry::after_cancel(effect, OutcomeWord::NotStarted, earlier_unknown) {
        RetryDecision::Doubt => doubt(failure, language),
        RetryDecision::Cancelled => cancelled(failure, known, language),
        RetryDecision::FailCancelled
        | RetryDecision::Fail
        | RetryDecision::Exhausted
        | RetryDecision::OutOfTime
        | RetryDecision::Again(_)
        | RetryDecision::Succeed => failed(&retry::cancelled(failure, language), known, language),
    };
    (kind, Code::Cancelled.as_str())
}

fn doubt(failure: &ToolFailure, language: Language) -> EndingKind {
    EndingKind::Doubt {
        error: json(&ErrorBody::in_doubt(failure, language)),
    }
}

/// The call was taken back before it did anything; `last` is what its attempt came to.
fn cancelled(last: &ToolFailure, effect: EffectKnown, language: Language) -> EndingKind {
    let cancelled = retry::cancelled(last, language);
    EndingKind::End {
        state: State::Cancelled,
        outcome: CallOutcome::SystemError,
        source: Source::Error,
        effect,
        result: None,
        error: Some(json(&ErrorBody::failed(&cancelled, effect, language))),
    }
}

fn succeeded(outcome: &Outcome, effect: EffectKnown, language: Language) -> EndingKind {
    let (result, flaw) = match outcome {
        Outcome::Applied { result, flaw } => (Some(result.get().to_owned()), flaw.as_ref()),
        Outcome::NotStarted(_) | Outcome::DefiniteFailure(_) | Outcome::Unknown(_) => {
            (None, outcome.failure())
        }
    };
    EndingKind::End {
        state: State::Succeeded,
        outcome: CallOutcome::Success,
        source: Source::Live,
        effect,
        result,
        error: flaw.map(|flaw| json(&ErrorBody::failed(flaw, effect, language))),
    }
}

/// The call did not do what was asked, and will not be tried again.
pub(crate) fn failed(failure: &ToolFailure, effect: EffectKnown, language: Language) -> EndingKind {
    let business = failure.code == Code::ToolError;
    EndingKind::End {
        state: State::Failed,
        outcome: if business {
            CallOutcome::BusinessError
        } else {
            CallOutcome::SystemError
        },
        source: if business {
            Source::Live
        } else {
            Source::Error
        },
        effect,
        result: None,
        error: Some(json(&ErrorBody::failed(failure, effect, language))),
    }
}

/// How a call in doubt ends by what the attempt that it is in doubt about proves after all; `None` where it proves nothing.
///
/// That this attempt never started proves nothing about an earlier one that may have had its effect; the tool's own answer does.
pub(crate) fn settling(
    ending: &Ending,
    execution: &Execution,
    earlier_unknown: bool,
    language: Language,
) -> Option<Ending> {
    let failure = match execution {
        Execution::Ran(Outcome::Applied { .. }) | Execution::Committed(..) => {
            return Some(ending.clone());
        }
        Execution::Ran(Outcome::DefiniteFailure(failure)) => failure,
        Execution::Ran(Outcome::NotStarted(failure)) | Execution::TakenBack(_, failure)
            if !earlier_unknown =>
        {
            failure
        }
        Execution::Ran(Outcome::NotStarted(_) | Outcome::Unknown(_))
        | Execution::Abandoned(_)
        | Execution::TakenBack(..)
        | Execution::KeyForgotten(_) => return None,
    };
    Some(Ending {
        kind: failed(failure, EffectKnown::NotApplied, language),
        reason: failure.code.as_str().to_owned(),
        ..ending.clone()
    })
}

/// The same ending with what may be kept of the tool's answer; `None` where that is all of it.
pub(crate) fn keeping(ending: &Ending, sensitive: Option<&Sensitive>) -> Option<Ending> {
    let EndingKind::End {
        result: Some(result),
        ..
    } = &ending.kind
    else {
        return None;
    };
    let kept = sensitive?.kept(result)?;
    let mut keeping = ending.clone();
    if let EndingKind::End { result, .. } = &mut keeping.kind {
        *result = Some(kept);
    }
    Some(keeping)
}

/// The same ending without the tool's answer, which could not be kept.
pub(crate) fn without_result(ending: Ending, language: Language) -> Ending {
    let EndingKind::End {
        state,
        outcome,
        source,
        effect,
        ..
    } = ending.kind
    else {
        return ending;
    };
    let what = Message::fixed(
        "the tool's answer could not be stored",
        "工具返回的结果无法保存",
    );
    let flaw = ToolFailure::new(Code::OutputInvalid, what);
    let error = Some(json(&ErrorBody::failed(&flaw, effect, language)));
    Ending {
        kind: EndingKind::End {
            state,
            outcome,
            source,
            effect,
            result: None,
            error,
        },
        ..ending
    }
}

/// What is known of the world after an attempt ended like this.
pub(crate) const fn effect_of(effect: Effect, word: OutcomeWord) -> EffectKnown {
    match effect {
        Effect::Read => EffectKnown::None,
        Effect::Idempotent | Effect::Once | Effect::Transaction => match word {
            OutcomeWord::Applied => EffectKnown::Applied,
            OutcomeWord::NotStarted | OutcomeWord::DefiniteFailure => EffectKnown::NotApplied,
            // What says so of a transaction also sees to it.
            OutcomeWord::Unknown if matches!(effect, Effect::Transaction) => {
                EffectKnown::NotApplied
            }
            OutcomeWord::Unknown => EffectKnown::Unknown,
        },
    }
}

/// The envelope of a call that this ending decided: the same bytes that a later reader makes from the row.
pub(crate) fn envelope(call: CallId, ended: &Ended, kind: EndingKind) -> Option<Envelope> {
    let (outcome, source, effect, result, error) = match kind {
        EndingKind::End {
            outcome,
            source,
            effect,
            result,
            error,
            ..
        } => (outcome, source, effect, result, error),
        EndingKind::Doubt { error } => (
            CallOutcome::Unknown,
            Source::Error,
            EffectKnown::Unknown,
            None,
            Some(error),
        ),
        EndingKind::Again { .. } => return None,
    };
    let raw = |text: Option<String>| text.map(RawValue::from_string).transpose().ok();
    Some(Envelope {
        call_id: Some(call),
        tool: ended.tool.clone(),
        tool_version: Some(ended.tool_version),
        state: EnvelopeState::Of(ended.state),
        outcome,
        is_error: is_error(outcome),
        source,
        effect,
        result: raw(result)?,
        error: error
            .map(|error| serde_json::from_str(&error))
            .transpose()
            .ok()?,
        degraded: None,
        coercions: raw(ended.coercions.clone())?.unwrap_or_else(no_coercions),
        attempts: ended.attempts,
        replayed: false,
        timing: Some(Timing {
            queued_ms: ended.queued_ms,
            run_ms: ended.run_ms,
        }),
    })
}

/// As it is stored.
pub(crate) fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("errors have only string keys")
}

#[cfg(test)]
mod tests {
    use fleet::ids::AttemptId;

    use super::*;

    #[test]
    fn an_attempt_that_never_started_proves_nothing_about_an_earlier_one() {
        let failure = || ToolFailure::new(Code::Unavailable, Message::fixed("x", "x"));
        let ending = Ending {
            call_id: CallId::generate(),
            guard: Guard::Attempt(AttemptId::generate()),
            kind: EndingKind::Again {
                pause_ms: 0,
                cost: AttemptCost::Spent,
            },
            attempt: None,
            actor: "worker".to_owned(),
            reason: "unavailable".to_owned(),
        };
        let settles = |execution: Execution, earlier_unknown| {
            settling(&ending, &execution, earlier_unknown, Language::En).is_some()
        };
        for earlier_unknown in [false, true] {
            let proven = !earlier_unknown;
            assert_eq!(
                settles(
                    Execution::TakenBack(TakenBack::LeaseOver, failure()),
                    earlier_unknown
                ),
                proven
            );
            let not_started = Execution::Ran(Outcome::NotStarted(failure()));
            assert_eq!(settles(not_started, earlier_unknown), proven);
            let answered = Execution::Ran(Outcome::DefiniteFailure(failure()));
            assert!(settles(answered, earlier_unknown));
            let unknown = Execution::Ran(Outcome::Unknown(failure()));
            assert!(!settles(unknown, earlier_unknown));
        }
    }
}

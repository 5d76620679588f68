//! Conclude: turns what an attempt came to into a fact about its call. `fleet::ending` decides how the call ends by it.

use std::time::Duration;

use fleet::{
    delay,
    ending::{EndedAttempt, Ending, Fact, Guard, Known, Tries, decide},
    outcome::Outcome,
};

use crate::stage::{Executed, Execution};

/// The call's ending. `elapsed`: the time since the claim was sent.
pub(crate) fn conclude(
    executed: &Executed,
    elapsed: Duration,
    known: &Known,
    actor: String,
) -> Ending {
    let claimed = &executed.claimed;
    let fact = match &executed.execution {
        Execution::Ran(outcome)
        | Execution::Committed(outcome, _)
        | Execution::Abandoned(outcome) => Fact::Ran(outcome, tries(executed, elapsed, outcome)),
        Execution::TakenBack(why, failure) => Fact::TakenBack {
            why: *why,
            failure,
            before: claimed.unspent_attempts,
        },
        Execution::KeyForgotten(failure) => Fact::KeyForgotten(failure),
    };
    let (guard, attempt) = (Guard::Attempt(executed.attempt_id), ended_attempt(executed));
    Ending::by(&fact, known, claimed.call_id, guard, Some(attempt), actor)
}

/// How the attempt ended, without what becomes of its call.
pub(crate) fn ended_attempt(executed: &Executed) -> EndedAttempt {
    let (claimed, execution) = (&executed.claimed, &executed.execution);
    let (word, failure) = (execution.word(), execution.failure());
    let over = execution.is_over();
    EndedAttempt::of(claimed.effect, word, failure, over, claimed.language)
}

fn tries<'a>(executed: &'a Executed, elapsed: Duration, outcome: &Outcome) -> Tries<'a> {
    let (claimed, manifest) = (&executed.claimed, &executed.tool.manifest);
    let taken_back = executed.why_taken_back();
    let spent = claimed
        .attempt
        .saturating_sub(claimed.unspent_attempts)
        .max(1);
    let millis = |ms: i64| Duration::from_millis(u64::try_from(ms).unwrap_or(0));
    let since_first_start = millis(claimed.since_first_start_ms).saturating_add(elapsed);
    Tries {
        policy: &manifest.retry,
        spent,
        taken_back,
        pause: match (taken_back, outcome.failure()) {
            (Some(why), _) => why.pause(claimed.unspent_attempts),
            (None, Some(_failed)) => delay::after_attempt(&manifest.retry, claimed.call_id, spent),
            // Nothing failed, so nothing is tried again.
            (None, None) => Duration::ZERO,
        },
        remaining: millis(claimed.remaining_ms).saturating_sub(elapsed),
        key_remaining: manifest
            .idempotency
            .as_ref()
            .map(|key| key.valid_for.saturating_sub(since_first_start)),
    }
}

/// How a call in doubt ends by a late proof of the attempt that left it in doubt; `None` where the attempt proves nothing.
///
/// An attempt that never started proves nothing about an earlier attempt, which may have had its effect. An answer of the tool
/// does prove something.
pub(crate) fn settling(ending: &Ending, execution: &Execution, known: &Known) -> Option<Ending> {
    let failure = match execution {
        Execution::Ran(Outcome::Applied { .. }) | Execution::Committed(..) => {
            return Some(ending.clone());
        }
        Execution::Ran(Outcome::DefiniteFailure(failure)) => failure,
        Execution::Ran(Outcome::NotStarted(failure)) | Execution::TakenBack(_, failure)
            if !known.earlier_unknown =>
        {
            failure
        }
        Execution::Ran(Outcome::NotStarted(_) | Outcome::Unknown(_))
        | Execution::Abandoned(_)
        | Execution::TakenBack(..)
        | Execution::KeyForgotten(_) => return None,
    };
    let (kind, reason) = decide(&Fact::Disproved(failure), known);
    Some(Ending {
        kind,
        reason: reason.to_owned(),
        ..ending.clone()
    })
}

#[cfg(test)]
mod tests {
    use fleet::{
        call::{Effect, Language},
        ending::EndingKind,
        ids::{AttemptId, CallId},
        outcome::ToolFailure,
        taken_back::{AttemptCost, TakenBack},
        wire::{code::Code, message::Message},
    };

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
            let known = Known {
                effect: Effect::Idempotent,
                language: Language::En,
                cancelled: false,
                earlier_unknown,
                applied_late: false,
            };
            settling(&ending, &execution, &known).is_some()
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

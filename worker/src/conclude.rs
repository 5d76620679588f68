//! Conclude: turns what an attempt came to into a fact about its call. `fleet::ending` decides how the call ends by it.

use std::time::Duration;

use fleet::{
    delay,
    ending::{Ending, Fact, Guard, Known, Tries, decide},
    outcome::Outcome,
};

use crate::stage::{Executed, Execution};

/// The call's ending, if it is recorded now. `is_suppressed`: the retry budget of its tool has no token left.
pub(crate) fn conclude(
    executed: &Executed,
    known: &Known,
    is_suppressed: bool,
    actor: String,
) -> Ending {
    let attempt = &executed.attempt;
    let fact = match &executed.execution {
        Execution::Ran(outcome)
        | Execution::Committed(outcome, _)
        | Execution::Abandoned(outcome) => Fact::Ran(
            outcome,
            Tries {
                is_suppressed,
                ..tries(executed, outcome)
            },
        ),
        Execution::TakenBack(why, failure) => Fact::TakenBack {
            why: *why,
            failure,
            before: attempt.claimed.unspent_attempts,
        },
        Execution::KeyForgotten(failure) => Fact::KeyForgotten(failure),
    };
    let (call, guard) = (attempt.claimed.call_id, Guard::Attempt(attempt.id));
    Ending::by(&fact, known, call, guard, Some(executed.ended()), actor)
}

fn tries<'a>(executed: &'a Executed, outcome: &Outcome) -> Tries<'a> {
    let attempt = &executed.attempt;
    let (claimed, policy) = (&attempt.claimed, &attempt.tool.manifest.retry);
    let taken_back = executed.why_taken_back();
    let spent = attempt.spent();
    Tries {
        policy,
        spent,
        taken_back,
        pause: match (taken_back, outcome.failure()) {
            (Some(why), _) => why.pause(claimed.unspent_attempts),
            (None, Some(_failed)) => delay::after_attempt(policy, claimed.call_id, spent),
            // Nothing failed, so nothing is tried again.
            (None, None) => Duration::ZERO,
        },
        remaining: attempt.remaining(),
        key_remaining: attempt.key_remaining(),
        is_suppressed: false,
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

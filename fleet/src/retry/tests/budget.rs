//! What follows an attempt where the tool's retry budget has no token left.

use serde_json::json;

use super::*;

#[test]
fn without_a_token_a_call_fails_with_its_own_error_and_a_doubtful_write_waits_longest() {
    use OutcomeWord::{DefiniteFailure, NotStarted, Unknown};
    let longest = RetryPolicy::default().cap;
    let suppressed = |effect, word, earlier_unknown| {
        decide_with(effect, word, Code::Unavailable, |tries, known| {
            tries.is_suppressed = true;
            known.earlier_unknown = earlier_unknown;
        })
    };
    for effect in [Effect::Read, Effect::Transaction] {
        for word in [NotStarted, DefiniteFailure, Unknown] {
            let decision = suppressed(effect, word, true);
            assert_eq!(decision, RetryDecision::Suppressed, "{effect} {word}");
        }
    }
    for effect in [Effect::Idempotent, Effect::Once] {
        let decision = suppressed(effect, NotStarted, false);
        assert_eq!(decision, RetryDecision::Suppressed, "{effect}");
    }
    // Its answer is about the key, so about earlier attempts too.
    let answered = suppressed(Effect::Idempotent, DefiniteFailure, true);
    assert_eq!(answered, RetryDecision::Suppressed);
    for (word, earlier) in [(Unknown, false), (NotStarted, true)] {
        let decision = suppressed(Effect::Idempotent, word, earlier);
        assert_eq!(decision, RetryDecision::Again(longest), "{word}");
    }
    assert_eq!(
        suppressed(Effect::Once, Unknown, false),
        RetryDecision::Doubt
    );
}

#[test]
fn without_a_token_a_doubtful_write_waits_no_longer_than_its_time_and_its_key_allow() {
    let pause = Duration::from_secs(1);
    let decision = |change: fn(&mut Tries<'_>)| {
        decide_with(
            Effect::Idempotent,
            OutcomeWord::Unknown,
            Code::Timeout,
            |tries, _| {
                tries.is_suppressed = true;
                change(tries);
            },
        )
    };
    let short = decision(|tries| tries.remaining = Duration::from_secs(20));
    assert_eq!(short, RetryDecision::Again(pause));
    let forgotten = decision(|tries| tries.key_remaining = Some(Duration::from_secs(20)));
    assert_eq!(forgotten, RetryDecision::Again(pause));
    let over = decision(|tries| tries.remaining = tries.pause);
    assert_eq!(over, RetryDecision::Doubt);
}

#[test]
fn a_failure_without_a_further_attempt_says_so_and_keeps_its_details() {
    let own = ToolFailure::new(Code::Unavailable, Message::verbatim("x"));
    assert_eq!(
        suppressed(&own).details,
        Some(json!({"retry": "suppressed"}))
    );
    let detailed = own.with_details(json!({"status": 503}));
    let marked = suppressed(&detailed);
    assert_eq!(
        (marked.code, marked.details),
        (
            Code::Unavailable,
            Some(json!({"status": 503, "retry": "suppressed"}))
        )
    );
}

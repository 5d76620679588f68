//! What only an operator can mend.

use super::*;

#[test]
fn what_only_an_operator_can_mend_is_not_tried_again() {
    let let_nobody_in = || {
        let failure = ToolFailure::new(Code::Unavailable, Message::verbatim("x"));
        Outcome::NotStarted(failure.for_operators())
    };
    let policy = RetryPolicy::default();
    for effect in [
        Effect::Read,
        Effect::Idempotent,
        Effect::Once,
        Effect::Transaction,
    ] {
        let decided = decide(&let_nobody_in(), &first(&policy), &known(effect));
        assert_eq!(decided, RetryDecision::Fail, "{effect}");
    }
    // What an earlier attempt may have done stays a doubt.
    let doubtful = Known {
        earlier_unknown: true,
        ..known(Effect::Idempotent)
    };
    let decided = decide(&let_nobody_in(), &first(&policy), &doubtful);
    assert_eq!(decided, RetryDecision::Doubt);
}

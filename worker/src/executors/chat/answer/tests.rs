use fleet::wire::{code::Code, message::Message};
use serde_json::json;

use super::*;

fn route(name: &str) -> ChatRoute {
    serde_json::from_value(json!({"name": name, "url": "https://x/", "model": "m"})).unwrap()
}

fn failure(code: Code, pause: Option<u64>) -> ToolFailure {
    let mut failure = ToolFailure::new(code, Message::fixed("x", "x"));
    failure.retry_after_ms = pause;
    failure
}

/// What an attempt comes to whose routes failed like this, in their order.
fn came(failed: impl IntoIterator<Item = (RouteVerdict, Outcome)>) -> Outcome {
    let mut tried = TriedRoutes::default();
    for (index, (verdict, outcome)) in failed.into_iter().enumerate() {
        tried.fail(&route(&index.to_string()), verdict, outcome);
    }
    tried.all_failed().unwrap()
}

#[test]
fn the_first_error_is_told_with_the_shortest_pause() {
    use RouteVerdict::{Larger, Misconfigured, Next};
    let definite = |code, pause| Outcome::DefiniteFailure(failure(code, pause));
    let never = |code| Outcome::NotStarted(failure(code, None));
    for (failed, word, code, pause) in [
        (
            vec![
                (Next, definite(Code::Unavailable, Some(9000))),
                (Next, definite(Code::Timeout, Some(2000))),
                (Next, definite(Code::Timeout, None)),
            ],
            OutcomeWord::DefiniteFailure,
            Code::Unavailable,
            Some(2000),
        ),
        (
            vec![
                (Misconfigured(401), definite(Code::ToolError, None)),
                (Next, definite(Code::Unavailable, None)),
            ],
            OutcomeWord::DefiniteFailure,
            Code::ToolError,
            None,
        ),
        // Nothing was sent, and that is said only where it is true of all.
        (
            vec![
                (Next, never(Code::Unavailable)),
                (Next, never(Code::EgressDenied)),
            ],
            OutcomeWord::NotStarted,
            Code::Unavailable,
            None,
        ),
        (
            vec![
                (Next, never(Code::Unavailable)),
                (Next, definite(Code::Timeout, None)),
            ],
            OutcomeWord::DefiniteFailure,
            Code::Unavailable,
            None,
        ),
        // A model that is too small has not failed.
        (
            vec![
                (Larger, definite(Code::ToolError, None)),
                (Next, definite(Code::Unavailable, None)),
            ],
            OutcomeWord::DefiniteFailure,
            Code::Unavailable,
            None,
        ),
        (
            vec![
                (Larger, definite(Code::ToolError, None)),
                (Larger, definite(Code::ToolError, None)),
            ],
            OutcomeWord::DefiniteFailure,
            Code::ToolError,
            None,
        ),
    ] {
        let all = failed.len();
        let outcome = came(failed);
        let failure = outcome.failure().unwrap();
        assert_eq!(
            (outcome.word(), failure.code, failure.retry_after_ms),
            (word, code, pause)
        );
        let tried = failure.details.as_ref().unwrap()["tried"].as_array();
        assert_eq!(tried.unwrap().len(), all);
    }
    assert!(TriedRoutes::default().all_failed().is_none());
}

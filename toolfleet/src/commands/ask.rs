//! The error of a question to a dispatcher that got no answer.

use anyhow::anyhow;
use fleet::bus::BusError;
use fleet_client::AskError;

/// Why there is no answer; with the advice where it is unknown whether the request was accepted.
pub(super) fn unanswered(problem: AskError, advice: &str) -> anyhow::Error {
    match problem {
        AskError::Denied { what } => {
            let doing = "send this request";
            BusError::Denied { doing, what }.into()
        }
        AskError::NoAnswer { .. } | AskError::Closed => anyhow!("{problem}; {advice}"),
        AskError::NoResponders { .. }
        | AskError::TooMany { .. }
        | AskError::Unsent(_)
        | AskError::Unreadable(_) => problem.into(),
    }
}

/// What to do when it is unknown whether a call was accepted.
pub(super) const fn advice(has_key: bool) -> &'static str {
    if has_key {
        "the call may have been accepted: send it again with the same --key, which cannot make a second call"
    } else {
        "the call may have been accepted: look at `toolfleet calls list` before sending it again; with --key that would be safe"
    }
}

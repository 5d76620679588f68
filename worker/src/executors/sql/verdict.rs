//! What became of an attempt on a database: a pure table.
//!
//! | what happened | before the statement | in the statement | at `COMMIT` |
//! |---|---|---|---|
//! | no connection | not started | – | – |
//! | the server answered with an error | not started if it passes, else definite | definite | definite |
//! | with one that ends the session, or is about itself | the same | the same | **unknown** |
//! | with 40003, it does not know either | the same | **unknown** | **unknown** |
//! | told to stop before the next step | not started | definite | – |
//! | the answer is too large, nothing committed | – | definite | – |
//! | no answer | not started | **unknown** | **unknown** |
//!
//! A transaction of which the server says that it failed is gone. One that was never told to commit is gone as well, but
//! what its functions did outside the database nobody knows: without an answer a write stays unknown.

use fleet::{
    outcome::{Outcome, ToolFailure},
    wire::code::Code,
};
use serde_json::json;

use super::{
    database::NoConnection,
    session::{Ended, Phase, Refusal},
};
use crate::executors::StopReason;

/// Why an attempt was cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Its time was over.
    Time,
    /// It was told to stop.
    Stop(StopReason),
}

impl Cut {
    const fn code(self) -> Code {
        match self {
            Self::Time => Code::Timeout,
            Self::Stop(reason) => reason.code(),
        }
    }

    const fn what(self) -> &'static str {
        match self {
            Self::Time => "the attempt's time was over",
            Self::Stop(StopReason::Cancelled) => "the attempt was cancelled",
            Self::Stop(StopReason::Drained) => "the attempt was stopped",
        }
    }
}

/// What an attempt came to that did not commit.
pub(super) fn failed(phase: Phase, ended: Ended, cut: Option<Cut>) -> Outcome {
    match ended {
        Ended::NoConnection(NoConnection::Unreachable(why)) => Outcome::NotStarted(match cut {
            Some(cut) => ToolFailure::new(
                cut.code(),
                format!("{} before there was a connection", cut.what()),
            ),
            None => ToolFailure::new(
                Code::Unavailable,
                format!("the database cannot be reached: {why}"),
            ),
        }),
        Ended::NoConnection(NoConnection::Role(why)) => {
            Outcome::NotStarted(ToolFailure::new(Code::Unavailable, why))
        }
        Ended::Refused(refusal) if leaves_open(phase, &refusal) => {
            let details = json!({"sqlstate": refusal.sqlstate});
            let (code, message) = (cut.map_or(Code::Unavailable, Cut::code), &refusal.message);
            let failure = ToolFailure::new(
                code,
                format!("the database cannot say whether it has committed: {message}"),
            );
            Outcome::Unknown(failure.with_details(details))
        }
        Ended::Refused(refusal) => {
            let failure = refused(&refusal, cut);
            match (phase, failure.code) {
                // Nothing of the tool was sent, and another time it may be.
                (Phase::Before, Code::Unavailable | Code::Timeout | Code::Cancelled) => {
                    Outcome::NotStarted(failure)
                }
                _ => Outcome::DefiniteFailure(failure),
            }
        }
        Ended::Flaw(why) => Outcome::DefiniteFailure(ToolFailure::new(
            Code::ToolCrashed,
            format!("the tool is at fault: {why}"),
        )),
        Ended::Argument(why) => Outcome::DefiniteFailure(ToolFailure::new(Code::ToolError, why)),
        Ended::TooLarge(why) => Outcome::DefiniteFailure(ToolFailure::new(
            Code::OutputTooLarge,
            format!("the answer is too large: {why}; nothing was committed"),
        )),
        Ended::Unusable(why) => Outcome::DefiniteFailure(ToolFailure::new(
            Code::OutputInvalid,
            format!("{why}; nothing was committed"),
        )),
        Ended::Taken => Outcome::DefiniteFailure(ToolFailure::new(
            Code::Unavailable,
            "the call was taken from this attempt before it could commit; nothing was committed",
        )),
        Ended::Cut => {
            let cut = cut.unwrap_or(Cut::Time);
            let failure =
                ToolFailure::new(cut.code(), format!("{}; nothing was committed", cut.what()));
            match phase {
                Phase::Before => Outcome::NotStarted(failure),
                Phase::Statement | Phase::Commit => Outcome::DefiniteFailure(failure),
            }
        }
        Ended::Lost => silent(phase, cut),
    }
}

/// Whether the transaction may have been committed although the server answered with an error.
///
/// Before `COMMIT` is sent it cannot. Then an `ERROR` of the transaction comes before its commit record; what ends the session
/// may come after it, while replicas are waited for, and a pooler says so of a server that it has lost.
fn leaves_open(phase: Phase, refusal: &Refusal) -> bool {
    let state = refusal.sqlstate.as_str();
    let about_the_server = || {
        let classes = ["08", "57P", "58", "XX"];
        classes.iter().any(|class| state.starts_with(class))
    };
    match phase {
        Phase::Before => false,
        Phase::Statement => state == COMPLETION_UNKNOWN,
        Phase::Commit => refusal.is_fatal || about_the_server() || state == COMPLETION_UNKNOWN,
    }
}

/// What an attempt came to whose server said nothing more.
pub(super) fn silent(phase: Phase, cut: Option<Cut>) -> Outcome {
    let (code, why) = match cut {
        Some(cut) => (cut.code(), cut.what()),
        None => (Code::Unavailable, "the connection to the database broke"),
    };
    let failure = |what: &str| ToolFailure::new(code, format!("{why} {what}"));
    match phase {
        Phase::Before => Outcome::NotStarted(failure("before the statement was sent")),
        Phase::Statement => Outcome::Unknown(failure("before the database answered")),
        Phase::Commit => Outcome::Unknown(failure("while the transaction was being committed")),
    }
}

/// SQLSTATE `statement_completion_unknown`.
const COMPLETION_UNKNOWN: &str = "40003";

/// What a server's error says, by its class.
fn refused(refusal: &Refusal, cut: Option<Cut>) -> ToolFailure {
    let state = refusal.sqlstate.as_str();
    let class = state.get(..2).unwrap_or_default();
    let message = &refusal.message;
    let failure = match (class, state, cut) {
        ("22" | "23", ..) | (_, "P0001", _) => ToolFailure::new(Code::ToolError, message),
        (_, "57014", Some(cut)) => ToolFailure::new(
            cut.code(),
            format!("{}, and the database ended the statement", cut.what()),
        ),
        // Its own timer, a moment before ours; or somebody at the database.
        (_, "57014", None) => ToolFailure::new(
            Code::Timeout,
            format!("the database ended the statement: {message}"),
        ),
        (_, "25006", _) => ToolFailure::new(
            Code::ToolCrashed,
            format!("the tool is at fault: its effect is read and it writes: {message}"),
        ),
        // Another transaction was in the way, the server has no room, or it is being shut down.
        ("40" | "53" | "57" | "08", ..) | (_, "55P03" | "25P03" | "55006", _) => ToolFailure::new(
            Code::Unavailable,
            format!("the database is not available: {message}"),
        ),
        _ => ToolFailure::new(
            Code::ToolCrashed,
            format!("the tool is at fault: the database refuses its statement: {message}"),
        ),
    };
    failure.with_details(match &refusal.constraint {
        Some(constraint) => json!({"sqlstate": state, "constraint": constraint}),
        None => json!({"sqlstate": state}),
    })
}

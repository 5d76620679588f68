//! **What does an attempt say about its target?** Only what the target itself did, or did not do, counts.

use crate::{
    outcome::{Outcome, ToolFailure},
    wire::code::Code,
};

/// What an attempt says about its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetHealth {
    /// It answered, with whatever.
    Answered,
    /// It did not answer in time, or could not be reached, or said that it is not available.
    Failed,
}

impl TargetHealth {
    /// What an outcome says; `None`: nothing.
    ///
    /// A business error is an answer, and so is an HTTP 429, which is about how much was asked. Refused arguments, a target where
    /// this worker may not go, a program that died and an attempt that the platform ended say nothing.
    pub fn of(outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Applied { .. } => Some(Self::Answered),
            Outcome::NotStarted(failure)
            | Outcome::DefiniteFailure(failure)
            | Outcome::Unknown(failure) => of_failure(failure),
        }
    }
}

fn of_failure(failure: &ToolFailure) -> Option<TargetHealth> {
    if failure.why_taken_back().is_some() {
        return None;
    }
    if failure.wanted().is_some() {
        return Some(TargetHealth::Answered);
    }
    match failure.code {
        Code::Timeout => Some(TargetHealth::Failed),
        Code::Unavailable if has_answered(failure) => Some(TargetHealth::Answered),
        Code::Unavailable => Some(TargetHealth::Failed),
        Code::ToolError | Code::OutputInvalid | Code::OutputTooLarge => {
            Some(TargetHealth::Answered)
        }
        _about_the_call => None,
    }
}

/// Whether there is an answer although it did not do it: an HTTP status that is about the request, or an unexpected number of
/// rows.
fn has_answered(failure: &ToolFailure) -> bool {
    let detail = |name| failure.details.as_ref().and_then(|all| all.get(name));
    let status = detail("status").and_then(serde_json::Value::as_u64);
    status.is_some_and(|status| status < 500) || detail(ToolFailure::EXPECTED_ROWS).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::{json, value::RawValue};

    use super::*;
    use crate::{taken_back::TakenBack, wire::message::Message};

    fn failure(code: Code) -> ToolFailure {
        ToolFailure::new(code, Message::fixed("x", "x"))
    }

    #[test]
    fn arguments_and_business_errors_open_nothing() {
        use TargetHealth::{Answered, Failed};
        let status = |code, status: u16| failure(code).with_details(json!({"status": status}));
        for (failure, says) in [
            (failure(Code::Timeout), Some(Failed)),
            (failure(Code::Unavailable), Some(Failed)),
            (status(Code::Unavailable, 503), Some(Failed)),
            (status(Code::Unavailable, 500), Some(Failed)),
            (status(Code::Unavailable, 429), Some(Answered)),
            (status(Code::Unavailable, 409), Some(Answered)),
            (
                failure(Code::Unavailable).with_details(json!({ToolFailure::EXPECTED_ROWS: "1"})),
                Some(Answered),
            ),
            (status(Code::ToolError, 404), Some(Answered)),
            (failure(Code::OutputInvalid), Some(Answered)),
            (failure(Code::OutputTooLarge), Some(Answered)),
            (failure(Code::ToolCrashed), None),
            (failure(Code::InvalidArguments), None),
            (failure(Code::EgressDenied), None),
            (failure(Code::Cancelled), None),
            (
                failure(Code::Unavailable).taken_back(TakenBack::WorkerLeft),
                None,
            ),
        ] {
            for outcome in [
                Outcome::NotStarted(failure.clone()),
                Outcome::DefiniteFailure(failure.clone()),
                Outcome::Unknown(failure.clone()),
            ] {
                assert_eq!(TargetHealth::of(&outcome), says, "{outcome:?}");
            }
        }
        let applied = Outcome::Applied {
            result: RawValue::from_string("1".to_owned()).unwrap(),
            flaw: Some(failure(Code::OutputInvalid)),
        };
        assert_eq!(TargetHealth::of(&applied), Some(Answered));
    }
}

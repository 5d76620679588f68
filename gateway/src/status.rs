//! **Which status?** One table from what a call is to the status over HTTP.
//!
//! Decided is 200, whatever it came to: proxies and libraries send a 5xx again by themselves, and a second try of what is decided
//! is at best the same answer. Not decided is 202. What was refused has the number that its code has over NATS too
//! ([`Code::status`]). Who wants `curl -f` to fail on a failed call asks with `Prefer: status=outcome` for the other column, whose
//! numbers no library repeats by itself.

use axum::http::StatusCode;
use fleet::{
    call::{CallOutcome, State},
    wire::code::Code,
};

/// What an answer says of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The call is over, or in doubt.
    Decided(State, CallOutcome),
    /// The call goes on.
    Open,
    /// There is no call, or what was asked of it was not done.
    Refused(Code),
    /// The request was about no single call, and was done.
    Done,
}

/// Which column of the table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Column {
    /// Decided is 200.
    #[default]
    Plain,
    /// `Prefer: status=outcome`.
    ByOutcome,
}

impl Verdict {
    /// The status.
    pub(crate) fn status(self, column: Column) -> StatusCode {
        match (self, column) {
            (Self::Done | Self::Decided(..), Column::Plain) | (Self::Done, Column::ByOutcome) => {
                StatusCode::OK
            }
            (Self::Open, _) => StatusCode::ACCEPTED,
            (Self::Decided(state, outcome), Column::ByOutcome) => by_outcome(state, outcome),
            (Self::Refused(code), _) => of_code(code),
        }
    }
}

/// The status of a refusal.
pub(crate) fn of_code(code: Code) -> StatusCode {
    StatusCode::from_u16(code.status()).expect("a code has a status")
}

const fn by_outcome(state: State, outcome: CallOutcome) -> StatusCode {
    match (state, outcome) {
        (State::InDoubt, _) | (_, CallOutcome::Unknown) => StatusCode::CONFLICT,
        (State::Cancelled | State::Expired, _) => StatusCode::GONE,
        (_, CallOutcome::Success | CallOutcome::Fallback) => StatusCode::OK,
        (_, CallOutcome::BusinessError) => StatusCode::UNPROCESSABLE_ENTITY,
        (_, CallOutcome::SystemError) => StatusCode::FAILED_DEPENDENCY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row of the table in docs/gateway.md about calls: what it is, the status, and that of `status=outcome`.
    const CALLS: [(Verdict, u16, u16); 10] = [
        (
            Verdict::Decided(State::Succeeded, CallOutcome::Success),
            200,
            200,
        ),
        (
            Verdict::Decided(State::Failed, CallOutcome::BusinessError),
            200,
            422,
        ),
        (
            Verdict::Decided(State::Failed, CallOutcome::SystemError),
            200,
            424,
        ),
        (
            Verdict::Decided(State::Failed, CallOutcome::Fallback),
            200,
            200,
        ),
        (
            Verdict::Decided(State::InDoubt, CallOutcome::Unknown),
            200,
            409,
        ),
        (
            Verdict::Decided(State::Cancelled, CallOutcome::SystemError),
            200,
            410,
        ),
        (
            Verdict::Decided(State::Expired, CallOutcome::SystemError),
            200,
            410,
        ),
        // Settled, or answered by a caller's program.
        (
            Verdict::Decided(State::Succeeded, CallOutcome::Fallback),
            200,
            200,
        ),
        (Verdict::Open, 202, 202),
        (Verdict::Done, 200, 200),
    ];

    #[test]
    fn each_cell_about_calls_has_its_status() {
        for (verdict, plain, by_outcome) in CALLS {
            assert_eq!(verdict.status(Column::Plain), plain, "{verdict:?}");
            assert_eq!(verdict.status(Column::ByOutcome), by_outcome, "{verdict:?}");
        }
    }

    #[test]
    fn whatever_a_decided_call_came_to_its_status_is_never_one_that_is_sent_again() {
        for state in State::ALL {
            for outcome in CallOutcome::ALL {
                let verdict = Verdict::Decided(*state, *outcome);
                assert_eq!(verdict.status(Column::Plain), 200);
                let status = verdict.status(Column::ByOutcome).as_u16();
                assert!([200, 409, 410, 422, 424].contains(&status), "{verdict:?}");
            }
        }
    }

    /// Codes with which requests are refused, and their statuses; with every other code only calls end.
    const REFUSALS: [(u16, &[Code]); 12] = [
        (401, &[Code::Unauthenticated]),
        (403, &[Code::Forbidden]),
        (
            404,
            &[Code::UnknownTool, Code::UnknownToolVersion, Code::NotFound],
        ),
        (
            409,
            &[
                Code::IdempotencyKeyReused,
                Code::Conflict,
                Code::AlreadyTerminal,
                Code::WorkerNotFenced,
            ],
        ),
        (410, &[Code::ToolRetired]),
        (413, &[Code::PayloadTooLarge]),
        (422, &[Code::NarrowIt]),
        (
            429,
            &[
                Code::QuotaExceeded,
                Code::RateLimited,
                Code::RepeatedFailure,
            ],
        ),
        (
            503,
            &[
                Code::ToolPaused,
                Code::Overloaded,
                Code::StoreUnavailable,
                Code::Unavailable,
            ],
        ),
        (504, &[Code::NoAnswer]),
        (
            400,
            &[
                Code::MalformedJson,
                Code::TruncatedArguments,
                Code::InvalidUnicode,
                Code::NulNotAllowed,
                Code::DuplicateKey,
                Code::DepthExceeded,
                Code::TooManyNodes,
                Code::KeyTooLong,
                Code::StringTooLong,
                Code::NumberOutOfRange,
                Code::NumberTooLong,
                Code::InvalidArguments,
                Code::InvalidToolName,
                Code::InvalidTenant,
                Code::MissingIdempotencyKey,
                Code::InvalidIdempotencyKey,
                Code::DeadlineInvalid,
                Code::HeaderInvalid,
                Code::InvalidId,
            ],
        ),
        (
            500,
            &[
                Code::Timeout,
                Code::CircuitOpen,
                Code::ToolCrashed,
                Code::ToolError,
                Code::OutputInvalid,
                Code::OutputTooLarge,
                Code::RetriesExhausted,
                Code::DeadlineExceeded,
                Code::Cancelled,
                Code::InDoubt,
                Code::NotApplied,
                Code::ToolGone,
                Code::ToolChanged,
                Code::EgressDenied,
                Code::Denied,
                Code::BudgetExceeded,
            ],
        ),
    ];

    #[test]
    fn the_document_has_every_status_of_the_table() {
        let document = crate::openapi::bundle::document();
        let calls = CALLS.iter().flat_map(|(_, plain, by)| [*plain, *by]);
        let refusals = REFUSALS.iter().map(|(status, _)| *status);
        for status in calls.chain(refusals).filter(|status| *status != 500) {
            let call = &document["paths"]["/v1/call/{tool}"]["post"]["responses"];
            let history = &document["paths"]["/v1/history"]["get"]["responses"];
            let name = status.to_string();
            let is_there = call.get(&name).or_else(|| history.get(&name)).is_some();
            assert!(is_there, "{status}");
        }
    }

    #[test]
    fn each_cell_about_refusals_has_its_status_in_both_columns() {
        let mut listed = Vec::new();
        for (status, codes) in REFUSALS {
            for code in codes {
                let verdict = Verdict::Refused(*code);
                assert_eq!(verdict.status(Column::Plain), status, "{code}");
                assert_eq!(verdict.status(Column::ByOutcome), status, "{code}");
                listed.push(*code);
            }
        }
        for code in Code::ALL {
            let rows = listed.iter().filter(|listed| *listed == code).count();
            assert_eq!(rows, 1, "{code} stands in the table");
        }
    }
}

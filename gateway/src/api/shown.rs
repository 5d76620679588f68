//! A call as who asks about it is shown it.

use axum::response::Response;
use fleet_client::Answer;

use crate::{answer, auth::principal::Principal, mcp::withheld::shown_to, status::Column};

/// The answer about one call, for this principal.
pub(super) fn shown(answer: &Answer, principal: &Principal, column: Column) -> Response {
    answer::of_call_as(answer, column, |open| shown_to(principal, open))
}

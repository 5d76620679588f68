//! **Which status and which type?** One table from why there is no reply to what a vendor's client is told.
//!
//! Everywhere else a decided call is 200. Here it is not: a vendor's client knows a failure by its status alone, and the header
//! `x-should-retry` keeps it from sending the same again by itself.

use axum::http::StatusCode;
use fleet::{manifest::ChatProtocol, wire::code::Code};

/// The status of Anthropic's for what another server would call 503.
const OVERLOADED: u16 = 529;

/// The status of a call that ended with this code, or of a request that was refused with it. `vendors`: what the vendor answered with.
pub(super) const fn status(code: Code, vendors: Option<u16>) -> u16 {
    match (code, vendors) {
        // The route's key, or its URL, is wrong: nothing that the caller could mend, and no word about the caller's own key.
        (_, Some(401 | 403 | 404)) => 502,
        (_, Some(status @ 400..=599)) => status,
        (Code::Timeout | Code::DeadlineExceeded | Code::NoAnswer, _) => 504,
        (Code::CircuitOpen, _) => 503,
        (Code::Denied, _) => 403,
        (Code::Cancelled, _) => 409,
        (Code::BudgetExceeded, _) => Code::QuotaExceeded.status(),
        (code, _) => code.status(),
    }
}

/// The same status as this vendor says it.
pub(super) fn spoken(status: StatusCode, protocol: ChatProtocol) -> StatusCode {
    match (status, protocol) {
        (StatusCode::SERVICE_UNAVAILABLE, ChatProtocol::Anthropic) => {
            StatusCode::from_u16(OVERLOADED).unwrap_or(status)
        }
        (status, _) => status,
    }
}

/// The type of an error with this status, in the vendor's words.
pub(super) const fn kind(status: u16, protocol: ChatProtocol) -> &'static str {
    match protocol {
        ChatProtocol::OpenaiChat | ChatProtocol::OpenaiResponses => match status {
            401 => "authentication_error",
            403 => "permission_error",
            429 => "rate_limit_error",
            0..=499 => "invalid_request_error",
            500..=u16::MAX => "server_error",
        },
        ChatProtocol::Anthropic => match status {
            401 => "authentication_error",
            402 => "billing_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 | OVERLOADED => "overloaded_error",
            408 | 504 => "timeout_error",
            0..=499 => "invalid_request_error",
            500..=u16::MAX => "api_error",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_a_status_that_no_vendors_client_takes_for_success() {
        for code in Code::ALL {
            let status = status(*code, None);
            assert!((400..600).contains(&status), "{code}: {status}");
        }
    }

    #[test]
    fn what_ended_a_call_has_the_status_of_its_meaning() {
        use ChatProtocol::{Anthropic, OpenaiChat};
        for (code, vendors, expected, openai, anthropic) in [
            (
                Code::Unauthenticated,
                None,
                401,
                "authentication_error",
                "authentication_error",
            ),
            (
                Code::Forbidden,
                None,
                403,
                "permission_error",
                "permission_error",
            ),
            (
                Code::UnknownTool,
                None,
                404,
                "invalid_request_error",
                "not_found_error",
            ),
            (
                Code::InvalidArguments,
                None,
                400,
                "invalid_request_error",
                "invalid_request_error",
            ),
            (
                Code::IdempotencyKeyReused,
                None,
                409,
                "invalid_request_error",
                "invalid_request_error",
            ),
            (
                Code::PayloadTooLarge,
                None,
                413,
                "invalid_request_error",
                "request_too_large",
            ),
            (
                Code::RateLimited,
                None,
                429,
                "rate_limit_error",
                "rate_limit_error",
            ),
            (
                Code::Unavailable,
                None,
                503,
                "server_error",
                "overloaded_error",
            ),
            (
                Code::CircuitOpen,
                None,
                503,
                "server_error",
                "overloaded_error",
            ),
            (
                Code::BudgetExceeded,
                None,
                429,
                "rate_limit_error",
                "rate_limit_error",
            ),
            (Code::Timeout, None, 504, "server_error", "timeout_error"),
            (Code::InDoubt, None, 500, "server_error", "api_error"),
            (Code::OutputInvalid, None, 500, "server_error", "api_error"),
            (
                Code::Denied,
                None,
                403,
                "permission_error",
                "permission_error",
            ),
            // As the vendor said, but for what is wrong with the route.
            (
                Code::ToolError,
                Some(400),
                400,
                "invalid_request_error",
                "invalid_request_error",
            ),
            (
                Code::ToolError,
                Some(422),
                422,
                "invalid_request_error",
                "invalid_request_error",
            ),
            (
                Code::Unavailable,
                Some(429),
                429,
                "rate_limit_error",
                "rate_limit_error",
            ),
            (
                Code::Unavailable,
                Some(529),
                529,
                "server_error",
                "overloaded_error",
            ),
            (Code::ToolError, Some(401), 502, "server_error", "api_error"),
            (Code::ToolError, Some(404), 502, "server_error", "api_error"),
            (Code::ToolError, Some(302), 500, "server_error", "api_error"),
        ] {
            let status = status(code, vendors);
            let kinds = (kind(status, OpenaiChat), kind(status, Anthropic));
            assert_eq!(
                (status, kinds),
                (expected, (openai, anthropic)),
                "{code} {vendors:?}"
            );
        }
        assert_eq!(
            spoken(StatusCode::SERVICE_UNAVAILABLE, Anthropic).as_u16(),
            529
        );
        assert_eq!(
            spoken(StatusCode::SERVICE_UNAVAILABLE, OpenaiChat).as_u16(),
            503
        );
        assert_eq!(kind(529, Anthropic), "overloaded_error");
    }
}

//! The stable error codes. Each has a page `docs/errors/<code>.md`; a test pairs them.

use crate::call::words;

words! {
    /// Why a call was refused, failed or is in doubt. A promise: agents and dashboards match on these words.
    Code {
        // Refusals: nothing is stored, the key is not consumed.
        /// The body is not JSON.
        MalformedJson = "malformed_json",
        /// The body ends in the middle of a value.
        TruncatedArguments = "truncated_arguments",
        /// The body is not UTF-8, or holds half of a surrogate pair.
        InvalidUnicode = "invalid_unicode",
        /// A string holds the character U+0000.
        NulNotAllowed = "nul_not_allowed",
        /// An object names a key twice.
        DuplicateKey = "duplicate_key",
        /// Arrays and objects are nested too deep.
        DepthExceeded = "depth_exceeded",
        /// The body holds too many values.
        TooManyNodes = "too_many_nodes",
        /// An object key is too long.
        KeyTooLong = "key_too_long",
        /// A string is too long.
        StringTooLong = "string_too_long",
        /// The body is too large.
        PayloadTooLarge = "payload_too_large",
        /// A number is outside the range that is kept exactly.
        NumberOutOfRange = "number_out_of_range",
        /// A number has too many digits.
        NumberTooLong = "number_too_long",
        /// The arguments do not fit the tool's schema.
        InvalidArguments = "invalid_arguments",
        /// No such tool.
        UnknownTool = "unknown_tool",
        /// The tool has no such version.
        UnknownToolVersion = "unknown_tool_version",
        /// The tool takes no new calls any more.
        ToolRetired = "tool_retired",
        /// Calls like this one are paused.
        ToolPaused = "tool_paused",
        /// The same arguments have failed too often in this run or session.
        RepeatedFailure = "repeated_failure",
        /// Not a name a tool can have.
        InvalidToolName = "invalid_tool_name",
        /// Not a name a tenant can have.
        InvalidTenant = "invalid_tenant",
        /// The tool needs an idempotency key.
        MissingIdempotencyKey = "missing_idempotency_key",
        /// Not a valid idempotency key.
        InvalidIdempotencyKey = "invalid_idempotency_key",
        /// The key already names another call.
        IdempotencyKeyReused = "idempotency_key_reused",
        /// The deadline is not a number of milliseconds in range.
        DeadlineInvalid = "deadline_invalid",
        /// A header has a value that is not allowed.
        HeaderInvalid = "header_invalid",
        /// The tenant has as many open calls as it may have.
        QuotaExceeded = "quota_exceeded",
        /// The tenant sends more calls or bytes a second than it may.
        RateLimited = "rate_limited",
        /// The dispatcher has too much in hand.
        Overloaded = "overloaded",
        /// The ledger cannot be reached, or did not answer.
        StoreUnavailable = "store_unavailable",
        /// Who asks over HTTP does not say who it is, or not truly.
        Unauthenticated = "unauthenticated",
        /// Nobody has answered in time, so nobody knows whether the request was taken.
        NoAnswer = "no_answer",

        // After acceptance.
        /// The tool did not answer in time.
        Timeout = "timeout",
        /// The tool could not be reached, or said that it is not available.
        Unavailable = "unavailable",
        /// Its target fails, so nothing is sent to it for a while.
        CircuitOpen = "circuit_open",
        /// The tool died.
        ToolCrashed = "tool_crashed",
        /// The tool said no.
        ToolError = "tool_error",
        /// The tool's answer is not what it should be.
        OutputInvalid = "output_invalid",
        /// The tool's answer is larger than allowed.
        OutputTooLarge = "output_too_large",
        /// Every attempt failed.
        RetriesExhausted = "retries_exhausted",
        /// The call's time ran out.
        DeadlineExceeded = "deadline_exceeded",
        /// The caller cancelled it.
        Cancelled = "cancelled",
        /// The effect may have happened.
        InDoubt = "in_doubt",
        /// It was in doubt, and the effect turned out not to have happened.
        NotApplied = "not_applied",
        /// The tool cannot be run here any more.
        ToolGone = "tool_gone",
        /// The MCP server says something else of the tool than when it was applied.
        ToolChanged = "tool_changed",
        /// The request would have gone where this worker may not go.
        EgressDenied = "egress_denied",
        /// A rule of the worker's program does not allow the call.
        Forbidden = "forbidden",
        /// Who had to decide about it said no.
        Denied = "denied",
        /// Nothing is left of what calls of the tool may spend.
        BudgetExceeded = "budget_exceeded",

        // Others.
        /// No such call for this tenant.
        NotFound = "not_found",
        /// Not a call id.
        InvalidId = "invalid_id",
        /// The state of the call does not fit the request.
        Conflict = "conflict",
        /// The call is over, and not by what the request brings.
        AlreadyTerminal = "already_terminal",
        /// Something that was started for the call may still act, so it cannot be known yet that it was not applied.
        WorkerNotFenced = "worker_not_fenced",
        /// The history holds too much to look through for this.
        NarrowIt = "narrow_it",
    }
}

impl Code {
    /// The number of a refusal with this code, with the meaning of an HTTP status: in `Nats-Service-Error-Code`, and the status over
    /// HTTP. A code with which only calls end has 500: nobody refuses with it.
    pub const fn status(self) -> u16 {
        match self {
            Self::Unauthenticated => 401,
            Self::Forbidden => 403,
            Self::UnknownTool | Self::UnknownToolVersion | Self::NotFound => 404,
            Self::IdempotencyKeyReused
            | Self::Conflict
            | Self::AlreadyTerminal
            | Self::WorkerNotFenced => 409,
            Self::ToolRetired => 410,
            Self::PayloadTooLarge => 413,
            Self::NarrowIt => 422,
            Self::QuotaExceeded | Self::RateLimited | Self::RepeatedFailure => 429,
            Self::ToolPaused | Self::Overloaded | Self::StoreUnavailable | Self::Unavailable => 503,
            Self::NoAnswer => 504,
            Self::MalformedJson
            | Self::TruncatedArguments
            | Self::InvalidUnicode
            | Self::NulNotAllowed
            | Self::DuplicateKey
            | Self::DepthExceeded
            | Self::TooManyNodes
            | Self::KeyTooLong
            | Self::StringTooLong
            | Self::NumberOutOfRange
            | Self::NumberTooLong
            | Self::InvalidArguments
            | Self::InvalidToolName
            | Self::InvalidTenant
            | Self::MissingIdempotencyKey
            | Self::InvalidIdempotencyKey
            | Self::DeadlineInvalid
            | Self::HeaderInvalid
            | Self::InvalidId => 400,
            Self::Timeout
            | Self::CircuitOpen
            | Self::ToolCrashed
            | Self::ToolError
            | Self::OutputInvalid
            | Self::OutputTooLarge
            | Self::RetriesExhausted
            | Self::DeadlineExceeded
            | Self::Cancelled
            | Self::InDoubt
            | Self::NotApplied
            | Self::ToolGone
            | Self::ToolChanged
            | Self::EgressDenied
            | Self::Denied
            | Self::BudgetExceeded => 500,
        }
    }
}

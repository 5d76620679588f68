//! Who asks: one place turns the header `Authorization` into a principal.

mod pattern;

pub(crate) mod principal;

use std::sync::Arc;

use axum::http::HeaderMap;
use fleet::wire::message::Message;

use self::principal::Principal;
use crate::refusal::Refused;

/// What a token may be for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Make calls, look at them and take them back.
    Call,
    /// Read the history.
    Read,
    /// Decide about calls that wait for a yes.
    Approve,
    /// Settle calls in doubt.
    Settle,
    /// Change what may run.
    Admin,
}

impl Scope {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [
        Self::Call,
        Self::Read,
        Self::Approve,
        Self::Settle,
        Self::Admin,
    ];

    /// The word.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Read => "read",
            Self::Approve => "approve",
            Self::Settle => "settle",
            Self::Admin => "admin",
        }
    }
}

/// By what it is known who asks.
#[derive(Debug, Clone)]
pub(crate) enum Authority {
    /// Nobody is asked: whoever reaches the port may do everything.
    Nobody(Arc<Principal>),
}

impl Authority {
    /// Nobody is asked.
    pub(crate) fn nobody() -> Self {
        Self::Nobody(Arc::new(Principal::anyone()))
    }

    /// Who asks, by the headers of the request.
    ///
    /// # Errors
    ///
    /// It does not say so, or not truly.
    pub(crate) fn principal(&self, _headers: &HeaderMap) -> Result<Arc<Principal>, Refused> {
        match self {
            Self::Nobody(anyone) => Ok(Arc::clone(anyone)),
        }
    }
}

/// There is no token.
pub(crate) fn no_token() -> Refused {
    Refused::unauthenticated(Message::fixed(
        "this endpoint wants a token: Authorization: Bearer tf_…",
        "这个接口需要 token：Authorization: Bearer tf_…",
    ))
}

//! Whose memory a body or an answer takes, and how much of a room each may take.

use fleet::arguments::Limits;

use crate::auth::principal::Principal;

/// The largest answer of a call with the form around it: for one of these there is always room.
pub(crate) const LARGEST: usize = Limits::ANSWER.bytes + 16 * 1024;

/// The bytes of each body and of each piece of an answer that take no room of others: the number of connections bounds them. So large ones
/// keep no small one out.
pub(crate) const FREE: usize = 16 * 1024;

/// Who takes room.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum RoomOf {
    /// Nobody is asked who they are.
    Anyone,
    /// Who did not say who asks.
    Stranger,
    /// Who has the token with this id.
    Token(String),
}

impl RoomOf {
    /// Who said this of themselves.
    pub(crate) fn of(principal: Option<&Principal>) -> Self {
        match principal {
            None => Self::Stranger,
            Some(Principal::Anyone | Principal::Named(_)) => Self::Anyone,
            Some(Principal::Token(token)) => Self::Token(token.token_id.clone()),
        }
    }

    /// The bytes that this one may take of so many: half of them a token, an eighth strangers together, and each at least the largest.
    pub(crate) fn share(&self, all: usize) -> usize {
        match self {
            Self::Anyone => all,
            Self::Stranger => (all / 8).max(LARGEST),
            Self::Token(_) => (all / 2).max(LARGEST),
        }
    }
}

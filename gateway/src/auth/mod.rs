//! Who asks: one place turns the header `Authorization` into a principal.

pub(crate) mod principal;

use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use axum::http::{HeaderMap, header::AUTHORIZATION};
use fleet::{
    tokens::{KnownTokens, TokenLookup, WrongTokens},
    wire::{code::Code, message::Message},
};
use tokio::time::Instant;

use self::principal::Principal;
use crate::{headers::API_KEY, refusal::Refused};

/// By what it is known who asks.
#[derive(Debug)]
pub(crate) enum Authority {
    /// Nobody is asked: whoever reaches the port may do everything.
    Nobody,
    /// Tokens, as they were last read.
    Tokens {
        /// Those that hold.
        known: KnownTokens,
        /// Those that did not, by address.
        wrong: Mutex<WrongTokens>,
    },
}

impl Authority {
    /// These tokens.
    pub(crate) fn tokens(known: KnownTokens) -> Self {
        Self::Tokens {
            known,
            wrong: Mutex::new(WrongTokens::new(Instant::now())),
        }
    }

    /// Whether anybody is asked who it is.
    pub(crate) const fn asks(&self) -> bool {
        matches!(self, Self::Tokens { .. })
    }

    /// Who asks, by the headers of a request from this address.
    ///
    /// # Errors
    ///
    /// It does not say so, or not truly; or the tokens cannot be read.
    pub(crate) fn principal(
        &self,
        headers: &HeaderMap,
        address: IpAddr,
    ) -> Result<Principal, Refused> {
        self.principal_of(bearer(headers), address)
    }

    /// The same where a vendor's client asks, which may send its token as an API key. `Authorization` counts where there are both.
    ///
    /// # Errors
    ///
    /// As for [`Self::principal`].
    pub(crate) fn principal_by_key(
        &self,
        headers: &HeaderMap,
        address: IpAddr,
    ) -> Result<Principal, Refused> {
        let token = match headers.contains_key(AUTHORIZATION) {
            true => bearer(headers),
            false => api_key(headers),
        };
        self.principal_of(token, address)
    }

    /// Who has this token, which came from this address.
    ///
    /// # Errors
    ///
    /// As for [`Self::principal`].
    pub(crate) fn principal_of(
        &self,
        token: Option<&str>,
        address: IpAddr,
    ) -> Result<Principal, Refused> {
        let Self::Tokens { known, wrong } = self else {
            return Ok(Principal::Anyone);
        };
        let token = token.ok_or_else(no_token)?;
        // Before it counts what others have sent from there: one that holds is not refused for that.
        match known.look(token) {
            TokenLookup::Live(row) => Ok(Principal::Token(row)),
            TokenLookup::Unknown => {
                let now = Instant::now();
                let mut wrong = wrong.lock().unwrap_or_else(PoisonError::into_inner);
                if wrong.refuses(address, now).is_some() {
                    return Err(Refused::later(Code::RateLimited, TOO_MANY));
                }
                wrong.note(address, now);
                Err(Refused::unauthenticated(Message::fixed(
                    "the token is not one that holds",
                    "这个 token 无效",
                )))
            }
            TokenLookup::Unavailable => Err(Refused::later(Code::StoreUnavailable, UNREADABLE)),
        }
    }

    /// Who has the token with this id, which said so before. `None`: it is revoked or expired.
    ///
    /// # Errors
    ///
    /// The tokens cannot be read.
    pub(crate) fn principal_again(&self, token_id: &str) -> Result<Option<Principal>, Refused> {
        let Self::Tokens { known, .. } = self else {
            return Ok(Some(Principal::Anyone));
        };
        match known.again(token_id) {
            TokenLookup::Live(row) => Ok(Some(Principal::Token(row))),
            TokenLookup::Unknown => Ok(None),
            TokenLookup::Unavailable => Err(Refused::later(Code::StoreUnavailable, UNREADABLE)),
        }
    }

    /// Whether the token with this id is revoked or expired, as far as the tokens can be read.
    pub(crate) fn is_over(&self, token_id: &str) -> bool {
        match self {
            Self::Nobody => false,
            Self::Tokens { known, .. } => matches!(known.again(token_id), TokenLookup::Unknown),
        }
    }

    /// Whether somebody who was let in may stay: neither revoked nor expired, as far as that is known at the moment.
    pub(crate) fn still_knows(&self, principal: &Principal) -> bool {
        match (self, principal) {
            (Self::Nobody, _) | (Self::Tokens { .. }, Principal::Anyone | Principal::Named(_)) => {
                true
            }
            (Self::Tokens { known, .. }, Principal::Token(token)) => {
                matches!(known.again(&token.token_id), TokenLookup::Live(_))
            }
        }
    }
}

/// The token in `Authorization: Bearer …`, which may stand there once.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let (line, None) = (lines.next()?, lines.next()) else {
        return None;
    };
    let (scheme, token) = line.to_str().ok()?.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

/// The token in `X-Api-Key`, which may stand there once.
fn api_key(headers: &HeaderMap) -> Option<&str> {
    let mut lines = headers.get_all(API_KEY).iter();
    let (line, None) = (lines.next()?, lines.next()) else {
        return None;
    };
    Some(line.to_str().ok()?.trim())
}

/// There is no token.
pub(crate) fn no_token() -> Refused {
    Refused::unauthenticated(Message::fixed(
        "this endpoint wants a token: Authorization: Bearer tf_…",
        "这个接口需要 token：Authorization: Bearer tf_…",
    ))
}

const TOO_MANY: Message = Message::fixed(
    "too many wrong tokens came from this address",
    "来自这个地址的无效 token 太多",
);
const UNREADABLE: Message = Message::fixed(
    "the tokens cannot be read at the moment",
    "目前无法读取 token",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_stands_in_one_line_behind_its_scheme() {
        let read = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(AUTHORIZATION, line.parse().unwrap());
            }
            bearer(&headers).map(ToOwned::to_owned)
        };
        for good in ["Bearer tf_a_b", "bearer  tf_a_b", "BEARER tf_a_b "] {
            assert_eq!(read(&[good]).as_deref(), Some("tf_a_b"), "{good}");
        }
        for bad in [
            &[][..],
            &["tf_a_b"],
            &["Basic tf_a_b"],
            &["Bearer a", "Bearer a"],
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[tokio::test]
    async fn nothing_is_said_of_a_token_before_the_tokens_were_read() {
        let authority = Authority::tokens(KnownTokens::default());
        let address = [127, 0, 0, 1].into();
        let mut headers = HeaderMap::new();
        assert!(authority.principal(&headers, address).is_err());
        headers.append(AUTHORIZATION, "Bearer x".parse().unwrap());
        assert!(authority.principal(&headers, address).is_err());
        assert!(Authority::Nobody.principal(&headers, address).is_ok());
    }
}

//! The token with which somebody outside the fleet gives a call what it waits for.
//!
//! It proves that the call was handed to its sender, for this reason and in this attempt, or where it has none at this revision: an
//! HMAC-SHA256 under a secret of the ledger, which is never stored with a call and in no view. Whoever submits the call gets it, and
//! followers of its session; of an attempt whose tool may answer later, that tool.

use std::fmt;

use ring::hmac;

use crate::{
    call::Awaiting,
    ids::{AttemptId, CallId},
};

/// The secret of a ledger. Clones are cheap enough.
#[derive(Clone)]
pub struct TokenSecret(hmac::Key);

impl fmt::Debug for TokenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSecret")
    }
}

/// What was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handed {
    /// The call.
    pub call: CallId,
    /// For whom it waits.
    pub awaiting: Awaiting,
    /// As what it was handed out.
    pub turn: HandedAs,
}

/// As what a call was handed out: what no other hand-over of it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandedAs {
    /// Somebody runs it, as this attempt.
    Attempt(AttemptId),
    /// Nobody runs it; it had moved so often.
    Revision(i32),
}

impl Handed {
    /// What is signed: widths that the word behind them fixes, and a word with which no other ends.
    fn bytes(&self) -> Vec<u8> {
        let (call, word) = (self.call.0.as_bytes(), self.awaiting.as_str().as_bytes());
        match self.turn {
            HandedAs::Attempt(attempt) => [call, attempt.0.as_bytes().as_slice(), word].concat(),
            HandedAs::Revision(rev) => [call, rev.to_be_bytes().as_slice(), word].concat(),
        }
    }
}

impl TokenSecret {
    /// From the bytes that the ledger has.
    pub fn new(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// The token: `<call_id>.<proof>`, the proof in 64 hexadecimal digits.
    pub fn token(&self, handed: &Handed) -> String {
        let proof = hmac::sign(&self.0, &handed.bytes());
        format!("{}.{}", handed.call, hex::encode(proof))
    }

    /// The idempotency key of a call that the fleet makes for who decides about a call, from a hash of what is asked and when. Nobody who
    /// submits calls can know it before.
    pub fn preview_key(&self, call: CallId, asked: &[u8; 32]) -> String {
        let bytes = [call.0.as_bytes(), asked.as_slice(), b"preview"].concat();
        format!("preview-{}", hex::encode(hmac::sign(&self.0, &bytes)))
    }

    /// Whether this is the token of what was handed out. Compared in constant time.
    pub fn is_of(&self, token: &str, handed: &Handed) -> bool {
        let Some((call, proof)) = token.split_once('.') else {
            return false;
        };
        let Ok(proof) = hex::decode(proof) else {
            return false;
        };
        call.parse() == Ok(handed.call) && hmac::verify(&self.0, &handed.bytes(), &proof).is_ok()
    }
}

/// The secrets of a ledger for both kinds of tokens: those of callers, and those of tools that answer later. Workers make the latter, and
/// cannot make the former.
#[derive(Debug, Clone)]
pub struct Tokens {
    /// Of callers.
    pub callers: TokenSecret,
    /// Of tools.
    pub tools: TokenSecret,
}

impl Tokens {
    fn secret_of(&self, whom: Awaiting) -> &TokenSecret {
        match whom {
            Awaiting::Approval | Awaiting::Client | Awaiting::Input => &self.callers,
            Awaiting::Completion => &self.tools,
        }
    }

    /// As [`TokenSecret::token`].
    pub fn token(&self, handed: &Handed) -> String {
        self.secret_of(handed.awaiting).token(handed)
    }

    /// As [`TokenSecret::is_of`].
    pub fn is_of(&self, token: &str, handed: &Handed) -> bool {
        self.secret_of(handed.awaiting).is_of(token, handed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_of_one_call_one_attempt_and_one_ledger() {
        let handed = Handed {
            call: CallId::generate(),
            awaiting: Awaiting::Client,
            turn: HandedAs::Attempt(AttemptId::generate()),
        };
        let secret = TokenSecret::new(b"a secret");
        let token = secret.token(&handed);
        assert!(secret.is_of(&token, &handed));
        assert!(!TokenSecret::new(b"another").is_of(&token, &handed));
        let others = [
            Handed {
                call: CallId::generate(),
                ..handed
            },
            Handed {
                turn: HandedAs::Attempt(AttemptId::generate()),
                ..handed
            },
            Handed {
                awaiting: Awaiting::Approval,
                ..handed
            },
            Handed {
                turn: HandedAs::Revision(0),
                ..handed
            },
        ];
        for other in others {
            assert!(!secret.is_of(&token, &other), "{other:?}");
            let (_, proof) = token.split_once('.').unwrap();
            assert!(!secret.is_of(&format!("{}.{proof}", other.call), &other));
        }
        for cut in [
            "",
            ".",
            &token[..token.len() - 1],
            &token[1..],
            &token[..36],
        ] {
            assert!(!secret.is_of(cut, &handed), "{cut}");
        }
        assert!(!format!("{secret:?}").contains("a secret"));
    }
}

//! The proof that a message about a decided call comes from the worker that claimed the call.
//!
//! The dispatcher makes a secret when it accepts a call and keeps it beside its waiting caller and in the row of the open call.
//! A claim returns it. The worker that ended the call sends the envelope with an HMAC-SHA256 under the secret, and a dispatcher
//! hands on only what it verifies. A user of NATS who may publish such messages knows no secret: they are answered from the
//! row. The secret leaves the ledger with the row of the open call: no view shows it, and no history keeps it.

use std::fmt;

use bytes::{Bytes, BytesMut};
use ring::hmac;
use uuid::Uuid;

use super::envelope::EncodedEnvelope;
use crate::ids::CallId;

/// The secret of one call: 122 random bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DoneSecret(pub Uuid);

impl DoneSecret {
    /// A new one.
    pub fn generate() -> Self {
        Self(Uuid::new_v4())
    }

    fn key(self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.0.as_bytes())
    }

    /// The message that proves this envelope.
    pub fn prove(self, envelope: &[u8]) -> Bytes {
        let proof = hmac::sign(&self.key(), envelope);
        let mut message = BytesMut::with_capacity(PROOF_MAX + envelope.len());
        message.extend_from_slice(&[PROVEN]);
        message.extend_from_slice(proof.as_ref());
        message.extend_from_slice(envelope);
        message.freeze()
    }
}

impl fmt::Debug for DoneSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DoneSecret")
    }
}

/// The first byte of a message with a proof. An envelope alone, as releases before sent it, begins with a brace.
const PROVEN: u8 = 1;
/// The length of an HMAC-SHA256.
const PROOF: usize = 32;
/// The most bytes that a message has beside its envelope.
pub const PROOF_MAX: usize = 1 + PROOF;

/// A message about a decided call, not believed yet.
#[derive(Debug, Clone)]
pub struct Word {
    envelope: EncodedEnvelope,
    message: Bytes,
}

impl Word {
    /// A message that looks like one; `None` for any other, a mere bell too.
    pub fn read(message: Bytes) -> Option<Self> {
        let envelope = match message.first()? {
            &PROVEN if message.len() > PROOF_MAX => message.slice(PROOF_MAX..),
            _ => message.clone(),
        };
        let envelope = EncodedEnvelope::read(envelope)?;
        Some(Self { envelope, message })
    }

    /// The call that it names.
    pub const fn call(&self) -> CallId {
        self.envelope.call()
    }

    /// The envelope, if its sender knew the secret.
    pub fn proven_by(self, secret: DoneSecret) -> Option<EncodedEnvelope> {
        let (proof, envelope) = self
            .message
            .strip_prefix(&[PROVEN])?
            .split_at_checked(PROOF)?;
        hmac::verify(&secret.key(), envelope, proof).ok()?;
        Some(self.envelope)
    }

    /// The message as it came.
    pub fn into_message(self) -> Bytes {
        self.message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_of_the_call_proves_an_envelope_and_only_that_one() {
        let (call, secret) = (CallId::generate(), DoneSecret::generate());
        let envelope = format!("{{\"call_id\":\"{call}\",\"state\":\"succeeded\"}}");
        let message = secret.prove(envelope.as_bytes());
        assert!(message.len() <= PROOF_MAX + envelope.len());
        let word = Word::read(message.clone()).unwrap();
        assert_eq!(word.call(), call);
        assert_eq!(word.clone().into_message(), message);
        assert!(word.clone().proven_by(DoneSecret::generate()).is_none());
        let proven = word.proven_by(secret).unwrap();
        assert_eq!(proven.into_bytes(), envelope);
        let other = DoneSecret::generate().prove(envelope.as_bytes());
        assert!(Word::read(other).unwrap().proven_by(secret).is_none());
        for at in 0..message.len() {
            let mut changed = message.to_vec();
            changed[at] ^= 1;
            let word = Word::read(changed.into());
            assert!(
                word.and_then(|word| word.proven_by(secret)).is_none(),
                "{at}"
            );
            let cut = Word::read(message.slice(..at));
            assert!(
                cut.and_then(|word| word.proven_by(secret)).is_none(),
                "{at}"
            );
        }
        // What releases before sent: it is read, and proves nothing.
        let bare = Word::read(Bytes::from(envelope)).unwrap();
        assert_eq!(bare.call(), call);
        assert!(bare.proven_by(secret).is_none());
        assert!(Word::read(Bytes::new()).is_none());
    }

    #[test]
    fn a_secret_is_not_printed() {
        let secret = DoneSecret::generate();
        assert_eq!(format!("{secret:?}"), "DoneSecret");
    }
}

//! The messages in which a worker tells a dispatcher that calls are decided: one envelope, or several at once, each after its
//! length.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes before each envelope.
const LENGTH: usize = size_of::<u32>();

/// Several envelopes as one message.
pub fn join(envelopes: &[Bytes]) -> Bytes {
    let bytes = envelopes.iter().map(weight).sum();
    let mut joined = BytesMut::with_capacity(bytes);
    for envelope in envelopes {
        let length =
            u32::try_from(envelope.len()).expect("an envelope is smaller than a message of NATS");
        joined.put_u32(length);
        joined.put_slice(envelope);
    }
    joined.freeze()
}

/// How many bytes an envelope takes in a message.
pub fn weight(envelope: &Bytes) -> usize {
    LENGTH + envelope.len()
}

/// The envelopes of a message. A malformed part ends it: the waiters of the envelopes that are lost ask the ledger.
pub fn split(mut joined: Bytes) -> impl Iterator<Item = Bytes> {
    std::iter::from_fn(move || {
        let length = joined.try_get_u32().ok()?;
        let length = usize::try_from(length).ok()?;
        (length <= joined.len()).then(|| joined.split_to(length))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_joined_comes_apart_again() {
        let envelopes =
            ["one", "", "three"].map(|text: &str| Bytes::copy_from_slice(text.as_bytes()));
        let joined = join(&envelopes);
        assert_eq!(joined.len(), envelopes.iter().map(weight).sum::<usize>());
        assert_eq!(split(joined).collect::<Vec<_>>(), envelopes);
    }

    #[test]
    fn what_is_cut_off_or_was_never_joined_ends_early() {
        let envelopes = ["one", "two"].map(|text: &str| Bytes::copy_from_slice(text.as_bytes()));
        let joined = join(&envelopes);
        for cut in 0..joined.len() {
            let whole = split(joined.slice(..cut)).collect::<Vec<_>>();
            assert_eq!(whole, envelopes[..whole.len()]);
            assert!(whole.len() < 2);
        }
        assert_eq!(split(Bytes::from_static(b"{\"call_id\":")).count(), 0);
    }
}

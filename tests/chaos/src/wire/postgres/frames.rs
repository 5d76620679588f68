//! The bytes of both ends, cut into messages: one byte for the kind, four for the length, and the rest.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The kind and the length.
pub(super) const HEADER: usize = 5;

/// Where a message begins, and how long it is in all. `None`: too little of it is here to say, or it makes no sense.
pub(super) fn header(bytes: &[u8]) -> Option<(u8, usize)> {
    let (kind, mut length) = (*bytes.first()?, bytes.get(1..HEADER)?);
    Some((kind, 1 + usize::try_from(length.get_u32()).ok()?))
}

/// A message of this kind.
pub(super) fn message(kind: u8, body: &[u8]) -> Bytes {
    let mut message = BytesMut::with_capacity(HEADER + body.len());
    message.put_u8(kind);
    let length = u32::try_from(4 + body.len()).expect("messages of ours are small");
    message.put_u32(length);
    message.put_slice(body);
    message.freeze()
}

/// The text that these bytes begin with, and what is behind it. `None`: it does not end here.
pub(super) fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

/// Finds the ends of answers in what a server says, however it is cut into pieces.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// The beginning of a header.
    begun: [u8; HEADER],
    begun_len: usize,
    /// What is still to come of the message whose header was read.
    left: usize,
}

impl Answers {
    /// `ReadyForQuery`
    const READY: u8 = b'Z';

    /// How many of these bytes belong to the answer that is being read, and whether it ends with them.
    pub(super) fn read(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut at = 0;
        while at < bytes.len() {
            let missing = HEADER - self.begun_len;
            if missing > 0 {
                let count = missing.min(bytes.len() - at);
                self.begun[self.begun_len..][..count].copy_from_slice(&bytes[at..][..count]);
                self.begun_len += count;
                at += count;
                let Some((_, length)) = header(&self.begun[..self.begun_len]) else {
                    break;
                };
                self.left = length.saturating_sub(HEADER);
            }
            let count = self.left.min(bytes.len() - at);
            self.left -= count;
            at += count;
            if self.left == 0 {
                self.begun_len = 0;
                if self.begun[0] == Self::READY {
                    return (at, true);
                }
            }
        }
        (at, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_where_the_server_is_ready_however_it_is_cut() {
        let answer = [
            message(b'T', b"columns"),
            message(b'D', &[b'Z'; 300]),
            message(b'C', b"SELECT 1\0"),
            message(b'Z', b"I"),
        ]
        .concat();
        let two = [&answer[..], &answer[..]].concat();
        for piece in [1, 2, 3, 7, 300, two.len()] {
            let (mut answers, mut ends, mut at) = (Answers::default(), Vec::new(), 0);
            for bytes in two.chunks(piece) {
                let mut rest = bytes;
                while !rest.is_empty() {
                    let (count, over) = answers.read(rest);
                    at += count;
                    rest = &rest[count..];
                    ends.extend(over.then_some(at));
                }
            }
            assert_eq!(ends, [answer.len(), two.len()], "in pieces of {piece}");
        }
    }
}

//! The parser's position in the body.

use crate::limits::Limits;

/// The body, and how much of it has been read.
pub(super) struct Cursor<'a> {
    /// The body, as far as it is UTF-8.
    pub(super) text: &'a str,
    /// Bytes of the whole body.
    pub(super) body_bytes: usize,
    /// Whether the body ends in the middle of a character, right after `text`.
    pub(super) cut_in_character: bool,
    /// The next byte of `text`.
    pub(super) at: usize,
    /// Values that were begun.
    pub(super) nodes: usize,
    pub(super) limits: &'a Limits,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(body: &'a [u8], limits: &'a Limits) -> Self {
        let (text, cut_in_character) = match std::str::from_utf8(body) {
            Ok(text) => (text, false),
            Err(error) => {
                let text = std::str::from_utf8(&body[..error.valid_up_to()]);
                (
                    text.expect("it is valid up to here"),
                    error.error_len().is_none(),
                )
            }
        };
        Self {
            text,
            body_bytes: body.len(),
            cut_in_character,
            at: 0,
            nodes: 0,
            limits,
        }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    pub(super) fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }
}

//! One line that a program writes: a message, read where that is short work. Of a longer one it is known whom it answers, and who waits
//! for it reads it. Pure.

use super::{
    aside::LONG,
    message::{self, Incoming},
    skim::{Skim, Skimmed},
};

/// The most bytes around an answer.
pub(super) const ENVELOPE_MAX: usize = 64 * 1024;
/// The most bytes of a line that are kept: of an answer as large as a manifest allows.
const LINE_MAX: usize = fleet::manifest::Manifest::OUTPUT_LIMIT_MAX + ENVELOPE_MAX;
/// The most bytes of a line that are read to know what it is.
const SKIMMED_MAX: usize = 64 * 1024 * 1024;

/// A line that has begun.
#[derive(Debug, Default)]
pub(super) struct MessageLine {
    bytes: Vec<u8>,
    seen: usize,
    skim: Skim,
}

/// What a line is.
#[derive(Debug)]
pub(super) enum LineRead {
    /// A message.
    Message(Incoming),
    /// An answer that is too long to be read here.
    Long(LongAnswer),
    /// A message that nobody waits for, longer than what a server may tell or ask; or an empty line.
    Nothing,
    /// No message: so many bytes of something else.
    NoMessage(usize),
}

/// An answer that is longer than what is read at once.
#[derive(Debug)]
pub(super) struct LongAnswer {
    /// The request that it answers.
    pub(super) id: u64,
    /// What it answers with.
    pub(super) skimmed: Skimmed,
    /// The message, or its beginning where it is longer than what is kept.
    pub(super) bytes: Vec<u8>,
    /// How many bytes it has.
    seen: usize,
}

impl MessageLine {
    /// Takes the next bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.seen = self.seen.saturating_add(bytes.len());
        self.skim.feed(bytes);
        let room = LINE_MAX.saturating_sub(self.bytes.len());
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Whether it is so long that it may never end.
    pub(super) const fn is_endless(&self) -> bool {
        self.seen > SKIMMED_MAX
    }

    /// What it is.
    pub(super) fn read(self) -> LineRead {
        if self.seen <= LONG {
            return match message::read(&self.bytes) {
                Ok(message) => LineRead::Message(message),
                Err(_) if self.bytes.trim_ascii().is_empty() => LineRead::Nothing,
                Err(_) => LineRead::NoMessage(self.seen),
            };
        }
        let id = std::str::from_utf8(self.skim.id()).ok();
        match id.and_then(|id| id.parse().ok()) {
            Some(id) if self.skim.is_answer() => LineRead::Long(LongAnswer {
                id,
                skimmed: self.skim.came(),
                bytes: self.bytes,
                seen: self.seen,
            }),
            Some(_) | None => LineRead::Nothing,
        }
    }
}

impl LongAnswer {
    /// Whether it is larger than an answer of so many bytes, and what is around it, can be.
    pub(super) fn is_larger_than(&self, limit: usize) -> bool {
        self.seen > limit.saturating_add(ENVELOPE_MAX).min(LINE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &str) -> LineRead {
        let mut line = MessageLine::default();
        for bytes in message.as_bytes().chunks(4_096) {
            line.add(bytes);
        }
        line.read()
    }

    #[test]
    fn what_is_long_is_left_to_who_waits_for_it_and_what_nobody_waits_for_is_dropped() {
        let long = "x".repeat(LONG);
        assert!(matches!(
            read(r#"{"method":"notifications/progress","params":{}}"#),
            LineRead::Message(Incoming::Told { .. })
        ));
        let answer = format!(r#"{{"id":7,"result":{{"content":["{long}"]}}}}"#);
        match read(&answer) {
            LineRead::Long(came) => {
                assert_eq!((came.id, came.skimmed), (7, Skimmed::Result));
                assert_eq!(came.bytes.len(), answer.len());
                assert!(!came.is_larger_than(LONG) && came.is_larger_than(0));
            }
            other => panic!("{other:?}"),
        }
        for nothing in [
            format!(r#"{{"method":"notifications/progress","params":{{"a":"{long}"}}}}"#),
            format!(r#"{{"id":7,"method":"ping","params":{{"a":"{long}"}}}}"#),
            format!(r#"{{"id":7,"method":"x","result":"{long}"}}"#),
            format!(r#"{{"id":"7","result":"{long}"}}"#),
            format!(r#"{{"result":"{long}"}}"#),
            format!("{long}x"),
            " ".to_owned(),
        ] {
            let came = read(&nothing);
            let begins: String = nothing.chars().take(40).collect();
            assert!(matches!(came, LineRead::Nothing), "{begins}");
        }
        for odd in ["oops", &long] {
            assert!(matches!(read(odd), LineRead::NoMessage(bytes) if bytes == odd.len()));
        }
    }
}

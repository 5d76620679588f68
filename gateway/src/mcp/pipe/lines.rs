//! Lines of bounded length from a stream of bytes. One that is longer is passed over without being kept.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// What stands on a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// This, without its end.
    Whole(Bytes),
    /// More bytes than may be.
    TooLong,
}

/// The lines of a stream.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    longest: usize,
    /// What is known of the line that is being read.
    begun: Vec<u8>,
    is_too_long: bool,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    /// Of this stream, each with so many bytes at most.
    pub(super) const fn new(input: R, longest: usize) -> Self {
        Self {
            input,
            longest,
            begun: Vec::new(),
            is_too_long: false,
        }
    }

    /// The next line; `None`: the stream has ended. What stands behind the last line end is a line, too. Cancel-safe: what was read stays.
    ///
    /// # Errors
    ///
    /// The stream cannot be read.
    pub(super) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let read = self.input.fill_buf().await?;
            if read.is_empty() {
                let is_line = self.is_too_long || !self.begun.is_empty();
                return Ok(is_line.then(|| self.end()));
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let piece = &read[..end.unwrap_or(read.len())];
            self.is_too_long |= self.begun.len() + piece.len() > self.longest;
            if self.is_too_long {
                self.begun = Vec::new();
            } else {
                self.begun.extend_from_slice(piece);
            }
            let used = piece.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                return Ok(Some(self.end()));
            }
        }
    }

    fn end(&mut self) -> Line {
        let begun = std::mem::take(&mut self.begun);
        if std::mem::take(&mut self.is_too_long) {
            Line::TooLong
        } else {
            Line::Whole(begun.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::BufReader;

    use super::*;

    async fn lines(text: &str, buffer: usize) -> Vec<Option<String>> {
        let input = BufReader::with_capacity(buffer, text.as_bytes());
        let mut lines = Lines::new(input, 5);
        let mut read = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            read.push(match line {
                Line::Whole(line) => Some(String::from_utf8(line.to_vec()).unwrap()),
                Line::TooLong => None,
            });
        }
        read
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_passed_over_and_the_next_is_read() {
        let some = |text: &str| Some(text.to_owned());
        for buffer in [1, 2, 3, 7, 100] {
            assert_eq!(
                lines("a\n\n12345\n123456\n1234567890123\nb\r\nlast", buffer).await,
                [
                    some("a"),
                    some(""),
                    some("12345"),
                    None,
                    None,
                    some("b\r"),
                    some("last")
                ]
            );
            assert_eq!(lines("1234567", buffer).await, [None]);
            assert_eq!(lines("", buffer).await, [] as [Option<String>; 0]);
        }
    }
}

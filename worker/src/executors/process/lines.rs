//! Lines out of the bytes of a pipe. Pure, and bounded: a line that is too long is dropped.

/// Cuts bytes into lines.
#[derive(Debug)]
pub(super) struct Lines {
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
    /// The most bytes of a line.
    most: usize,
    /// Whether the line that has begun is too long.
    is_dropped: bool,
}

impl Lines {
    /// With lines of at most so many bytes.
    pub(super) const fn up_to(most: usize) -> Self {
        Self {
            begun: Vec::new(),
            most,
            is_dropped: false,
        }
    }

    /// Gives each line that is complete to `each`, without its end.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8])) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            if self.begun.is_empty() && !self.is_dropped && line.len() <= self.most {
                each(line);
                continue;
            }
            self.begin(line);
            self.finish(&mut each);
        }
        self.begin(bytes);
    }

    /// Gives the last line to `each`, which nothing has ended.
    pub(super) fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.is_dropped && !self.begun.is_empty() {
            each(&self.begun);
        }
        self.begun.clear();
        self.is_dropped = false;
    }

    fn begin(&mut self, bytes: &[u8]) {
        if self.is_dropped || self.begun.len() + bytes.len() > self.most {
            self.is_dropped = true;
            // A long line is rare; its room is not kept.
            self.begun = Vec::new();
        } else {
            self.begun.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(most: usize, chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut lines, mut found) = (Lines::up_to(most), Vec::new());
        for chunk in chunks {
            lines.feed(chunk, |line| found.push(line.to_vec()));
        }
        lines.finish(|line| found.push(line.to_vec()));
        found
    }

    #[test]
    fn a_line_that_is_too_long_is_dropped_and_those_around_it_are_not() {
        let found = lines(3, &[b"abc\nabcd\nab", b"cd\n\nxyz\nabc", b"d", b"\nlast"]);
        assert_eq!(found, [&b"abc"[..], b"", b"xyz"]);
        assert_eq!(lines(4, &[b"a\nlast"]), [&b"a"[..], b"last"]);
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_the_bytes_are_cut(
            text in "[a-c\n]{0,60}",
            cuts in prop::collection::vec(0_usize..60, 0..6),
        ) {
            let mut ends: Vec<usize> = cuts.into_iter().filter(|cut| *cut < text.len()).collect();
            ends.sort_unstable();
            ends.push(text.len());
            let mut from = 0;
            let chunks: Vec<&[u8]> = ends
                .into_iter()
                .map(|end| &text.as_bytes()[std::mem::replace(&mut from, end)..end])
                .collect();
            let mut whole: Vec<&str> = text.split('\n').collect();
            if whole.last() == Some(&"") {
                whole.pop();
            }
            whole.retain(|line| line.len() <= 5);
            let found = lines(5, &chunks);
            let found: Vec<&str> = found.iter().map(|line| std::str::from_utf8(line).unwrap()).collect();
            prop_assert_eq!(found, whole);
        }
    }
}

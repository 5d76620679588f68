//! An answer that comes as a stream of events (`text/event-stream`): `output` has a part, `result` has the answer. Pure, and
//! bounded: of what is too long only a beginning is kept.

use std::time::Duration;

use fleet::wire::part::JSON_MAX;

use crate::executors::mcp::skim::Skim;

/// The most bytes of a field's name and of an event's; none that counts is as long.
const NAME_MAX: usize = 16;
/// The most bytes of an event's id that is kept.
const ID_MAX: usize = 1024;
/// How a line of data begins.
const DATA: &[u8] = b"data:";

/// Reads such a stream.
#[derive(Debug)]
pub(super) struct EventStream(Events);

/// The answer of a tool that streams.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StreamedResult {
    /// What the body would have been.
    pub(super) body: Vec<u8>,
    /// Whether bytes of it were left out.
    pub(super) is_cut: bool,
}

impl EventStream {
    /// With answers of at most so many bytes.
    pub(super) fn up_to(output_limit: usize) -> Self {
        Self(Events::up_to(output_limit))
    }

    /// Reads on, and gives the data of each `output` to `each`. Returns the answer as soon as it is complete; what follows it
    /// does not count.
    pub(super) fn feed(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> Option<StreamedResult> {
        self.0.feed(bytes, |event| {
            let StreamEvent {
                name, data, is_cut, ..
            } = event;
            match (&name[..], data) {
                (b"output", Some(part)) if !is_cut => {
                    each(&part);
                    None
                }
                (b"result", data) => Some(StreamedResult {
                    body: data.unwrap_or_default(),
                    is_cut,
                }),
                _others => None,
            }
        })
    }
}

/// Reads a stream of events, whatever they mean.
#[derive(Debug)]
pub(in crate::executors) struct Events {
    /// The most bytes of data that are kept.
    most: usize,
    line: Vec<u8>,
    /// Whether bytes of the line were left out.
    is_cut: bool,
    /// Whether the last byte was CR: an LF behind it ends nothing.
    after_cr: bool,
    event: StreamEvent,
    /// Whether data are skimmed, as the answers of MCP servers are.
    skims: bool,
    /// How many bytes of the line came.
    line_seen: usize,
    place: StreamPlace,
}

/// Where a reader of a stream is, and when it may come back there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::executors) struct StreamPlace {
    /// The id of the last event that has come completely: what comes again begins behind it. Empty: there is none.
    pub(in crate::executors) id: Vec<u8>,
    /// The id that the next event to be complete leaves.
    next_id: Vec<u8>,
    /// How long the server wants a reader to wait before it comes back.
    pub(in crate::executors) pause: Option<Duration>,
}

/// An event.
#[derive(Debug, Default)]
pub(in crate::executors) struct StreamEvent {
    pub(in crate::executors) name: Vec<u8>,
    pub(in crate::executors) data: Option<Vec<u8>>,
    /// Whether bytes of its data were left out.
    pub(in crate::executors) is_cut: bool,
    /// What its data are, all of them.
    pub(in crate::executors) skim: Skim,
}

impl Events {
    /// With data of at most so many bytes, or of a part.
    pub(in crate::executors) fn up_to(most: usize) -> Self {
        Self {
            most: most.max(JSON_MAX),
            line: Vec::new(),
            is_cut: false,
            after_cr: false,
            event: StreamEvent::default(),
            skims: false,
            line_seen: 0,
            place: StreamPlace::default(),
        }
    }

    /// Where the reader is.
    pub(in crate::executors) const fn place(&self) -> &StreamPlace {
        &self.place
    }

    /// Goes on at the beginning of another stream, which continues the one that broke off: what had not ended of that is dropped.
    pub(in crate::executors) fn continued(self) -> Self {
        let Self {
            most, skims, place, ..
        } = self;
        let next_id = place.id.clone();
        Self {
            skims,
            place: StreamPlace { next_id, ..place },
            ..Self::up_to(most)
        }
    }

    /// The same, where data are messages that are skimmed: what was left out of them is known all the same.
    pub(in crate::executors) fn skimming(most: usize) -> Self {
        Self {
            skims: true,
            ..Self::up_to(most)
        }
    }

    /// Reads on, and gives each event to `each` until that returns something; what follows does not count.
    pub(in crate::executors) fn feed<T>(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(StreamEvent) -> Option<T>,
    ) -> Option<T> {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            self.add(&rest[..end.unwrap_or(rest.len())]);
            let end = end?;
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            if let Some(found) = self.end_line().and_then(&mut each) {
                return Some(found);
            }
        }
        None
    }

    fn add(&mut self, bytes: &[u8]) {
        let room = (self.most + NAME_MAX).saturating_sub(self.line.len());
        self.is_cut |= bytes.len() > room;
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if self.skims {
            // The name of the field is no part of its value.
            let passed = DATA.len().saturating_sub(self.line_seen).min(bytes.len());
            self.line_seen += bytes.len();
            if self.line.starts_with(DATA) {
                self.event.skim.feed(&bytes[passed..]);
            }
        }
    }

    /// The event that has ended with this line, if one has.
    fn end_line(&mut self) -> Option<StreamEvent> {
        let is_cut = std::mem::take(&mut self.is_cut);
        self.line_seen = 0;
        if self.line.is_empty() {
            // Only now: of an event that breaks off, its id has been read and its data have not.
            self.place.id.clone_from(&self.place.next_id);
            return Some(std::mem::take(&mut self.event));
        }
        let line = self
            .line
            .strip_prefix(b"\xef\xbb\xbf")
            .unwrap_or(&self.line);
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let event = &mut self.event;
        match field {
            b"event" => event.name = value[..value.len().min(NAME_MAX)].to_vec(),
            b"data" => {
                let data = match &mut event.data {
                    Some(data) => {
                        data.push(b'\n');
                        data
                    }
                    none => none.insert(Vec::new()),
                };
                let room = (self.most + 1).saturating_sub(data.len());
                event.is_cut |= is_cut || value.len() > room;
                data.extend_from_slice(&value[..value.len().min(room)]);
            }
            // One that is too long to be kept is none, for half of an id names another place.
            b"id" if !value.contains(&0) => {
                let fits = !is_cut && value.len() <= ID_MAX;
                self.place.next_id = if fits { value.to_vec() } else { Vec::new() };
            }
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let digits = str::from_utf8(value).unwrap_or_default();
                let millis = digits.parse().unwrap_or(u64::MAX);
                self.place.pause = Some(Duration::from_millis(millis));
            }
            _comments_and_other_fields => {}
        }
        self.line.clear();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts and the answer, fed in chunks of this size.
    fn read(stream: &[u8], chunk: usize) -> (Vec<String>, Option<StreamedResult>) {
        let (mut events, mut parts) = (EventStream::up_to(100), Vec::new());
        for bytes in stream.chunks(chunk) {
            let text = |part: &[u8]| parts.push(String::from_utf8_lossy(part).into_owned());
            if let Some(result) = events.feed(bytes, text) {
                return (parts, Some(result));
            }
        }
        (parts, None)
    }

    fn whole(body: &str) -> Option<StreamedResult> {
        Some(StreamedResult {
            body: body.as_bytes().to_vec(),
            is_cut: false,
        })
    }

    #[test]
    fn a_stream_is_read_however_its_lines_end_and_however_it_is_cut() {
        for end in ["\n", "\r\n", "\r"] {
            let lines = [
                "\u{feff}: hello",
                "event: output",
                "data: {\"text\":",
                "data: \"a\"}",
                "",
                "event:output",
                "data:b",
                "id: 7",
                "",
                "data: of no name",
                "",
                "event: other",
                "data: x",
                "",
                "retry: 1",
                "event: output",
                "",
                "event: result",
                "data: {}",
                "",
                "event: result",
                "data: late",
                "",
            ];
            let stream = lines.map(|line| format!("{line}{end}")).concat();
            for chunk in [1, 2, 3, 7, 1_000] {
                let (parts, result) = read(stream.as_bytes(), chunk);
                assert_eq!(parts, ["{\"text\":\n\"a\"}", "b"], "{end:?} {chunk}");
                assert_eq!(result, whole("{}"));
            }
        }
    }

    #[test]
    fn an_answer_counts_only_when_it_is_complete() {
        for stream in [
            &b""[..],
            b"event: result\ndata: {}",
            b"event: result\ndata: {}\n",
            b"data: {}\n\n",
            b"event: results\ndata: {}\n\n",
            b"{}\n\n",
            b"\xff\xfe\0\n\n",
        ] {
            assert_eq!(read(stream, 1_000), (vec![], None), "{stream:?}");
        }
        assert_eq!(read(b"event: result\n\n", 5).1, whole(""));
        assert_eq!(read(b"data: 1\nevent: result\n\n", 5).1, whole("1"));
    }

    #[test]
    fn a_stream_is_taken_up_behind_its_last_event_that_was_complete() {
        let long = "x".repeat(ID_MAX + 1);
        for (stream, id, pause) in [
            ("id: a\nretry: 50\ndata: \n\n", "a", Some(50)),
            ("id: a\ndata: 1\n\nid: b\ndata: 2\n", "a", None),
            ("id: a\n\ndata: 1\n\n", "a", None),
            ("id: a\n\nid\n\n", "", None),
            ("id: a\n\nid: b\0c\n\n", "a", None),
            (&format!("id: a\n\nid: {long}\n\n"), "", None),
            (
                "id: a\r\n\r\nretry: x\r\nretry: -1\r\nretry:\r\n",
                "a",
                None,
            ),
            ("retry: 99999999999999999999\n", "", Some(u64::MAX)),
        ] {
            for chunk in [1, 3, 10_000] {
                let mut events = Events::up_to(100);
                for bytes in stream.as_bytes().chunks(chunk) {
                    assert_eq!(events.feed(bytes, |_| None::<()>), None);
                }
                let place = events.continued().place().clone();
                let found = (String::from_utf8(place.id).unwrap(), place.pause);
                let expected = (id.to_owned(), pause.map(Duration::from_millis));
                assert_eq!(found, expected, "{stream:?} {chunk}");
            }
        }
        let mut events = Events::up_to(100);
        assert_eq!(
            events.feed(b"id: a\ndata: 1\n\nid: b\ndata: half", |_| None::<()>),
            None
        );
        let mut events = events.continued();
        let read = events.feed(b"data: whole\n\n", |event| event.data);
        assert_eq!(read.as_deref(), Some(&b"whole"[..]));
        assert_eq!(events.place().id, b"a", "half an event leaves no id");
    }

    #[test]
    fn what_is_too_long_is_cut_and_forgotten_and_the_rest_is_read() {
        let long = "x".repeat(JSON_MAX + 100);
        let stream = format!(
            "event: output\ndata: {long}\n\nevent: output\ndata: y\n\nevent: result\ndata: {long}\n\n"
        );
        let (parts, result) = read(stream.as_bytes(), 10_000);
        assert_eq!(parts, ["y"]);
        let result = result.unwrap();
        assert!(result.is_cut && result.body.len() > 100);
        let many = format!("event: output\n{}\n", "data: 0123456789\n".repeat(100_000));
        let mut events = EventStream::up_to(100);
        assert_eq!(
            events.feed(many.as_bytes(), |_| panic!("it was too long")),
            None
        );
        let huge = vec![b'z'; 10_000_000];
        assert_eq!(events.feed(&huge, |_| panic!("nothing has ended")), None);
        assert!(events.0.line.len() <= JSON_MAX + NAME_MAX);
    }
}

//! The bytes of both ends, cut into messages and the rest: a line of words and, after some lines, as many bytes as they say.

use std::ops::Range;

use bytes::Bytes;
use serde_json::Value;

/// A line is never longer, unless it is not NATS's.
const LINE_MAX: usize = 256 * 1024;
/// Behind a payload.
const END: &[u8] = b"\r\n";
/// The least that headers are: their version, and an empty line.
const HEADERS_MIN: usize = 12;

/// What the bytes begin with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Spoken<'a> {
    /// A message.
    Message(Envelope<'a>),
    /// What the server says of itself: a line of so many bytes.
    Info(usize),
    /// A line of so many bytes that belongs to no message.
    Rest(usize),
    /// Not enough of it is here.
    Unfinished,
    /// This is not NATS's protocol.
    Nonsense,
}

/// What is known of a message before it is all here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Envelope<'a> {
    /// Whether it goes to the server.
    pub(super) to_server: bool,
    /// Where it goes.
    pub(super) subject: &'a str,
    /// Where its answer goes.
    pub(super) reply: Option<&'a str>,
    /// Whether it is a word of the server's own, and no message.
    pub(super) is_status: bool,
    /// How long it is, from its line to its end.
    pub(super) length: usize,
}

/// Reads what the bytes begin with.
pub(super) fn read(bytes: &[u8]) -> Spoken<'_> {
    let Some(end) = bytes.iter().take(LINE_MAX).position(|byte| *byte == b'\n') else {
        return if bytes.len() < LINE_MAX {
            Spoken::Unfinished
        } else {
            Spoken::Nonsense
        };
    };
    let (line, payload) = bytes.split_at(end + 1);
    let Ok(text) = str::from_utf8(line) else {
        return Spoken::Nonsense;
    };
    let mut words = text.split_ascii_whitespace();
    let verb = words.next().unwrap_or_default();
    let is = |verbs: [&str; 2]| verbs.iter().any(|one| verb.eq_ignore_ascii_case(one));
    let (to_server, to_client) = (is(["PUB", "HPUB"]), is(["MSG", "HMSG"]));
    if !to_server && !to_client {
        return if is(["INFO", "INFO"]) {
            Spoken::Info(line.len())
        } else {
            Spoken::Rest(line.len())
        };
    }
    let with_headers = is(["HPUB", "HMSG"]);
    let words: Vec<&str> = words.collect();
    // Subject, then the subscription's number in what the server says, then perhaps an inbox, then one length or two.
    let before = if to_client { 2 } else { 1 };
    let lengths = if with_headers { 2 } else { 1 };
    let reply = match words.len().checked_sub(before + lengths) {
        Some(0) => None,
        Some(1) => Some(words[before]),
        _fewer_or_more => return Spoken::Nonsense,
    };
    let Some(Ok(count)) = words.last().map(|count| count.parse::<u32>()) else {
        return Spoken::Nonsense;
    };
    if with_headers && payload.len() < HEADERS_MIN {
        return Spoken::Unfinished;
    }
    Spoken::Message(Envelope {
        to_server,
        subject: words[0],
        reply,
        is_status: to_client && with_headers && payload.starts_with(b"NATS/1.0 "),
        length: line.len() + count as usize + END.len(),
    })
}

/// What the server says of itself, without the ways around the wire to it and to its neighbours. `None`: it names none.
pub(super) fn without_ways_around(line: &[u8]) -> Option<Bytes> {
    let json = line.get(json_of(line)?)?;
    let mut info: Value = serde_json::from_slice(json).ok()?;
    let said = info.as_object_mut()?;
    let named = ["connect_urls", "ws_connect_urls"].map(|name| said.remove(name).is_some());
    named
        .contains(&true)
        .then(|| Bytes::from(format!("INFO {info}\r\n")))
}

fn json_of(line: &[u8]) -> Option<Range<usize>> {
    let begin = line.iter().position(|byte| *byte == b'{')?;
    let end = line.iter().rposition(|byte| *byte == b'}')?;
    Some(begin..end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &[u8]) -> Envelope<'_> {
        match read(bytes) {
            Spoken::Message(envelope) => envelope,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn messages_are_read_in_both_directions() {
        let plain = message(b"PUB a.b 5\r\nhello\r\n");
        assert_eq!(
            (plain.subject, plain.reply, plain.length),
            ("a.b", None, 18)
        );
        let asking = message(b"pub a.b\t_INBOX.1  0\r\n\r\n");
        assert_eq!((asking.reply, asking.to_server), (Some("_INBOX.1"), true));
        let headed = b"HPUB a.b _INBOX.1 12 17\r\nNATS/1.0\r\n\r\nhello\r\n";
        assert_eq!(message(headed).length, headed.len());
        let told = message(b"MSG a.b 9 _INBOX.1 5\r\n");
        assert_eq!(
            (told.subject, told.reply, told.to_server),
            ("a.b", Some("_INBOX.1"), false)
        );
        assert_eq!(message(b"MSG a.b 9 5\r\n").reply, None);
    }

    #[test]
    fn a_status_is_nobodys_message() {
        let status = b"HMSG _INBOX.1 9 16 16\r\nNATS/1.0 503\r\n\r\n\r\n";
        assert!(message(status).is_status);
        let headed = b"HMSG _INBOX.1 9 12 12\r\nNATS/1.0\r\n\r\n\r\n";
        assert!(!message(headed).is_status);
        assert_eq!(read(&headed[..26]), Spoken::Unfinished);
    }

    #[test]
    fn the_rest_is_passed_on_by_the_line() {
        assert_eq!(read(b"PING\r\nPUB"), Spoken::Rest(6));
        assert_eq!(read(b"SUB a 1\r\n"), Spoken::Rest(9));
        assert_eq!(read(b"+OK\r\n"), Spoken::Rest(5));
        assert_eq!(read(b"INFO {}\r\n"), Spoken::Info(9));
        assert_eq!(read(b"PIN"), Spoken::Unfinished);
        assert_eq!(read(b"PUB a\r\n"), Spoken::Nonsense);
    }

    #[test]
    fn a_server_names_no_way_around_the_wire() {
        let info = b"INFO {\"max_payload\":9,\"connect_urls\":[\"10.0.0.1:4222\"]}\r\n";
        let changed = without_ways_around(info).unwrap();
        assert_eq!(&changed[..], b"INFO {\"max_payload\":9}\r\n");
        assert_eq!(without_ways_around(&changed), None);
    }
}

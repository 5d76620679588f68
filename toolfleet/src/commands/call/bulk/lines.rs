//! The lines of a file of calls, one after the other, each made ready to be an element of a batch.

use std::{
    fmt,
    io::{BufRead, Read},
};

use anyhow::Context;
use fleet::{
    ids::{IdempotencyKey, ToolName},
    wire::code::Code,
};
use serde::de::{Deserialize, IgnoredAny, MapAccess, Visitor};
use sha2::{Digest, Sha256};

/// The most bytes of one line.
const LINE_MAX: usize = 300 * 1024;
/// The most characters of a prefix; at most 40 more follow.
pub(super) const PREFIX_MAX: usize = 200;

/// Whether a line can be sent.
pub(super) enum FileLine {
    /// It can be sent.
    Fit(SendableLine),
    /// It would spoil the others of its batch, or is too long for any batch.
    Unfit {
        number: u64,
        code: Code,
        what: String,
    },
}

/// A line that can be an element of a batch.
pub(super) struct SendableLine {
    /// From 1.
    pub(super) number: u64,
    /// The object, with the members that it lacked.
    pub(super) text: String,
    /// Its own key, or the one that was made for it.
    pub(super) key: Option<String>,
}

/// Reads lines one by one: only one is in memory.
pub(super) struct CallLines<'a> {
    reader: Box<dyn BufRead>,
    tool: Option<&'a ToolName>,
    prefix: &'a IdempotencyKey,
    number: u64,
    bytes: u64,
}

impl<'a> CallLines<'a> {
    pub(super) fn new(
        reader: Box<dyn BufRead>,
        tool: Option<&'a ToolName>,
        prefix: &'a IdempotencyKey,
    ) -> Self {
        Self {
            reader,
            tool,
            prefix,
            number: 0,
            bytes: 0,
        }
    }

    /// How many bytes of the file were read.
    pub(super) const fn bytes_read(&self) -> u64 {
        self.bytes
    }

    /// The next line that is not empty; `None` at the end.
    pub(super) fn next_line(&mut self) -> anyhow::Result<Option<FileLine>> {
        loop {
            let mut line = Vec::new();
            let limit = LINE_MAX as u64 + 1;
            let read = self
                .reader
                .by_ref()
                .take(limit)
                .read_until(b'\n', &mut line);
            let read = read.context("read the file")?;
            if read == 0 {
                return Ok(None);
            }
            self.bytes += read as u64;
            self.number += 1;
            let number = self.number;
            if line.len() > LINE_MAX {
                self.skip_rest(&line)?;
                let what = format!("the line has more than {LINE_MAX} bytes");
                let code = Code::PayloadTooLarge;
                return Ok(Some(FileLine::Unfit { number, code, what }));
            }
            let line = line.trim_ascii();
            if !line.is_empty() {
                return Ok(Some(self.made_ready(line)));
            }
        }
    }

    fn skip_rest(&mut self, begun: &[u8]) -> anyhow::Result<()> {
        let mut ended = begun.ends_with(b"\n");
        while !ended {
            let rest = self.reader.fill_buf().context("read the file")?;
            let (used, found) = match rest.iter().position(|byte| *byte == b'\n') {
                Some(at) => (at + 1, true),
                None => (rest.len(), rest.is_empty()),
            };
            self.reader.consume(used);
            self.bytes += used as u64;
            ended = found;
        }
        Ok(())
    }

    /// Makes a line ready. The dispatcher reports everything that is wrong with it beyond not being an object.
    fn made_ready(&self, line: &[u8]) -> FileLine {
        let number = self.number;
        let Ok(text) = std::str::from_utf8(line) else {
            let what = "the line is not UTF-8".to_owned();
            let code = Code::InvalidUnicode;
            return FileLine::Unfit { number, code, what };
        };
        let members: Members = match serde_json::from_str(text) {
            Ok(members) => members,
            Err(problem) => {
                let code = match problem.classify() {
                    serde_json::error::Category::Data => Code::InvalidArguments,
                    _ => Code::MalformedJson,
                };
                let what = format!("the line is not one JSON object: {problem}");
                return FileLine::Unfit { number, code, what };
            }
        };
        let mut added = Vec::new();
        let key = match members.key {
            Some(own) => own,
            None => {
                let key = self.key_of(text);
                added.push(format!("\"idempotency_key\":\"{key}\""));
                Some(key)
            }
        };
        if let (false, Some(tool)) = (members.has_tool, self.tool) {
            added.push(format!("\"tool\":\"{tool}\""));
        }
        let rest = text[1..].trim_start();
        let comma = if added.is_empty() || rest == "}" {
            ""
        } else {
            ","
        };
        let text = format!("{{{}{comma}{rest}", added.join(","));
        FileLine::Fit(SendableLine { number, text, key })
    }

    /// From its place and its text: two equal lines are two calls, and the same line is always the same call.
    fn key_of(&self, text: &str) -> String {
        let tool = self.tool.map_or("", ToolName::as_str);
        let digest = Sha256::new()
            .chain_update(tool)
            .chain_update([0])
            .chain_update(text)
            .finalize();
        let hash: String = digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        // The prefix may contain characters that a JSON string must not.
        let prefix = self.prefix.as_str().replace(['"', '\\'], "_");
        format!("{prefix}-{}-{hash}", self.number)
    }
}

/// What must be known of an object before it is sent.
#[derive(Default)]
struct Members {
    /// The outer `None`: the object has no member `key`. The inner one: the key is null, or no text.
    key: Option<Option<String>>,
    has_tool: bool,
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Members::default();
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "idempotency_key" => {
                            let value: &serde_json::value::RawValue = map.next_value()?;
                            members.key = Some(serde_json::from_str(value.get()).ok());
                        }
                        name => {
                            members.has_tool |= name == "tool";
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(members)
            }
        }

        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn read(file: &str, tool: Option<&str>) -> Vec<FileLine> {
        let prefix = "run\"1".parse().unwrap();
        let tool = tool.map(|tool| tool.parse().unwrap());
        let reader = Box::new(Cursor::new(file.as_bytes().to_vec()));
        let mut lines = CallLines::new(reader, tool.as_ref(), &prefix);
        let mut all = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            all.push(line);
        }
        assert_eq!(lines.bytes_read(), file.len() as u64);
        all
    }

    fn fit(file: &str, tool: Option<&str>) -> Vec<SendableLine> {
        let fit = read(file, tool).into_iter().filter_map(|line| match line {
            FileLine::Fit(line) => Some(line),
            FileLine::Unfit { .. } => None,
        });
        fit.collect()
    }

    #[test]
    fn a_line_gets_what_it_lacks_and_keeps_every_byte_it_has() {
        let own = r#"{"tool":"t","args":{"n": 9007199254740993.10},"idempotency_key":"k"}"#;
        let lines = fit(&format!("{own}\n{{ \"args\":{{}}}}\n{{}}"), Some("look"));
        assert_eq!(
            (lines[0].text.as_str(), lines[0].key.as_deref()),
            (own, Some("k"))
        );
        for (line, rest) in [(&lines[1], ",\"args\":{}}"), (&lines[2], "}")] {
            let key = line.key.as_deref().unwrap();
            let expected = format!("{{\"idempotency_key\":\"{key}\",\"tool\":\"look\"{rest}");
            assert_eq!(line.text, expected);
        }
    }

    #[test]
    fn a_key_is_of_the_place_and_the_text_and_the_same_every_time() {
        let file = "{\"a\":1}\n\n{\"a\":1}\n{\"a\":2}\n{\"idempotency_key\":null}\n";
        let keys = |file| {
            fit(file, None)
                .into_iter()
                .map(|line| line.key)
                .collect::<Vec<_>>()
        };
        let first = keys(file);
        assert_eq!(first, keys(file));
        assert_eq!(first[3], None, "null asks for none");
        let distinct: std::collections::BTreeSet<_> = first.iter().collect();
        assert_eq!(distinct.len(), 4);
        assert!(
            first[1].as_deref().unwrap().starts_with("run_1-3-"),
            "{first:?}"
        );
        assert!(
            first[0]
                .as_deref()
                .unwrap()
                .parse::<IdempotencyKey>()
                .is_ok()
        );
    }

    #[test]
    fn a_line_that_would_spoil_its_batch_is_not_sent() {
        let long = "x".repeat(LINE_MAX);
        let file =
            format!("{{\"a\":\n7\n{{}} {{}}\n\"{long}{long}\"\n{{}}\n{{\"a\":1e999,\"a\":1}}");
        let lines = read(&file, None);
        let told: Vec<Option<Code>> = lines
            .iter()
            .map(|line| match line {
                FileLine::Fit(_) => None,
                FileLine::Unfit { code, .. } => Some(*code),
            })
            .collect();
        assert_eq!(
            told,
            [
                Some(Code::MalformedJson),
                Some(Code::InvalidArguments),
                Some(Code::MalformedJson),
                Some(Code::PayloadTooLarge),
                None,
                None
            ]
        );
    }
}

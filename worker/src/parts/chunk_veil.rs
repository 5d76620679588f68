//! Masks secrets in the chunks of a model's stream, also where a vendor has cut one in pieces. Pure.
//!
//! A chunk leaves as it came unless a text of its `delta` ends with what may be the beginning of a secret: it waits for the chunk
//! that shows what follows. Where the secret is there, its mask stands in the chunk in which it began.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fleet::wire::chunks::ModelChunk;
use secrecy::SecretString;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use crate::executors::redact::{begun, redact, veiled};

/// The most chunks that wait: nothing that is a secret is cut in more pieces.
const HELD_MAX: usize = 1_024;
/// Members that tell one text of a stream from another.
const PLACES: [&str; 4] = ["index", "output_index", "content_index", "item_id"];
/// Members of a delta that are words of the protocol.
const WORDS: [&str; 2] = ["type", "role"];

/// The chunks that wait.
#[derive(Debug, Default)]
pub(super) struct ChunkVeil {
    held: VecDeque<ModelChunk>,
    /// The number of the first of them.
    first: usize,
    /// The texts whose end may be the beginning of a secret, by where they stand.
    open: BTreeMap<String, OpenText>,
}

/// The end of a text that may be the beginning of a secret.
#[derive(Debug, Default)]
struct OpenText {
    text: String,
    /// Which chunks have it, and how many bytes of it.
    pieces: VecDeque<(usize, usize)>,
}

impl OpenText {
    /// Keeps so many bytes of its end.
    fn keep(&mut self, length: usize) {
        let mut rest = self.text.len() - length;
        self.text.drain(..rest);
        while let Some((_, piece)) = self.pieces.front_mut() {
            if *piece > rest {
                *piece -= rest;
                break;
            }
            rest -= *piece;
            self.pieces.pop_front();
        }
    }
}

impl ChunkVeil {
    /// Takes a chunk, and returns those that may leave now.
    pub(super) fn put(&mut self, chunk: ModelChunk, hidden: &[SecretString]) -> Vec<ModelChunk> {
        if hidden.is_empty() {
            return vec![chunk];
        }
        let chunk = match veiled(chunk.get(), hidden).map(RawValue::from_string) {
            Some(Ok(masked)) => masked.into(),
            Some(Err(_)) | None => chunk,
        };
        let number = self.first + self.held.len();
        let texts = texts(&chunk);
        self.held.push_back(chunk);
        for (place, text) in texts {
            self.follow(place, &text, number, hidden);
        }
        if self.held.len() > HELD_MAX {
            return self.rest();
        }
        let begins = |open: &OpenText| open.pieces.front().map(|(chunk, _)| *chunk);
        let until = self.open.values().filter_map(begins).min();
        let leaving = until.unwrap_or(number + 1) - self.first;
        self.first += leaving;
        self.held.drain(..leaving).collect()
    }

    /// All that waits: nothing follows it.
    pub(super) fn rest(&mut self) -> Vec<ModelChunk> {
        self.open.clear();
        self.first += self.held.len();
        self.held.drain(..).collect()
    }

    /// Goes on with the text at this place.
    fn follow(&mut self, place: String, text: &str, number: usize, hidden: &[SecretString]) {
        let mut open = self.open.remove(&place).unwrap_or_default();
        let is_continued = !open.text.is_empty();
        open.text.push_str(text);
        open.pieces.push_back((number, text.len()));
        if is_continued && let Some(masked) = redact(&open.text, hidden) {
            self.mask(&place, &mut open, masked);
        }
        open.keep(begun(&open.text, hidden));
        if !open.text.is_empty() {
            self.open.insert(place, open);
        }
    }

    /// Puts the masked text into the first of its chunks, and takes what was masked out of the others.
    fn mask(&mut self, place: &str, open: &mut OpenText, masked: String) {
        let mut instead = masked.as_str();
        for (number, length) in &open.pieces {
            let held = number.checked_sub(self.first);
            if let Some(chunk) = held.and_then(|at| self.held.get_mut(at)) {
                rewrite(chunk, place, *length, instead);
            }
            instead = "";
        }
        let first = open.pieces.front().map(|(number, _)| *number);
        open.pieces = first
            .map(|first| (first, masked.len()))
            .into_iter()
            .collect();
        open.text = masked;
    }
}

/// Puts a text in the place of so many bytes at the end of another.
fn rewrite(chunk: &mut ModelChunk, place: &str, length: usize, instead: &str) {
    let Ok(mut value) = serde_json::from_str::<Value>(chunk.get()) else {
        return;
    };
    for (of, text) in texts_of(&mut value) {
        if of == place {
            text.truncate(text.len().saturating_sub(length));
            text.push_str(instead);
        }
    }
    *chunk = to_raw_value(&value).expect("a value is JSON").into();
}

/// The texts of a chunk that go on in others, with where they stand.
fn texts(chunk: &ModelChunk) -> Vec<(String, String)> {
    let mut value = serde_json::from_str(chunk.get()).unwrap_or_default();
    let texts = texts_of(&mut value).into_iter();
    texts.map(|(place, text)| (place, text.clone())).collect()
}

fn texts_of(value: &mut Value) -> Vec<(String, &mut String)> {
    let (mut found, mut known) = (Vec::new(), BTreeSet::new());
    let mut open = vec![(String::new(), false, value)];
    while let Some((mut place, in_delta, value)) = open.pop() {
        match value {
            Value::String(text) if in_delta => {
                // Two of the same place in one chunk are two.
                while !known.insert(place.clone()) {
                    place.push('#');
                }
                found.push((place, text));
            }
            Value::Array(items) => {
                let items = items.iter_mut().enumerate();
                open.extend(items.map(|(at, item)| {
                    let is_placed = item.get("index").is_some();
                    let at = if is_placed {
                        String::new()
                    } else {
                        at.to_string()
                    };
                    (format!("{place}/{at}"), in_delta, item)
                }));
            }
            Value::Object(members) => {
                for name in PLACES {
                    if let Some(at) = members.get(name) {
                        place = format!("{place};{at}");
                    }
                }
                let members = members.iter_mut();
                let members =
                    members.filter(|(name, _)| !in_delta || !WORDS.contains(&name.as_str()));
                open.extend(members.map(|(name, member)| {
                    let in_delta = in_delta || name == "delta";
                    (format!("{place}/{name}"), in_delta, member)
                }));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn chunk(json: &str) -> ModelChunk {
        RawValue::from_string(json.to_owned()).unwrap().into()
    }

    fn content(index: u32, text: &str) -> ModelChunk {
        let choice = json!({"index": index, "delta": {"role": "assistant", "content": text}});
        chunk(&json!({"choices": [choice]}).to_string())
    }

    /// The texts of these choices.
    fn told(chunks: &[ModelChunk]) -> [String; 2] {
        let mut told = [String::new(), String::new()];
        for chunk in chunks {
            let value: Value = serde_json::from_str(chunk.get()).unwrap();
            let choice = &value["choices"][0];
            let index = choice["index"].as_u64().unwrap();
            told[usize::try_from(index).unwrap()] += choice["delta"]["content"].as_str().unwrap();
        }
        told
    }

    #[test]
    fn what_has_no_secret_leaves_as_it_came_and_at_once() {
        let odd = r#"{"n": 1.50, "id":"hunt","choices":[{"index":0,"delta":{"content":"\u00fc hunts"}}]}"#;
        let mut veil = ChunkVeil::default();
        let left = veil.put(chunk(odd), &["hunter/2".into()]);
        assert_eq!(left, [chunk(odd)]);
        let left = veil.put(chunk(odd), &[]);
        assert_eq!(left, [chunk(odd)]);
    }

    #[test]
    fn a_chunk_waits_only_until_the_next_shows_that_it_began_no_secret() {
        let hidden = ["hunter/2".into()];
        let mut veil = ChunkVeil::default();
        assert_eq!(veil.put(content(0, "a hun"), &hidden), []);
        // Of another text it says nothing.
        assert_eq!(veil.put(content(1, "gry"), &hidden), []);
        let left = veil.put(content(0, "gry man"), &hidden);
        assert_eq!(told(&left), ["a hungry man", "gry"]);
        assert_eq!(veil.put(content(0, "a hun"), &hidden), []);
        assert_eq!(told(&veil.rest()), ["a hun", ""]);
    }

    #[test]
    fn a_secret_is_masked_by_every_protocol() {
        for (pieces, masked) in [
            (
                [
                    r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"x hunt"}}"#,
                    r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"er/2 y"}}"#,
                ],
                "x [secret] y",
            ),
            (
                [
                    r#"{"type":"response.output_text.delta","item_id":"m","delta":"hunter"}"#,
                    r#"{"type":"response.output_text.delta","item_id":"m","delta":"/2"}"#,
                ],
                "[secret]",
            ),
            (
                [
                    r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"hunter/"}},{"index":2,"id":"x"}]}}]}"#,
                    r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"2."}}]}}]}"#,
                ],
                "[secret].",
            ),
        ] {
            let mut veil = ChunkVeil::default();
            let hidden = ["hunter/2".into()];
            let mut left = veil.put(chunk(pieces[0]), &hidden);
            left.extend(veil.put(chunk(pieces[1]), &hidden));
            left.extend(veil.rest());
            assert_eq!(left.len(), 2);
            let all = left.iter().map(ModelChunk::get).collect::<String>();
            assert!(all.contains(&format!("\"{masked}\"")), "{all}");
            assert!(!all.contains("hunt") && !all.contains("er/2"), "{all}");
        }
    }

    proptest! {
        /// However a text is cut, what leaves is the text with its secrets masked, in as many chunks.
        #[test]
        fn the_text_is_masked_as_a_whole(pieces in prop::collection::vec((0_u32..2, "[a-c]{0,4}"), 0..30)) {
            let hidden = ["abcabb".into()];
            let (mut veil, mut left, mut whole) = (ChunkVeil::default(), Vec::new(), [String::new(), String::new()]);
            for (index, text) in &pieces {
                whole[usize::try_from(*index).unwrap()] += text;
                left.extend(veil.put(content(*index, text), &hidden));
            }
            left.extend(veil.rest());
            prop_assert_eq!(left.len(), pieces.len());
            prop_assert_eq!(told(&left), whole.map(|text| text.replace("abcabb", "[secret]")));
        }
    }
}

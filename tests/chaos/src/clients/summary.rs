//! The outcomes of a run, as its clients saw them.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// What came of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Calls that were begun.
    pub calls: u64,
    /// Questions that were asked; each call of a batch is one.
    pub operations: u64,
    /// Answers by the state they tell, and the code of the error if there is one: `failed timeout`.
    pub answers: BTreeMap<String, u64>,
    /// Questions without an answer.
    pub unknown: u64,
    /// Answers that contradict the contract whatever faults there are. Each of them is a breach.
    pub surprises: Vec<String>,
    /// Surprises that are not listed, because there are so many.
    pub more_surprises: u64,
}

/// How many surprises are told in words.
const SURPRISES_MAX: usize = 100;
const TERMINAL: [&str; 4] = ["succeeded", "failed", "cancelled", "expired"];

/// What is known so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) summary: Summary,
    /// Of every call that was seen at its end: the first answer's digest.
    ends: HashMap<String, [u8; 32]>,
}

impl Tally {
    pub(super) fn answered(&mut self, answer: &Value) {
        let state = answer["state"].as_str().unwrap_or("none");
        let told = match answer["error"]["code"].as_str() {
            Some(code) => format!("{state} {code}"),
            None => state.to_owned(),
        };
        *self.summary.answers.entry(told).or_default() += 1;
    }

    pub(super) fn surprised(&mut self, what: String) {
        if self.summary.surprises.len() < SURPRISES_MAX {
            self.summary.surprises.push(what);
        } else {
            self.summary.more_surprises += 1;
        }
    }

    /// Holds the envelope of a call that is over against the first one: they are the same, byte for byte.
    pub(super) fn observed(&mut self, answer: &Value, bytes: &[u8]) {
        let (Some(call), Some(_)) = (answer["call_id"].as_str(), answer.get("outcome")) else {
            return;
        };
        if !is_terminal(answer) {
            return;
        }
        let digest = digest(bytes);
        let first = *self.ends.entry(call.to_owned()).or_insert(digest);
        if first != digest {
            self.surprised(format!(
                "call {call} was over, and has another answer now: {}",
                excerpt(bytes)
            ));
        }
    }
}

/// Whether a call is over, as an answer tells it.
pub(super) fn is_terminal(answer: &Value) -> bool {
    let state = answer["state"].as_str().unwrap_or_default();
    TERMINAL.contains(&state)
}

/// The beginning of an answer, for people.
pub(super) fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(600).collect()
}

/// Of an answer as if it were none to a repetition. Only times follow that word, so the last one is it.
fn digest(bytes: &[u8]) -> [u8; 32] {
    const REPLAYED: &[u8] = b"\"replayed\":true";
    let mut windows = bytes.windows(REPLAYED.len());
    let mut hash = Sha256::new();
    match windows.rposition(|window| window == REPLAYED) {
        Some(at) => {
            hash.update(&bytes[..at]);
            hash.update(b"\"replayed\":false");
            hash.update(&bytes[at + REPLAYED.len()..]);
        }
        None => hash.update(bytes),
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe(tally: &mut Tally, text: &str) {
        tally.observed(&serde_json::from_str(text).unwrap(), text.as_bytes());
    }

    #[test]
    fn an_end_may_differ_in_nothing_but_replayed() {
        let mut tally = Tally::default();
        let end = r#"{"call_id":"a","state":"failed","outcome":"x","result":1.0,"replayed":false}"#;
        observe(&mut tally, &end.replace("failed", "in_doubt"));
        observe(&mut tally, end);
        observe(&mut tally, &end.replace("false", "true"));
        assert_eq!(tally.summary.surprises, Vec::<String>::new());
        observe(&mut tally, &end.replace("1.0", "1.00"));
        assert_eq!(tally.summary.surprises.len(), 1);
    }
}

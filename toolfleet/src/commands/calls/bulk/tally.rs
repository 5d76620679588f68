//! What is to be done, and what was done, in numbers.

use std::{collections::BTreeMap, fmt};

use fleet_history::{
    bulk::{BulkCall, BulkVerb, LeftAlone},
    filter::Filter,
    instant,
};
use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::commands::output;

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands::calls) enum Came {
    /// It was done, or was so before: a word that says which.
    Done(&'static str),
    /// It was refused, with this code.
    Refused(String),
    /// It is left alone after all, for what became known since it was counted.
    Left(LeftAlone),
}

/// Calls that are alike: tool, state, code, and why they are left alone.
type Alike = (String, String, Option<String>, Option<LeftAlone>);

/// What was found.
#[derive(Debug)]
pub(super) struct Plan {
    verb: &'static str,
    span: Vec<String>,
    kinds: BTreeMap<Alike, u64>,
}

impl Plan {
    pub(super) fn new(verb: BulkVerb, filter: &Filter) -> Self {
        let verb = match verb {
            BulkVerb::Cancel => "cancel",
            BulkVerb::Retry { .. } => "retry",
            BulkVerb::Settle => "settle",
            BulkVerb::Discard => "discard",
        };
        let span = filter.since.into_iter().chain(filter.until);
        Self {
            verb,
            span: span.map(instant).collect(),
            kinds: BTreeMap::new(),
        }
    }

    pub(super) fn count(&mut self, call: &BulkCall, why: Option<LeftAlone>) {
        let kind = (
            call.tool.clone(),
            call.state.clone(),
            call.code.clone(),
            why,
        );
        *self.kinds.entry(kind).or_default() += 1;
    }

    /// The calls that are not left alone.
    pub(super) fn to_do(&self) -> u64 {
        self.kinds
            .iter()
            .filter(|((.., why), _)| why.is_none())
            .map(|(_, calls)| calls)
            .sum()
    }

    fn left_alone(&self) -> BTreeMap<&'static str, u64> {
        let mut reasons = BTreeMap::new();
        for ((.., why), calls) in &self.kinds {
            if let Some(why) = why {
                *reasons.entry(why.as_str()).or_default() += calls;
            }
        }
        reasons
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<Vec<String>> = self
            .kinds
            .iter()
            .map(|((tool, state, code, why), calls)| {
                vec![
                    tool.clone(),
                    state.clone(),
                    code.clone().unwrap_or_else(|| "-".to_owned()),
                    calls.to_string(),
                    why.map_or_else(|| self.verb.to_owned(), |why| format!("left alone: {why}")),
                ]
            })
            .collect();
        let headings = ["TOOL", "STATE", "CODE", "CALLS", "THEN"];
        f.write_str(&output::table(&headings, &rows))?;
        let left: u64 = self.left_alone().values().sum();
        writeln!(
            f,
            "accepted {}: {} to {}, {left} left alone",
            self.span.join(" to "),
            self.to_do(),
            self.verb,
        )
    }
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct OfKind<'a> {
            tool: &'a str,
            state: &'a str,
            code: Option<&'a str>,
            calls: u64,
            left_alone: Option<&'static str>,
        }
        let kinds: Vec<OfKind<'_>> = self
            .kinds
            .iter()
            .map(|((tool, state, code, why), calls)| OfKind {
                tool,
                state,
                code: code.as_deref(),
                calls: *calls,
                left_alone: why.map(LeftAlone::as_str),
            })
            .collect();
        let mut plan = serializer.serialize_struct("Plan", 5)?;
        plan.serialize_field("verb", self.verb)?;
        plan.serialize_field("accepted", &self.span)?;
        plan.serialize_field("to_do", &self.to_do())?;
        plan.serialize_field("left_alone", &self.left_alone())?;
        plan.serialize_field("calls", &kinds)?;
        plan.end()
    }
}

/// What became of them.
#[derive(Debug, Default, Serialize)]
pub(super) struct Tally {
    #[serde(rename = "done")]
    good: BTreeMap<&'static str, u64>,
    refused: BTreeMap<String, u64>,
    left_alone: BTreeMap<&'static str, u64>,
    #[serde(rename = "interrupted")]
    pub(super) is_interrupted: bool,
}

impl Tally {
    pub(super) fn count(&mut self, came: Came) {
        match came {
            Came::Done(word) => *self.good.entry(word).or_default() += 1,
            Came::Refused(code) => *self.refused.entry(code).or_default() += 1,
            Came::Left(why) => *self.left_alone.entry(why.as_str()).or_default() += 1,
        }
    }

    pub(super) fn calls(&self) -> u64 {
        let left: u64 = self.left_alone.values().sum();
        self.good.values().sum::<u64>() + self.refused.values().sum::<u64>() + left
    }

    /// It came to its end, and nothing was refused.
    pub(super) fn is_good(&self) -> bool {
        self.refused.is_empty() && !self.is_interrupted
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self
            .good
            .iter()
            .map(|(word, calls)| format!("{calls} {}", word.replace('_', " ")));
        let refused = self
            .refused
            .iter()
            .map(|(code, calls)| format!("{calls} refused: {code}"));
        let left = self
            .left_alone
            .iter()
            .map(|(why, calls)| format!("{calls} left alone: {why}"));
        let mut parts: Vec<String> = parts.chain(refused).chain(left).collect();
        if parts.is_empty() {
            parts.push("nothing was done".to_owned());
        }
        f.write_str(&parts.join(", "))?;
        if self.is_interrupted {
            f.write_str("; interrupted, and up to a hundred more may be done: the same command again goes on")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_told_by_word_and_what_was_refused_by_code() {
        let mut done = Tally::default();
        assert_eq!(done.to_string(), "nothing was done");
        for came in [
            Came::Done("made"),
            Came::Done("made"),
            Came::Done("there_already"),
        ] {
            done.count(came);
        }
        done.count(Came::Left(LeftAlone::RetriedBefore));
        assert!(done.is_good());
        done.count(Came::Refused("tool_retired".to_owned()));
        assert_eq!(
            done.to_string(),
            "2 made, 1 there already, 1 refused: tool_retired, 1 left alone: retried_before"
        );
        assert_eq!((done.calls(), done.is_good()), (5, false));
    }
}

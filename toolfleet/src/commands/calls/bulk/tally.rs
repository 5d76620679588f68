//! What was done with many calls, in numbers.

use std::{collections::BTreeMap, fmt};

use fleet::ids::CallId;
use fleet_history::bulk::LeftAlone;
use serde::Serialize;

use crate::commands::plain::plain;

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands::calls) enum Came {
    /// It was done, or was so before: a word that says which.
    Done(&'static str),
    /// It was refused.
    Refused(RefusedCall),
    /// It is left alone after all, for what became known since it was counted.
    Left(LeftAlone),
}

/// A call that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::commands::calls) struct RefusedCall {
    /// With this code.
    pub(in crate::commands::calls) code: String,
    /// Which one, and why, in words, where they say more than the code.
    pub(in crate::commands::calls) why: Option<(CallId, String)>,
}

impl Came {
    /// Refused with a code that says all.
    pub(in crate::commands::calls) fn refused(code: &str) -> Self {
        let code = code.to_owned();
        Self::Refused(RefusedCall { code, why: None })
    }

    /// Refused as the message says.
    pub(in crate::commands::calls) fn refused_as(call: CallId, code: &str, message: &str) -> Self {
        Self::Refused(RefusedCall {
            code: code.to_owned(),
            why: Some((call, message.to_owned())),
        })
    }
}

/// What became of them.
#[derive(Debug, Default, Serialize)]
pub(super) struct Tally {
    #[serde(rename = "done")]
    good: BTreeMap<&'static str, u64>,
    refused: BTreeMap<String, u64>,
    /// The first one that was refused with a code and another message than those before; at most a few.
    #[serde(rename = "examples")]
    refusals: Vec<Refusal>,
    left_alone: BTreeMap<&'static str, u64>,
    #[serde(rename = "interrupted")]
    pub(super) is_interrupted: bool,
}

/// An example of what was refused.
#[derive(Debug, Serialize)]
struct Refusal {
    code: String,
    call_id: CallId,
    message: String,
}

/// The most examples: each has another code or message.
const EXAMPLES_MAX: usize = 8;

impl Tally {
    pub(super) fn count(&mut self, came: Came) {
        match came {
            Came::Done(word) => *self.good.entry(word).or_default() += 1,
            Came::Refused(refused) => self.refuse(refused),
            Came::Left(why) => *self.left_alone.entry(why.as_str()).or_default() += 1,
        }
    }

    fn refuse(&mut self, RefusedCall { code, why }: RefusedCall) {
        let is_new = |message: &str| {
            let known = |one: &Refusal| one.code == code && one.message == message;
            self.refusals.len() < EXAMPLES_MAX && !self.refusals.iter().any(known)
        };
        if let Some((call_id, message)) = why.filter(|(_, message)| is_new(message)) {
            self.refusals.push(Refusal {
                code: code.clone(),
                call_id,
                message,
            });
        }
        *self.refused.entry(code).or_default() += 1;
    }

    /// Why calls were refused, a line for each example.
    pub(super) fn reasons(&self) -> String {
        let line = |one: &Refusal| {
            let Refusal {
                code,
                call_id,
                message,
            } = one;
            format!("{code}, such as {call_id}: {}\n", plain(message))
        };
        self.refusals.iter().map(line).collect()
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
        done.count(Came::refused("tool_retired"));
        assert_eq!(
            done.to_string(),
            "2 made, 1 there already, 1 refused: tool_retired, 1 left alone: retried_before"
        );
        assert_eq!((done.calls(), done.is_good()), (5, false));
        for message in ["too early", "too early", "settled by ann"] {
            done.count(Came::refused_as(
                CallId(uuid::Uuid::nil()),
                "conflict",
                message,
            ));
        }
        assert_eq!(
            done.reasons(),
            "conflict, such as 00000000-0000-0000-0000-000000000000: too early\n\
             conflict, such as 00000000-0000-0000-0000-000000000000: settled by ann\n"
        );
    }
}

//! What the last attempt of a call came to, as a person looks for it: an error code, or the word for a doubt that is none.

use std::str::FromStr;

use fleet::{taken_back::TakenBack, wire::code::Code};

/// Words of `why` in the view `in_doubt` that are neither codes nor reasons for which the platform takes an attempt back.
const OTHERS: [&str; 5] = [
    "client_silent",
    "completion_silent",
    "lost_writes",
    "not_told",
    "undecided",
];

/// A word that `--last-code` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastCode(&'static str);

impl LastCode {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let codes = Code::ALL.iter().map(|code| code.as_str());
        let lost = [TakenBack::WorkerLost, TakenBack::AttemptOverdue].map(TakenBack::as_str);
        codes.chain(lost).chain(OTHERS).map(Self)
    }

    /// The word.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl FromStr for LastCode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::all().find(|known| known.0 == text);
        found.ok_or_else(|| format!("{text:?} is no code and no word for a doubt"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_and_a_word_for_a_doubt_are_taken_and_nothing_else() {
        for word in ["timeout", "completion_silent", "worker_lost", "cancelled"] {
            assert_eq!(word.parse::<LastCode>().unwrap().as_str(), word);
        }
        assert!("worker_left".parse::<LastCode>().is_err());
        let mut all: Vec<_> = LastCode::all().map(LastCode::as_str).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}

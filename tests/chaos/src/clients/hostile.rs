//! Arguments that no tool may ever see: each is refused at the door, for a reason of its own.

use crate::seed;

/// What is wrong with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hostile {
    Types,
    Depth,
    Nul,
    DuplicateKey,
    HugeNumber,
    LongNumber,
    Truncated,
    Malformed,
}

/// Not JSON by itself, so nothing for an item of a batch.
const ALONE: [Hostile; 2] = [Hostile::Truncated, Hostile::Malformed];
const ANYWHERE: [Hostile; 6] = [
    Hostile::Types,
    Hostile::Depth,
    Hostile::Nul,
    Hostile::DuplicateKey,
    Hostile::HugeNumber,
    Hostile::LongNumber,
];
/// Deeper than the 64 levels that arguments may have.
const LEVELS: usize = 70;
/// Longer than the 64 characters that a number may have.
const DIGITS: usize = 100;

impl Hostile {
    /// What is wrong with the n-th call.
    pub(super) fn drawn(seed: u64, n: u64) -> Self {
        let all: Vec<_> = ANYWHERE.iter().chain(&ALONE).map(|one| (*one, 1)).collect();
        seed::weighted(seed, n, "hostile", &all)
    }

    /// What is wrong with the n-th call, which is one of a batch.
    pub(super) fn drawn_in_batch(seed: u64, n: u64) -> Self {
        seed::weighted(seed, n, "hostile in batch", &ANYWHERE.map(|one| (one, 1)))
    }

    /// The arguments, as text.
    pub(super) fn text(self, n: u64) -> String {
        let with = |value: &str| format!(r#"{{"n":{n},"mode":"ok","extra":{value}}}"#);
        match self {
            Self::Types => r#"{"n":{"not":"a number"},"mode":["ok","slow"]}"#.to_owned(),
            Self::Depth => with(&("[".repeat(LEVELS) + &"]".repeat(LEVELS))),
            Self::Nul => with(r#""zero \u0000 inside""#),
            Self::DuplicateKey => format!(r#"{{"n":{n},"mode":"ok","n":{n}}}"#),
            Self::HugeNumber => with("1e131071"),
            Self::LongNumber => with(&"9".repeat(DIGITS)),
            Self::Truncated => format!(r#"{{"n":{n},"mode":"o"#),
            Self::Malformed => format!(r#"{{"n":{n},'mode':ok}}"#),
        }
    }

    /// The code with which they are refused.
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::Types => "invalid_arguments",
            Self::Depth => "depth_exceeded",
            Self::Nul => "nul_not_allowed",
            Self::DuplicateKey => "duplicate_key",
            Self::HugeNumber => "number_out_of_range",
            Self::LongNumber => "number_too_long",
            Self::Truncated => "truncated_arguments",
            Self::Malformed => "malformed_json",
        }
    }
}

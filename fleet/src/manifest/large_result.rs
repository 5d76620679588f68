//! When an answer is so large that callers get its beginning and its end, and read the rest where they need it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use serde_json::Value;

use super::{problem::Problems, size};
use crate::call::Effect;

/// The name of the tool that reads large results; no other tool may have it.
pub const READ_RESULT: &str = "read_result";

/// When an answer is large, and how much of it callers get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LargeResult {
    /// An answer that has more is large.
    #[serde(default = "LargeResult::default_over")]
    pub over: Threshold,
    /// The most bytes of the answer's text in what callers get, 256B to 64KiB.
    #[serde(default = "LargeResult::default_preview", with = "size")]
    pub preview: usize,
}

/// How much is large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threshold {
    /// So many tokens, by an estimate: one of four ASCII characters, and one of each other one.
    Tokens(usize),
    /// So many bytes.
    Bytes(usize),
}

/// About how many tokens a model makes of a text: one of four ASCII characters, and one of each other one.
fn tokens(text: &str) -> usize {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    let others = text.chars().filter(|c| !c.is_ascii()).count();
    ascii.div_ceil(4) + others
}

impl Threshold {
    const UNIT: &'static str = "tokens";

    /// Whether a text has more.
    pub fn is_below(self, text: &str) -> bool {
        match self {
            Self::Bytes(bytes) => text.len() > bytes,
            // No text has more tokens than bytes, nor fewer than a quarter of them, so few need be counted.
            Self::Tokens(most) => {
                text.len() > most && (text.len() / 4 > most || tokens(text) > most)
            }
        }
    }

    /// The fewest bytes of a text that has more.
    const fn bytes_min(self) -> usize {
        match self {
            Self::Tokens(tokens) => tokens,
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tokens(tokens) => write!(f, "{tokens} {}", Self::UNIT),
            Self::Bytes(bytes) => write!(f, "{bytes}B"),
        }
    }
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let tokens = text.strip_suffix(Self::UNIT).map(str::trim_end);
        let parsed = match tokens {
            Some(digits) => digits.parse().ok().map(Self::Tokens),
            None => size::parse(text).map(Self::Bytes),
        };
        parsed.ok_or_else(|| "it is a size such as 8000 tokens or 32KiB".to_owned())
    }
}

impl Serialize for Threshold {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Threshold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => text.parse().map_err(D::Error::custom),
            Value::Number(bytes) => {
                let bytes = bytes.as_u64().and_then(|bytes| usize::try_from(bytes).ok());
                let bytes = bytes.ok_or_else(|| D::Error::custom("it is a number of bytes"))?;
                Ok(Self::Bytes(bytes))
            }
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                Err(D::Error::custom("it is a text or a number of bytes"))
            }
        }
    }
}

impl LargeResult {
    const PREVIEW_MIN: usize = 256;
    const PREVIEW_MAX: usize = 64 * 1024;

    const fn default_over() -> Threshold {
        Threshold::Tokens(8_000)
    }

    const fn default_preview() -> usize {
        2 * 1024
    }

    pub(super) fn check(&self, effect: Effect, is_sensitive: bool, problems: &mut Problems) {
        if effect == Effect::Transaction {
            problems.add(
                "/large_result",
                "the result of a transaction commits as it is together with its effect; leave large_result out",
            );
        }
        if is_sensitive {
            problems.add(
                "/large_result",
                "what is read of a large result is the answer of another call, where nothing would be masked; leave sensitive \
                 or large_result out",
            );
        }
        if !(Self::PREVIEW_MIN..=Self::PREVIEW_MAX).contains(&self.preview) {
            problems.add(
                "/large_result/preview",
                "it is what callers read at first; write 256B to 64KiB",
            );
        }
        if self.over.bytes_min() < self.preview {
            problems.add(
                "/large_result/over",
                "an answer that is no larger than its preview needs none; write more than preview",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn thresholds_are_read_as_they_are_written() {
        for (text, threshold) in [
            ("8000 tokens", Threshold::Tokens(8_000)),
            ("1tokens", Threshold::Tokens(1)),
            ("32KiB", Threshold::Bytes(32 * 1024)),
        ] {
            let read: Threshold = text.parse().unwrap();
            assert_eq!(read, threshold);
            assert_eq!(read.to_string().parse(), Ok(threshold));
        }
        for wrong in ["", "tokens", "8000", "8k tokens", "-1 tokens", "5 MB"] {
            assert!(wrong.parse::<Threshold>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_character_of_chinese_counts_as_four_of_english() {
        assert_eq!(tokens("abcdefgh"), 2);
        assert_eq!(tokens("天气"), 2);
        assert_eq!(tokens(""), 0);
        assert!(!Threshold::Tokens(2).is_below("abcdefgh"));
        assert!(Threshold::Tokens(2).is_below("abcdefghi"));
        assert!(Threshold::Bytes(5).is_below("天气"));
    }

    proptest! {
        #[test]
        fn what_need_not_be_counted_is_judged_as_if_it_were(text in "[aé天😀]{0,40}", most in 0_usize..50) {
            prop_assert_eq!(Threshold::Tokens(most).is_below(&text), tokens(&text) > most);
        }
    }
}

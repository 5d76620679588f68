//! Flags whose value is a word of a list, a name, or a sentence.

use std::{fmt::Debug, str::FromStr};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use fleet::call::UnknownWord;

/// Reads one of these words; `--help` lists them.
pub(super) fn one_of<W>(
    all: &'static [W],
    as_str: fn(W) -> &'static str,
) -> impl TypedValueParser<Value = W>
where
    W: FromStr<Err = UnknownWord> + Copy + Debug + Send + Sync + 'static,
{
    PossibleValuesParser::new(all.iter().map(|word| as_str(*word)))
        .try_map(|word| word.parse::<W>())
}

/// What a person's name is.
const NAME: &str = "a name has 1 to 128 characters and no control characters";

/// Reads a person's name, for the history.
pub(super) fn name(text: &str) -> Result<String, String> {
    let length = text.chars().count();
    if (1..=128).contains(&length) && !text.chars().any(char::is_control) {
        Ok(text.to_owned())
    } else {
        Err(NAME.to_owned())
    }
}

/// Reads how a person knows something, for the history.
pub(super) fn note(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.chars().count() > 2_000 || text.contains('\0') {
        return Err("a note has 1 to 2000 characters".to_owned());
    }
    Ok(text.to_owned())
}

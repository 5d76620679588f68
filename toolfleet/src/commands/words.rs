//! Flags that take a word of a closed list.

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

//! A variable of the environment whose value is not understood: a configuration error, where a bad flag is a usage error.

use std::error::Error as _;

use clap::{Arg, Command, error::ContextKind, error::ContextValue, error::ErrorKind};

/// The most characters of a value that are shown.
const SHOWN_MAX: usize = 60;

/// What is wrong with a variable, and what to write.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct BadVariable(String);

/// The message for a variable, if the error is about one and not about a flag.
pub(super) fn refusal(problem: &clap::Error, command: &Command) -> Option<BadVariable> {
    if !matches!(
        problem.kind(),
        ErrorKind::ValueValidation | ErrorKind::InvalidValue
    ) {
        return None;
    }
    let text = |kind| match problem.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _absent => None,
    };
    let flag = text(ContextKind::InvalidArg)?.split([' ', '=']).next()?;
    let is_given = std::env::args().any(|given| given.split('=').next() == Some(flag));
    if is_given {
        return None;
    }
    let variable = variable(command, flag.strip_prefix("--")?)?;
    let value: String = text(ContextKind::InvalidValue)?
        .chars()
        .take(SHOWN_MAX)
        .collect();
    let advice = match (problem.source(), problem.get(ContextKind::ValidValue)) {
        (_, Some(ContextValue::Strings(words))) if !words.is_empty() => {
            format!("write one of {}", words.join(", "))
        }
        _ if value.is_empty() => "write something, or unset it".to_owned(),
        (Some(why), _) => advice(&why.to_string()),
        (None, _) => "--help says what may stand there".to_owned(),
    };
    Some(BadVariable(format!("{variable} is {value:?}: {advice}")))
}

/// The advice for a parser's error.
fn advice(why: &str) -> String {
    match why {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "write a whole number".to_owned()
        }
        "number too large to fit in target type" => "write a smaller number".to_owned(),
        "number too small to fit in target type" => "write a larger number".to_owned(),
        "invalid socket address syntax" => {
            "write an address and a port, such as 127.0.0.1:8080".to_owned()
        }
        other => other.to_owned(),
    }
}

/// The variable of a flag of any command.
fn variable(command: &Command, long: &str) -> Option<String> {
    let is_it = |arg: &&Arg| arg.get_long() == Some(long) && arg.get_env().is_some();
    let own = command.get_arguments().find(is_it).and_then(Arg::get_env);
    let own = own.map(|name| name.to_string_lossy().into_owned());
    own.or_else(|| {
        command
            .get_subcommands()
            .find_map(|inner| variable(inner, long))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parser_that_speaks_of_digits_is_put_into_words() {
        assert_eq!(
            advice("invalid digit found in string"),
            "write a whole number"
        );
        assert_eq!(
            advice("30 has no unit; write 30s"),
            "30 has no unit; write 30s"
        );
    }
}

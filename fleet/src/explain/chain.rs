//! An error and its causes on one line, without repetition.

use std::{error::Error, io, iter};

/// The error with its causes on one line: `claim call: connection closed: broken pipe`.
///
/// A cause that the text before already ends with is left out, for some libraries repeat their causes. Of Postgres's answer,
/// the message and the SQLSTATE are shown, not the line of its source; of a system error, the words and not the number.
pub fn chain(problem: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for cause in iter::successors(Some(problem), |&cause| cause.source()) {
        let (told, is_last) = words(cause);
        if told.is_empty() || text.ends_with(&told) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&told);
        if is_last {
            break;
        }
    }
    text
}

/// The text of one error, and whether it includes its causes.
fn words(cause: &(dyn Error + 'static)) -> (String, bool) {
    if let Some(problem) = cause.downcast_ref::<sqlx::Error>() {
        return (driver(problem), true);
    }
    if let Some(problem) = cause.downcast_ref::<io::Error>() {
        return (system(problem), true);
    }
    (without_number(&cause.to_string()), false)
}

/// The text of the Postgres driver's error.
pub(super) fn driver(problem: &sqlx::Error) -> String {
    match problem {
        sqlx::Error::Database(answer) => match answer.code() {
            Some(code) => format!("{} (SQLSTATE {code})", answer.message()),
            None => answer.message().to_owned(),
        },
        sqlx::Error::Io(problem) => system(problem),
        sqlx::Error::PoolTimedOut => "no connection was free in time".to_owned(),
        other => without_number(&other.to_string()),
    }
}

/// The text of a system error, without its number.
pub(super) fn system(problem: &io::Error) -> String {
    match problem.kind() {
        io::ErrorKind::NotFound => "there is no such file or folder".to_owned(),
        io::ErrorKind::TimedOut => "no answer in time".to_owned(),
        io::ErrorKind::UnexpectedEof => "the connection was closed".to_owned(),
        _other => without_number(&problem.to_string()),
    }
}

fn without_number(text: &str) -> String {
    match text.rsplit_once(" (os error ") {
        Some((words, number)) if number.ends_with(')') => {
            let mut letters = words.chars();
            let first = letters.next().map(|first| first.to_lowercase().to_string());
            first.unwrap_or_default() + letters.as_str()
        }
        _none => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreError;

    #[derive(Debug, thiserror::Error)]
    #[error("open the file: {0}")]
    struct Repeats(#[source] io::Error);

    #[test]
    fn nothing_is_said_twice_and_no_number_of_the_system() {
        let refused = || io::Error::from_raw_os_error(111);
        assert_eq!(
            chain(&Repeats(io::Error::other("on fire"))),
            "open the file: on fire"
        );
        assert_eq!(chain(&refused()), "connection refused");
        let lost = StoreError::Unavailable {
            doing: "claim a call",
            source: sqlx::Error::Io(refused()),
        };
        assert_eq!(
            chain(&lost),
            "claim a call: Postgres did not answer: connection refused"
        );
        let late = StoreError::Unavailable {
            doing: "claim a call",
            source: sqlx::Error::PoolTimedOut,
        };
        assert_eq!(
            chain(&late),
            "claim a call: Postgres did not answer: no connection was free in time"
        );
    }
}

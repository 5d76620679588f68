//! Statements that share parts, each part said once; among the parts, when a call expires: at its deadline, or at the end of its
//! longest wait for its first attempt.

use std::time::Duration;

/// The statement of a file of `sql/`, with these texts in the places of the comments that name them: `/* claimable */`.
/// A text may have comments of its own, for those behind it.
///
/// Made once for each statement, so that running one costs nothing more.
pub(super) fn put_together(statement: &str, parts: &[(&str, &str)]) -> String {
    let put = |statement: String, (name, part): &(&str, &str)| {
        let comment = format!("/* {name} */");
        assert!(statement.contains(&comment), "no {comment} in {statement}");
        statement.replace(&comment, part.trim_end())
    };
    parts.iter().fold(statement.to_owned(), put)
}

macro_rules! expires_at {
    () => {
        "least(deadline_at, CASE WHEN attempts = 0 THEN queue_until END)"
    };
}

/// When an open call expires: its deadline, or before its first attempt the end of its queue wait, whichever comes first.
pub(super) const EXPIRES_AT: &str = expires_at!();

/// The same in milliseconds from now.
pub(super) const LEFT_MS: &str = concat!(
    "(extract(epoch FROM ",
    expires_at!(),
    " - now()) * 1000)::float8"
);

/// Whether only the first attempt did not start in time.
pub(super) const WAITED_TOO_LONG: &str = "attempts = 0 AND coalesce(queue_until <= now(), false)";

/// The time in milliseconds; zero when it has passed.
pub(super) fn left(ms: f64) -> Duration {
    // More than any process lives is the same as never.
    Duration::try_from_secs_f64((ms / 1_000.0).clamp(0.0, 1e9)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_stands_wherever_it_is_named() {
        let parts = [("one", "1 /* two */\n"), ("two", "2")];
        let statement = put_together("SELECT /* one */, /* one */", &parts);
        assert_eq!(statement, "SELECT 1 2, 1 2");
    }

    #[test]
    #[should_panic(expected = "no /* two */")]
    fn a_part_that_is_named_nowhere_is_a_mistake() {
        put_together("SELECT /* one */", &[("one", "1"), ("two", "2")]);
    }
}

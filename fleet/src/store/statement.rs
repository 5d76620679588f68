//! Statements that share parts, each part said once.

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

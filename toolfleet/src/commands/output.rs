//! What people see. Names, errors and results were written by strangers: nothing of it may steer a terminal.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

use serde::Serialize;
use time::{
    OffsetDateTime, UtcOffset, format_description::BorrowedFormatItem, macros::format_description,
};

use super::json;

/// Standard output cannot be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum OutputError {
    /// Whoever read it went away, which is no trouble of ours.
    #[error("nobody reads the output")]
    ReaderGone,
    /// A full disk, for example.
    #[error("write the output")]
    Failed(#[source] io::Error),
}

/// Prints on standard output, with a line end if there is none.
pub(super) fn print(text: &str) -> Result<(), OutputError> {
    let mut output = io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    let written = write!(output, "{text}{end}").and_then(|()| output.flush());
    written.map_err(|problem| match problem.kind() {
        io::ErrorKind::BrokenPipe => OutputError::ReaderGone,
        _other => OutputError::Failed(problem),
    })
}

/// Prints one line of JSON.
pub(super) fn print_json(value: &impl Serialize) -> Result<(), OutputError> {
    let text =
        serde_json::to_string(value).map_err(|problem| OutputError::Failed(problem.into()))?;
    print(&json::compact(&text))
}

/// Says something on standard error that does not stop us.
pub(super) fn warn(text: &str) {
    // Nobody reads it, and we carry on all the same.
    writeln!(io::stderr(), "toolfleet: {}", plain(text)).unwrap_or_default();
}

/// The text with everything that could move a cursor, colour, hide or turn around what stands beside it made visible.
pub(super) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            letter if steers(letter) => {
                write!(shown, "\\u{{{:x}}}", u32::from(letter)).expect("a String takes everything");
            }
            letter => shown.push(letter),
        }
    }
    shown
}

/// Control characters (C0, DEL, C1), the marks that change the direction of text, and the other line ends.
pub(super) fn steers(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// An instant in UTC to the millisecond, as short as RFC 3339 allows.
pub(super) fn instant(at: OffsetDateTime) -> String {
    const SHAPE: &[BorrowedFormatItem<'_>] =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    let at = at.to_offset(UtcOffset::UTC);
    at.format(SHAPE)
        .expect("the shape uses only what an instant has")
}

/// Columns under their headings, as wide as their widest cell; cells are made plain.
pub(super) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| plain(cell)).collect())
        .collect();
    let headings: Vec<String> = headings
        .iter()
        .map(|heading| (*heading).to_owned())
        .collect();
    let width = |column: usize| {
        let cells = rows
            .iter()
            .chain([&headings])
            .filter_map(|row| row.get(column));
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let mut text = String::new();
    for row in [&headings].into_iter().chain(&rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            write!(line, "{cell:width$}  ").expect("a String takes everything");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_stays() {
        let hostile = "a\u{1b}[31m\u{9b}2J\u{7f}\u{202e}b\u{2066}c\nd\u{200f}\u{2028}";
        assert_eq!(
            plain(hostile),
            "a\\u{1b}[31m\\u{9b}2J\\u{7f}\\u{202e}b\\u{2066}c\\nd\\u{200f}\\u{2028}"
        );
        assert_eq!(plain("Zürich 苏黎世 👩‍🚀"), "Zürich 苏黎世 👩‍🚀");
    }

    #[test]
    fn columns_line_up_and_a_cell_is_one_line() {
        let rows = vec![
            vec!["get_weather".to_owned(), "1".to_owned()],
            vec!["ü\n".to_owned(), "12".to_owned()],
        ];
        assert_eq!(
            table(&["tool", "version"], &rows),
            "tool         version\nget_weather  1\nü\\n          12\n"
        );
        assert_eq!(table(&["tool"], &[]), "tool\n");
    }
}

//! Output for people. Names, errors and results come from strangers, so none of it may steer a terminal.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    process::ExitCode,
};

use anyhow::Context as _;
use fleet_history::Row;
use serde::{Serialize, de::DeserializeOwned};

use super::{json, plain::plain};

/// Standard output cannot be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum OutputError {
    /// Its reader has closed it, which is no failure of ours.
    #[error("the output was closed")]
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

/// Prints JSON as it came: on one line, or for people on several.
pub(super) fn print_text(json: &str, on_one_line: bool) -> Result<(), OutputError> {
    print(&if on_one_line {
        json::compact(json)
    } else {
        json::pretty(json)
    })
}

/// Prints one line of JSON.
pub(super) fn print_json(value: &impl Serialize) -> Result<(), OutputError> {
    let text =
        serde_json::to_string(value).map_err(|problem| OutputError::Failed(problem.into()))?;
    print(&json::compact(&text))
}

/// Prints a warning on standard error.
pub(super) fn warn(text: &str) {
    // Standard error may be closed; the command goes on all the same.
    writeln!(io::stderr(), "toolfleet: {}", plain(text)).unwrap_or_default();
}

/// Prints rows of a view: the view itself as JSON, or a table of these cells.
pub(super) fn print_rows<T: DeserializeOwned>(
    rows: &[Row<T>],
    json: bool,
    headings: &[&str],
    cells: impl Fn(T) -> Vec<String>,
) -> anyhow::Result<ExitCode> {
    let text = if json {
        json::compact(&Row::json_of_all(rows))
    } else {
        let rows = Row::read_all(rows).context("read a view of the ledger")?;
        let cells: Vec<_> = rows.into_iter().map(cells).collect();
        table(headings, &cells)
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
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

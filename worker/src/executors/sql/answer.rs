//! The answer of a statement, as it grows row by row.

use std::fmt::Write as _;

use fleet::{
    manifest::{RowBounds, SqlSpec},
    said,
    wire::message::Message,
};
use postgres_protocol::message::backend::{DataRowBody, RowDescriptionBody};

use super::{not_committed::NotCommitted, row, statement::Statement, wire::columns};

/// An answer as it grows.
pub(super) struct SqlAnswer<'a> {
    statement: &'a Statement,
    limit: usize,
    /// Rows beyond this are counted and not kept: the answer is not wanted then.
    kept_max: u64,
    text: String,
    rows: u64,
    affected: u64,
}

impl<'a> SqlAnswer<'a> {
    pub(super) fn new(statement: &'a Statement, limit: usize, expected: Option<RowBounds>) -> Self {
        Self {
            statement,
            limit,
            kept_max: expected.and_then(|rows| rows.max).unwrap_or(u64::MAX),
            text: String::new(),
            rows: 0,
            affected: 0,
        }
    }

    /// So many more rows were changed.
    pub(super) const fn add_affected(&mut self, rows: u64) {
        self.affected += rows;
    }

    /// The rows that were returned, or changed where none are returned.
    pub(super) const fn count(&self) -> u64 {
        if self.statement.columns.is_empty() {
            self.affected
        } else {
            self.rows
        }
    }

    /// Holds what the server says of its columns on this connection against what it said when it checked the statement.
    ///
    /// # Errors
    ///
    /// They differ: what is known of the statement is older than this answer.
    pub(super) fn check(&self, columns: Option<&RowDescriptionBody>) -> Result<(), NotCommitted> {
        if self.statement.answers(columns) {
            return Ok(());
        }
        Err(NotCommitted::Flaw(Message::fixed(
            "the columns of its answer have changed meanwhile; try again",
            "其间它的结果的列发生了变化；请再试一次",
        )))
    }

    /// Takes in another row.
    ///
    /// # Errors
    ///
    /// It is too large by now, or of another shape than the server said.
    pub(super) fn push(&mut self, row: &DataRowBody) -> Result<(), NotCommitted> {
        if self.rows == SqlSpec::ROWS_MAX {
            return Err(NotCommitted::TooLarge(Message::fixed(
                "it has more than 10000 rows",
                "它超过 10000 行",
            )));
        }
        if self.rows >= self.kept_max {
            self.rows += 1;
            return Ok(());
        }
        self.text.push_str(if self.rows == 0 { "[{" } else { ",{" });
        let mut values = columns(row)?;
        for (index, column) in self.statement.columns.iter().enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            row::text(&mut self.text, &column.name);
            self.text.push(':');
            match values.next().ok_or(NotCommitted::Lost)? {
                None => self.text.push_str("null"),
                Some(bytes) => {
                    row::write(&mut self.text, &column.kind, bytes).map_err(|_unreadable| {
                        let name = &column.name;
                        NotCommitted::Flaw(said!(
                            "column {name} is not of the type that the server said; try again",
                            "列 {name} 的类型与服务器所说的不同；请再试一次"
                        ))
                    })?;
                }
            }
            if self.text.len() >= self.limit {
                return Err(NotCommitted::TooLarge(Message::fixed(
                    "it is larger than its output_limit allows",
                    "它超过了 output_limit",
                )));
            }
        }
        self.text.push('}');
        self.rows += 1;
        Ok(())
    }

    /// An array of objects, or how many rows were changed.
    pub(super) fn json(mut self) -> String {
        if self.statement.columns.is_empty() {
            let mut text = String::new();
            write!(text, r#"{{"rows_affected":{}}}"#, self.affected)
                .expect("a String takes everything");
            return text;
        }
        self.text.push_str(if self.rows == 0 { "[]" } else { "]" });
        self.text
    }
}

//! Decodes the columns of a row; by position where there are thousands of rows a second with twenty columns. A lookup by name
//! and a check of its type cost time for each column of each row. A test checks the types of each such statement once.

use std::{error::Error, str::FromStr};

use sqlx::{Decode, Postgres, Row as _, Type, postgres::PgRow};

/// A row that is being read, column by column.
pub(super) struct Columns<'r> {
    row: &'r PgRow,
    at: usize,
}

impl<'r> Columns<'r> {
    /// From its first column on.
    pub(super) const fn of(row: &'r PgRow) -> Self {
        Self { row, at: 0 }
    }

    /// The next column.
    pub(super) fn next<T: Decode<'r, Postgres> + Type<Postgres>>(
        &mut self,
    ) -> Result<T, sqlx::Error> {
        let value = self.row.try_get_unchecked(self.at);
        self.at += 1;
        value
    }

    /// The next column, a text that is parsed.
    pub(super) fn parsed<T: FromStr<Err: Error + Send + Sync + 'static>>(
        &mut self,
    ) -> Result<T, sqlx::Error> {
        parse(self.next()?)
    }

    /// The same for a column that may be null.
    pub(super) fn parsed_if_any<T: FromStr<Err: Error + Send + Sync + 'static>>(
        &mut self,
    ) -> Result<Option<T>, sqlx::Error> {
        self.next::<Option<&str>>()?.map(parse).transpose()
    }
}

/// One column of many rows as an array parameter; empty where no row has a value. Postgres fills an array that is too short
/// with nulls, and most rows lack the same columns.
pub(super) fn sparse<T>(values: impl Iterator<Item = Option<T>>) -> Vec<Option<T>> {
    let values: Vec<_> = values.collect();
    if values.iter().all(Option::is_none) {
        return Vec::new();
    }
    values
}

/// The column of this name, a text that is a word or a name of ours.
pub(super) fn parsed<T: FromStr<Err: Error + Send + Sync + 'static>>(
    row: &PgRow,
    column: &str,
) -> Result<T, sqlx::Error> {
    parse(row.try_get(column)?)
}

/// The same where there may be none.
pub(super) fn parsed_if_any<T: FromStr<Err: Error + Send + Sync + 'static>>(
    row: &PgRow,
    column: &str,
) -> Result<Option<T>, sqlx::Error> {
    let text: Option<&str> = row.try_get(column)?;
    text.map(parse).transpose()
}

pub(super) fn parse<T: FromStr<Err: Error + Send + Sync + 'static>>(
    text: &str,
) -> Result<T, sqlx::Error> {
    text.parse()
        .map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

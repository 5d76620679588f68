//! A row of a view: the JSON that Postgres made of it, and the type of its contents.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use sqlx::{Database, Decode, Postgres, Type, error::BoxDynError};

/// A row, or rows, of a view. Its JSON is the row of the view itself, and can be passed on without decoding.
#[derive(Debug)]
pub struct Row<T> {
    json: String,
    says: PhantomData<fn() -> T>,
}

impl<T> Row<T> {
    /// The JSON.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The JSON of a list of rows.
    pub fn json_of_all(rows: &[Self]) -> String {
        let rows: Vec<&str> = rows.iter().map(Self::json).collect();
        format!("[{}]", rows.join(","))
    }
}

impl<T: DeserializeOwned> Row<T> {
    /// Its contents.
    ///
    /// # Errors
    ///
    /// The view of another release does not fit the type.
    pub fn read(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.json)
    }

    /// The contents of each.
    ///
    /// # Errors
    ///
    /// As for [`Row::read`].
    pub fn read_all(rows: &[Self]) -> Result<Vec<T>, serde_json::Error> {
        rows.iter().map(Self::read).collect()
    }
}

impl<T> From<String> for Row<T> {
    fn from(json: String) -> Self {
        Self {
            json,
            says: PhantomData,
        }
    }
}

impl<T> Type<Postgres> for Row<T> {
    fn type_info() -> <Postgres as Database>::TypeInfo {
        <String as Type<Postgres>>::type_info()
    }

    fn compatible(found: &<Postgres as Database>::TypeInfo) -> bool {
        <String as Type<Postgres>>::compatible(found)
    }
}

impl<'r, T> Decode<'r, Postgres> for Row<T> {
    fn decode(value: <Postgres as Database>::ValueRef<'r>) -> Result<Self, BoxDynError> {
        <String as Decode<'r, Postgres>>::decode(value).map(Self::from)
    }
}

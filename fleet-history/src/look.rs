//! The calls of a filter that no index leads to, without reading the whole history for it: window by window from the newest on, as far as
//! time allows. It says how far it came.
//!
//! A window is of all calls, and where it ends is told: only to who sees every call. For others it is of those that are meant, however long
//! the way to so many is.

use fleet::store::StoreError;
use sqlx::{PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

use crate::{
    calls::{ListedCall, calls, write_of},
    filter::{Filter, bounds, half, properties},
    row::Row,
};

/// How many calls the first window has, and each further one at most: where no texts are read it grows.
const FIRST: i64 = 1_000;
const GROWS_TO: i64 = 16_000;
const GROWS_BY: i64 = 4;
/// The same where texts are read.
const WITH_TEXT: i64 = 500;

/// What a look has found.
#[derive(Debug)]
pub struct Found {
    /// The calls, the newest first.
    pub calls: Vec<Row<ListedCall>>,
    /// The oldest call that was looked at, where there may be older ones that are meant.
    pub until: Option<String>,
}

/// The calls of a filter, and with a text those that have it in their arguments or their result, as the views show them, or as their trace
/// id.
///
/// As many as the filter's limit, or as are found while `goes_on` holds, which is asked between two windows.
///
/// # Errors
///
/// The view cannot be read.
pub async fn look(
    pool: &PgPool,
    filter: &Filter,
    text: Option<&str>,
    goes_on: impl Fn() -> bool,
) -> Result<Found, StoreError> {
    if text.is_none() && !(filter.reads_others() && filter.has_windows_of_all()) {
        let calls = calls(pool, filter).await?;
        let last = calls.last().filter(|_| count(&calls) >= filter.limit);
        let until = last.and_then(|row| Some(row.read().ok()?.call_id));
        return Ok(Found { calls, until });
    }
    let mut found = Found {
        calls: Vec::new(),
        until: None,
    };
    let mut rest = filter.clone();
    let mut size = text.map_or(FIRST, |_| WITH_TEXT);
    loop {
        let window = match window(pool, &rest, text, size).await {
            Ok(window) => window,
            // What was found so far is told, and where it ended; the next look says what it meets there.
            Err(error) if error.took_too_long() && found.until.is_some() => return Ok(found),
            Err(error) => return Err(error),
        };
        found.until = window.until(rest.limit, size);
        found.calls.extend(listed(pool, &rest, window.ids).await?);
        rest.limit = filter.limit - count(&found.calls);
        let until = found.until.as_deref().filter(|_| rest.limit > 0);
        let until = until.filter(|_| goes_on());
        let Some(Ok(until)) = until.map(str::parse) else {
            return Ok(found);
        };
        rest.before = Some(until);
        if text.is_none() {
            size = (size * GROWS_BY).min(GROWS_TO);
        }
    }
}

/// So many calls that follow each other.
#[derive(Debug, sqlx::FromRow)]
struct Window {
    /// The newest that are meant.
    ids: Vec<Uuid>,
    /// How many it has.
    seen: i64,
    oldest: Option<String>,
}

impl Window {
    /// Up to which call those that are meant are in here, where there may be older ones.
    fn until(&self, limit: i64, size: i64) -> Option<String> {
        // Cut off behind so many.
        let cut = self.ids.last().filter(|_| count(&self.ids) >= limit);
        let oldest = || self.oldest.clone().filter(|_| self.seen == size);
        cut.map(Uuid::to_string).or_else(oldest)
    }
}

async fn window(
    pool: &PgPool,
    filter: &Filter,
    text: Option<&str>,
    size: i64,
) -> Result<Window, StoreError> {
    let mut statement = statement(filter, text, size);
    let looked = statement.build_query_as().fetch_one(pool).await;
    looked.map_err(|error| StoreError::from_sqlx("look through calls", error))
}

/// Its subquery is read in the order of the ids and no further than its limit. What is asked of texts comes last: it reads them.
fn statement(filter: &Filter, text: Option<&str>, size: i64) -> QueryBuilder<Postgres> {
    let mut statement = QueryBuilder::new("SELECT coalesce((array_agg(call_id) FILTER (WHERE true");
    properties(&mut statement, filter);
    if let Some(text) = text {
        statement
            .push(" AND (trace_id = ")
            .push_bind(text.to_owned())
            .push(" OR strpos(args::text, ")
            .push_bind(text.to_owned())
            .push(") > 0 OR strpos(result::text, ")
            .push_bind(text.to_owned())
            .push(") > 0)");
    }
    statement.push("))[:").push_bind(filter.limit).push(
        "], '{}') AS ids, count(*) AS seen, min(call_id::text COLLATE \"C\") AS oldest
         FROM (SELECT * FROM toolfleet.calls WHERE true",
    );
    bounds(&mut statement, filter);
    half(&mut statement, filter);
    if !filter.has_windows_of_all() {
        properties(&mut statement, filter);
    }
    statement
        .push(" ORDER BY call_id DESC LIMIT ")
        .push_bind(size)
        .push(") newest");
    statement
}

async fn listed(
    pool: &PgPool,
    filter: &Filter,
    ids: Vec<Uuid>,
) -> Result<Vec<Row<ListedCall>>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut listing = QueryBuilder::new("");
    write_of(&mut listing, filter, Some(ids));
    let listed = listing.build_query_scalar().fetch_all(pool).await;
    listed.map_err(|error| StoreError::from_sqlx("list calls", error))
}

fn count<T>(rows: &[T]) -> i64 {
    i64::try_from(rows.len()).unwrap_or(i64::MAX)
}

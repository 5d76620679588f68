//! The todo lists of sessions: written under the lock of the list, read, and forgotten with the history.

use std::time::Duration;

use sqlx::{PgConnection, PgPool, Row as _, postgres::PgRow};

use super::{StoreError, answer::listen, columns::parsed, read_all};
use crate::{
    ids::CallId,
    todo::{FitChanges, TodoChanges, TodoId, TodoItem, TodoProblem, full, unknown},
};

/// The most lists that one statement deletes, each with up to a hundred items.
const LISTS_MAX: i32 = 500;

/// The list of a session after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenTodos {
    /// Its items, the oldest first.
    pub items: Vec<TodoItem>,
    /// The changes that were not made, in the order in which they were asked for.
    pub problems: Vec<TodoProblem>,
}

/// Changes the list of this tenant's session for a call: statuses first, then new items. Own statement, and one that reads.
///
/// Guard: the call has not written the list before, so another attempt of it changes nothing; it is known for the next 63 calls that
/// write, and as long as the list has an item of it. Locks the list.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn write(
    pool: &PgPool,
    tenant: &str,
    session: &str,
    call: CallId,
    changes: &TodoChanges,
) -> Result<WrittenTodos, StoreError> {
    let FitChanges {
        add,
        update,
        mut problems,
    } = changes.fit();
    if !add.is_empty() || !update.is_empty() {
        let doing = "write a todo list";
        let numbers: Vec<i32> = update.iter().map(|(_, id, _)| id.0).collect();
        let statuses: Vec<&str> = update.iter().map(|update| update.2.as_str()).collect();
        let titles: Vec<&str> = add.iter().map(|(_, title)| title.as_str()).collect();
        let writing = "SELECT added, unknown FROM toolfleet.write_todos($1, $2, $3, $4, $5, $6)";
        let writing = sqlx::query(writing)
            .bind(tenant)
            .bind(session)
            .bind(call.0)
            .bind(numbers)
            .bind(statuses)
            .bind(titles)
            .fetch_one(pool);
        let row = listen(writing)
            .await
            .map_err(|error| StoreError::from_sqlx(doing, error))?;
        let (added, lacking) =
            verdict(&row).map_err(|error| StoreError::unreadable(doing, error))?;
        problems.extend(add.iter().skip(added).map(|(place, _)| TodoProblem {
            place: *place,
            message: full(),
        }));
        for index in lacking {
            let (place, id, _) = update
                .get(index)
                .ok_or_else(|| StoreError::unreadable(doing, "a place that was not asked for"))?;
            problems.push(TodoProblem {
                place: *place,
                message: unknown(&id.to_string()),
            });
        }
        problems.sort_by_key(|problem| problem.place);
    }
    let items = list(pool, tenant, session).await?;
    Ok(WrittenTodos { items, problems })
}

/// How many titles are in the list, and which updates have no item.
fn verdict(row: &PgRow) -> Result<(usize, Vec<usize>), sqlx::Error> {
    let number =
        |number: i32| usize::try_from(number).map_err(|error| sqlx::Error::Decode(Box::new(error)));
    let places: Vec<i32> = row.try_get("unknown")?;
    let places = places.into_iter().map(|place| number(place - 1));
    Ok((
        number(row.try_get("added")?)?,
        places.collect::<Result<_, _>>()?,
    ))
}

/// The list of this tenant's session, the oldest item first; empty where there is none.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn list(pool: &PgPool, tenant: &str, session: &str) -> Result<Vec<TodoItem>, StoreError> {
    let doing = "read a todo list";
    let reading = sqlx::query(
        "SELECT i.number, i.title, i.status FROM toolfleet.todo_items i \
         WHERE i.tenant = $1 AND i.session = $2 ORDER BY i.number",
    )
    .bind(tenant)
    .bind(session)
    .fetch_all(pool);
    let rows = listen(reading)
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))?;
    read_all(doing, &rows, |row| {
        Ok(TodoItem {
            id: TodoId(row.try_get("number")?),
            title: row.try_get("title")?,
            status: parsed(row, "status")?,
        })
    })
}

/// Deletes a step of the lists that nobody has written for `retention`. Own statement; whether there may be more.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn drop_old(
    connection: &mut PgConnection,
    retention: Duration,
) -> Result<bool, StoreError> {
    let days = i32::try_from(retention.as_secs() / 86_400).unwrap_or(i32::MAX);
    let dropped: i64 = sqlx::query_scalar(
        "SELECT toolfleet.drop_todos((now() AT TIME ZONE 'UTC')::date - $1, $2)",
    )
    .bind(days)
    .bind(LISTS_MAX)
    .fetch_one(connection)
    .await
    .map_err(|error| StoreError::from_sqlx("forget todo lists", error))?;
    Ok(dropped >= i64::from(LISTS_MAX))
}

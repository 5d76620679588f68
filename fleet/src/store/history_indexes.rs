//! Indexes of the history, built without holding up the calls that end meanwhile.
//!
//! A migration makes an index on a partitioned table and on its partitions without rows; `migrations/README.md` has the rule.
//! On a partition with rows that would hold up every call that ends, for as long as it takes. So it is done here, after the
//! migrations, `CONCURRENTLY` and one at a time. What was interrupted is found again by the next `migrate`.

use sqlx::{AssertSqlSafe, PgConnection};

use super::StoreError;

/// What is missing on one partition, as the statements that make it; the newest partition first.
#[derive(Debug, sqlx::FromRow)]
struct Missing {
    /// Takes away what an interrupted build left behind.
    clear: String,
    build: String,
    attach: String,
}

/// Builds every index of a partitioned table on the partitions that lack it; returns how many it built.
///
/// Takes as long as reading those partitions, and waits for the transactions that were there before it. Whoever writes there
/// waits for a moment only, at most a second. While somebody else does the same it does nothing. Dropped or failed, it
/// leaves whole indexes and one that nothing uses, and can be done again.
///
/// # Errors
///
/// Postgres does not answer; or a transaction kept a partition for longer than a second.
pub(super) async fn complete(connection: &mut PgConnection) -> Result<usize, StoreError> {
    let failed = |error| StoreError::from_sqlx("build the indexes of the history", error);
    // Not one that waits: a build waits for every statement that was there before it.
    let alone: bool =
        sqlx::query_scalar("SELECT pg_try_advisory_lock(hashtext('toolfleet.history_indexes'))")
            .fetch_one(&mut *connection)
            .await
            .map_err(failed)?;
    if !alone {
        return Ok(0);
    }
    let missing: Vec<Missing> = sqlx::query_as(include_str!("sql/history_indexes.sql"))
        .fetch_all(&mut *connection)
        .await
        .map_err(failed)?;
    for Missing {
        clear,
        build,
        attach,
    } in &missing
    {
        // A build waits for others and makes none wait. Attaching makes those wait that write to the partition.
        let steps = [
            "SET lock_timeout = 0",
            clear,
            build,
            "SET lock_timeout = '1s'",
            attach,
        ];
        for step in steps {
            // Made by Postgres, of quoted names of its catalog.
            sqlx::raw_sql(AssertSqlSafe(step.to_owned()))
                .execute(&mut *connection)
                .await
                .map_err(failed)?;
        }
    }
    sqlx::query("SELECT pg_advisory_unlock(hashtext('toolfleet.history_indexes'))")
        .execute(connection)
        .await
        .map_err(failed)?;
    Ok(missing.len())
}

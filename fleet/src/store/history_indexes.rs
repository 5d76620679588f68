//! Builds indexes of the history without delaying the calls that end meanwhile.
//!
//! A migration makes an index on a partitioned table and on its empty partitions; `migrations/README.md` has the rule. On a
//! partition with rows that would delay every call that ends, until the index is built. So it is built here, after the
//! migrations, `CONCURRENTLY` and one at a time. The next `migrate` finds a build that was interrupted.

use sqlx::{AssertSqlSafe, PgConnection};

use super::StoreError;

/// A missing index of one partition, as the statements that make it; the newest partition first.
#[derive(Debug, sqlx::FromRow)]
struct Missing {
    /// Drops what an interrupted build left behind.
    clear: String,
    build: String,
    attach: String,
}

/// Builds every index of a partitioned table on the partitions that lack it; returns how many it built.
///
/// Takes as long as reading those partitions, and waits for transactions that began before it. A statement that writes there
/// waits for at most a second. While another process does the same it does nothing. If it is dropped or fails, it leaves
/// complete indexes and at most one that Postgres does not use, and it can be run again.
///
/// # Errors
///
/// Postgres does not answer; or a transaction kept a partition for longer than a second.
pub(super) async fn complete(connection: &mut PgConnection) -> Result<usize, StoreError> {
    let failed = |error| StoreError::from_sqlx("build the indexes of the history", error);
    // Without waiting for the lock: a build waits for every statement that began before it, this one included.
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
        // A build waits for others and delays none. Attaching delays statements that write to the partition.
        let steps = [
            "SET lock_timeout = 0",
            clear,
            build,
            "SET lock_timeout = '1s'",
            attach,
        ];
        for step in steps {
            // Postgres made it, of quoted names from its catalog.
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

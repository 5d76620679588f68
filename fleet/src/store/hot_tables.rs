//! The hot tables: few rows that change all the time. What keeps them small is vacuum.
//!
//! Dispatchers vacuum them, for autovacuum's one-minute nap is too long. Where a dispatcher's role may not, autovacuum looks
//! every second. While a snapshot is held, neither frees what died since: dispatchers rest, and have autovacuum wait for more
//! dead rows.

use sqlx::{FromRow, PgConnection, PgPool};

use super::{StoreError, answer::listen, lane::is_lock_timeout};

/// How many dead rows autovacuum waits for, as the migrations set it.
pub const AUTOVACUUM_AT: i64 = 1000;
/// The most that Postgres takes.
const AUTOVACUUM_AT_MAX: i64 = i32::MAX as i64;

/// A table of few rows that change all the time.
#[derive(Debug)]
pub struct Hot {
    name: &'static str,
    /// So many dead rows are left alone.
    dead_max: i64,
    vacuum: &'static str,
}

const HOT: [Hot; 2] = [
    Hot {
        name: "open_calls",
        dead_max: 2000,
        vacuum: "VACUUM (SKIP_LOCKED) toolfleet.open_calls",
    },
    // Only a row that leaves a full page counts as dead: each is a page that is not used again before a vacuum.
    Hot {
        name: "open_counts",
        dead_max: 8,
        vacuum: "VACUUM (SKIP_LOCKED) toolfleet.open_counts",
    },
];

/// A hot table as it stands.
#[derive(Debug, Clone, Copy)]
pub struct HotTable {
    hot: &'static Hot,
    stand: TableStand,
}

#[derive(Debug, Clone, Copy, FromRow)]
struct TableStand {
    dead: i64,
    autovacuum_at: i64,
    may_vacuum: bool,
    may_pace: bool,
}

impl HotTable {
    /// The table's name.
    pub const fn name(&self) -> &'static str {
        self.hot.name
    }

    /// How many dead rows it has, as far as the statistics know.
    pub const fn dead(&self) -> i64 {
        self.stand.dead
    }

    /// Whether it has more dead rows than it may, and this role may vacuum it. Where it may not, a vacuum would only have the
    /// server say so each time.
    pub const fn is_dirty(&self) -> bool {
        self.stand.may_vacuum && self.stand.dead > self.hot.dead_max
    }

    /// How many dead rows autovacuum has to wait for from now on, if that is another number than now: twice those that are there
    /// while a snapshot is held, the usual number otherwise. `None` also where this role may not say so.
    pub fn autovacuum_at(&self, held: bool) -> Option<i64> {
        let at = self.stand.autovacuum_at;
        if !self.stand.may_pace {
            None
        } else if held && self.stand.dead > at.max(AUTOVACUUM_AT) {
            Some(self.stand.dead.saturating_mul(2).min(AUTOVACUUM_AT_MAX))
        } else if !held && at > AUTOVACUUM_AT {
            Some(AUTOVACUUM_AT)
        } else {
            None
        }
    }

    /// Whether nothing is to be done: few rows are dead, and autovacuum waits for no more than the usual number.
    const fn is_at_rest(&self) -> bool {
        self.stand.dead <= self.hot.dead_max && self.stand.autovacuum_at <= AUTOVACUUM_AT
    }
}

/// The hot tables for which something may be to be done: a vacuum, or another pace of autovacuum. Usually none.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn look(pool: &PgPool) -> Result<Vec<HotTable>, StoreError> {
    let stands: Vec<TableStand> = listen(
        sqlx::query_as(
            "SELECT coalesce(s.n_dead_tup, 0) AS dead, \
                    coalesce((SELECT option_value::bigint FROM pg_options_to_table(c.reloptions) \
                              WHERE option_name = 'autovacuum_vacuum_threshold'), $2) AS autovacuum_at, \
                    CASE WHEN pg_has_role(c.relowner, 'USAGE') \
                           OR pg_has_role((SELECT datdba FROM pg_database WHERE datname = current_database()), 'USAGE') \
                         THEN true \
                     WHEN current_setting('server_version_num')::integer >= 170000 \
                         THEN has_table_privilege(c.oid, 'MAINTAIN') \
                     ELSE false END AS may_vacuum, \
                    has_function_privilege('toolfleet.set_autovacuum_threshold(text, bigint)', 'EXECUTE') AS may_pace \
             FROM unnest($1::text[]) WITH ORDINALITY AS hot (name, place) \
             JOIN pg_class c ON c.oid = ('toolfleet.' || hot.name)::regclass \
             LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid ORDER BY hot.place",
        )
        .bind(HOT.map(|hot| hot.name))
        .bind(AUTOVACUUM_AT)
        .fetch_all(pool),
    )
    .await
    .map_err(|error| StoreError::from_sqlx("look for dead rows", error))?;
    let tables = HOT
        .iter()
        .zip(stands)
        .map(|(hot, stand)| HotTable { hot, stand });
    Ok(tables.filter(|table| !table.is_at_rest()).collect())
}

/// Gives the dead rows of a hot table back, so that its next rows go where they were; returns how many it could not, because
/// some transaction on the server may still see them.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn vacuum(connection: &mut PgConnection, table: &HotTable) -> Result<i64, StoreError> {
    let failed = |error| StoreError::from_sqlx("vacuum a hot table", error);
    let vacuuming = sqlx::query(table.hot.vacuum).execute(&mut *connection);
    vacuuming.await.map_err(failed)?;
    // A vacuum counts what it leaves before it answers.
    sqlx::query_scalar("SELECT pg_stat_get_dead_tuples(('toolfleet.' || $1)::regclass)")
        .bind(table.name())
        .fetch_one(connection)
        .await
        .map_err(failed)
}

/// Has autovacuum begin at so many dead rows. While a vacuum has the table, nothing is changed.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn set_autovacuum_at(
    connection: &mut PgConnection,
    table: &HotTable,
    dead_rows: i64,
) -> Result<(), StoreError> {
    let setting = sqlx::query("SELECT toolfleet.set_autovacuum_threshold($1, $2)")
        .bind(table.name())
        .bind(dead_rows)
        .execute(connection);
    match setting.await {
        Err(error) if !is_lock_timeout(&error) => {
            Err(StoreError::from_sqlx("pace autovacuum", error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(dead: i64, autovacuum_at: i64, may_pace: bool) -> HotTable {
        let stand = TableStand {
            dead,
            autovacuum_at,
            may_vacuum: false,
            may_pace,
        };
        HotTable {
            hot: &HOT[0],
            stand,
        }
    }

    #[test]
    fn autovacuum_waits_for_twice_the_dead_rows_while_they_are_held_and_for_the_usual_number_afterwards()
     {
        for (dead, at, held, then) in [
            (1_000, 1_000, true, None),
            (5_000, 1_000, true, Some(10_000)),
            (10_000, 10_000, true, None),
            (10_001, 10_000, true, Some(20_002)),
            (2_000_000_000, 1_000, true, Some(2_147_483_647)),
            (5_000, 1_000, false, None),
            (5_000, 10_000, false, Some(1_000)),
            (0, 10_000, false, Some(1_000)),
            // An operator's.
            (600, 500, true, None),
            (600, 500, false, None),
        ] {
            assert_eq!(
                table(dead, at, true).autovacuum_at(held),
                then,
                "{dead} {at} {held}"
            );
            assert_eq!(table(dead, at, false).autovacuum_at(held), None);
        }
    }

    #[test]
    fn a_table_with_few_dead_rows_is_at_rest() {
        assert!(table(2_000, 1_000, true).is_at_rest());
        assert!(!table(2_001, 1_000, true).is_at_rest());
        // The usual number is to come back.
        assert!(!table(0, 10_000, true).is_at_rest());
    }
}

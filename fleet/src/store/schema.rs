//! Whether this program may work with the schema that exists.
//!
//! During an upgrade, two releases work with one schema. A program accepts migrations that it does not know, until one of them
//! requires otherwise: `oldest_program` in `toolfleet.fleet`. `migrations/README.md` has the rule.

use std::borrow::Cow;

use sqlx::{PgConnection, migrate::Migrator};

use super::{StoreError, answer::listen};

/// The migrations that this program was built with.
pub fn migrator() -> Migrator {
    static EMBEDDED: Migrator = sqlx::migrate!("../migrations");
    Migrator {
        migrations: Cow::Borrowed(&EMBEDDED.migrations),
        table_name: Cow::Borrowed("toolfleet._migrations"),
        create_schemas: Cow::Owned(vec![Cow::Borrowed("toolfleet")]),
        ..Migrator::DEFAULT
    }
}

/// The newest of them, which a program states of itself.
pub fn newest_known() -> i64 {
    known().last().copied().unwrap_or_default()
}

/// The migrations that this program knows, in order.
pub(super) fn known() -> Vec<i64> {
    migrator().iter().map(|one| one.version).collect()
}

/// Why a program must not work with a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// There is none.
    #[error("the database has no toolfleet schema; run `toolfleet migrate`")]
    NoSchema,
    /// The program is newer.
    #[error("the schema lacks migration {0}; run `toolfleet migrate`")]
    Lacks(i64),
    /// The schema is too new for the program.
    #[error(
        "the schema needs programs that know migration {oldest_program}, and this one knows none after {newest_known}; \
         upgrade the program"
    )]
    TooNew {
        /// The newest migration that a program must know.
        oldest_program: i64,
        /// The newest one that this program knows.
        newest_known: i64,
    },
}

impl From<Misfit> for StoreError {
    fn from(misfit: Misfit) -> Self {
        Self::UnknownSchema(misfit.to_string())
    }
}

/// Whether a program that knows `known` may work with a schema that has `applied`. Both are in order.
///
/// It needs all of its own. It need not know newer ones, unless one of them requires that with `oldest_program`.
///
/// # Errors
///
/// It may not.
pub fn fits(known: &[i64], applied: &[i64], oldest_program: Option<i64>) -> Result<(), Misfit> {
    if applied.is_empty() {
        return Err(Misfit::NoSchema);
    }
    let missing = known.iter().find(|version| !applied.contains(version));
    if let Some(missing) = missing {
        return Err(Misfit::Lacks(*missing));
    }
    survives(known.last().copied().unwrap_or_default(), oldest_program)
}

fn survives(newest_known: i64, oldest_program: Option<i64>) -> Result<(), Misfit> {
    match oldest_program {
        Some(oldest_program) if newest_known < oldest_program => Err(Misfit::TooNew {
            oldest_program,
            newest_known,
        }),
        _ => Ok(()),
    }
}

/// Refuses a schema that is too new for this program.
///
/// Called for every connection, for the schema may change while the process runs. One read of one row.
///
/// # Errors
///
/// The schema is too new; or Postgres does not answer.
pub(super) async fn check_program(connection: &mut PgConnection) -> Result<(), StoreError> {
    Ok(survives(newest_known(), oldest_program(connection).await?)?)
}

/// The oldest program that the schema allows; `None` where there is no such column.
pub(super) async fn oldest_program(
    connection: &mut PgConnection,
) -> Result<Option<i64>, StoreError> {
    let asking = sqlx::query_scalar("SELECT oldest_program FROM toolfleet.fleet");
    let asked = listen(asking.fetch_optional(connection)).await;
    match asked {
        // No such table, no such column.
        Err(sqlx::Error::Database(answer))
            if matches!(answer.code().as_deref(), Some("42P01" | "42703")) =>
        {
            Ok(None)
        }
        asked => {
            asked.map_err(|error| StoreError::from_sqlx("ask the schema for whom it is", error))
        }
    }
}

/// The migrations that were applied to a schema, in order; none where there is no schema.
pub(super) async fn applied(connection: &mut PgConnection) -> Result<Vec<i64>, StoreError> {
    let doing = "read applied migrations";
    let any = sqlx::query_scalar("SELECT to_regclass('toolfleet._migrations') IS NOT NULL");
    let any: bool = listen(any.fetch_one(&mut *connection))
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))?;
    if !any {
        return Ok(Vec::new());
    }
    let versions = sqlx::query_scalar(
        "SELECT version FROM toolfleet._migrations WHERE success ORDER BY version",
    );
    listen(versions.fetch_all(connection))
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_needs_its_own_migrations_and_may_ignore_newer_ones() {
        let known = [1, 2];
        let too_new = |oldest_program| Misfit::TooNew {
            oldest_program,
            newest_known: 2,
        };
        for (applied, oldest_program, expected) in [
            (&[][..], None, Err(Misfit::NoSchema)),
            (&[1], Some(1), Err(Misfit::Lacks(2))),
            (&[1, 3], Some(1), Err(Misfit::Lacks(2))),
            (&[1, 2], Some(1), Ok(())),
            (&[1, 2, 3], Some(1), Ok(())),
            (&[1, 2, 3], Some(2), Ok(())),
            (&[1, 2, 3], Some(3), Err(too_new(3))),
            (&[1, 2, 3, 4], Some(3), Err(too_new(3))),
        ] {
            let said = fits(&known, applied, oldest_program);
            assert_eq!(said, expected, "{applied:?}, {oldest_program:?}");
        }
    }

    #[test]
    fn every_refusal_says_what_to_do() {
        let too_new = Misfit::TooNew {
            oldest_program: 3,
            newest_known: 2,
        };
        for (misfit, advice) in [
            (Misfit::NoSchema, "run `toolfleet migrate`"),
            (Misfit::Lacks(2), "run `toolfleet migrate`"),
            (too_new, "upgrade the program"),
        ] {
            assert!(misfit.to_string().ends_with(advice), "{misfit}");
        }
    }
}

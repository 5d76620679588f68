//! The schema: applying it, and refusing one that is not known.

use std::borrow::Cow;

use sqlx::{Connection, PgConnection, migrate::Migrator};

use super::{StoreError, session::Postgres};

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

/// Applies what is missing; returns how many migrations were applied. Takes a lock, so that two at once are in turn.
///
/// # Errors
///
/// Postgres does not answer, or a migration was changed after it was applied.
pub async fn migrate(postgres: &Postgres) -> Result<usize, StoreError> {
    let doing = "migrate the schema";
    let mut connection = PgConnection::connect_with(&postgres.options_for_migration())
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let before = applied(&mut connection).await?.len();
    // `run` is generic over what it acquires from, which makes a future that cannot be sent between threads.
    let done = migrator().run_direct(None, &mut connection, false).await;
    done.map_err(|error| StoreError::UnknownSchema(format!("{doing}: {error}")))?;
    Ok(applied(&mut connection).await?.len().saturating_sub(before))
}

/// Refuses to go on with a schema that lacks what this program needs, or that a newer one has migrated.
///
/// # Errors
///
/// The schema is not the one this program knows.
pub async fn check_schema(postgres: &Postgres) -> Result<(), StoreError> {
    let mut connection = PgConnection::connect_with(&postgres.options_for_migration())
        .await
        .map_err(|error| StoreError::from_sqlx("check the schema", error))?;
    let applied = applied(&mut connection).await?;
    if applied.is_empty() {
        let what = "the database has no toolfleet schema; run `toolfleet migrate`";
        return Err(StoreError::UnknownSchema(what.to_owned()));
    }
    let known: Vec<i64> = migrator()
        .iter()
        .map(|migration| migration.version)
        .collect();
    if let Some(missing) = known.iter().find(|version| !applied.contains(version)) {
        let what = format!("the schema lacks migration {missing}; run `toolfleet migrate`");
        return Err(StoreError::UnknownSchema(what));
    }
    if let Some(newer) = applied.iter().find(|version| !known.contains(version)) {
        let what = format!(
            "the schema has migration {newer}, which this program does not know; upgrade the program"
        );
        return Err(StoreError::UnknownSchema(what));
    }
    Ok(())
}

async fn applied(connection: &mut PgConnection) -> Result<Vec<i64>, StoreError> {
    let doing = "read applied migrations";
    let any: bool = sqlx::query_scalar("SELECT to_regclass('toolfleet._migrations') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))?;
    if !any {
        return Ok(Vec::new());
    }
    sqlx::query_scalar("SELECT version FROM toolfleet._migrations WHERE success ORDER BY version")
        .fetch_all(connection)
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))
}

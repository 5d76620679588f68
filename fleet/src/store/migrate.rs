//! Applies the schema, and checks it before a program starts. [`super::schema`] decides.

use sqlx::{Connection, PgConnection, migrate::MigrateError};

pub use super::schema::migrator;
use super::{
    StoreError,
    answer::listen,
    history_indexes,
    schema::{applied, fits, known, oldest_program},
    session::Postgres,
};

/// Applies missing migrations; returns how many.
///
/// Then builds what the migrations leave to be built beside them: indexes on days of history with rows. Takes a lock, so that
/// two processes do it in turn. On a schema that is newer than this program it does nothing, so that a release can be taken
/// back.
///
/// # Errors
///
/// Postgres does not answer or a lock is held for too long, a migration was changed after it was applied, or the schema is too
/// new for this program.
pub async fn migrate(postgres: &Postgres) -> Result<usize, StoreError> {
    let doing = "migrate the schema";
    let mut connection = PgConnection::connect_with(&postgres.options_for_migration())
        .await
        .map_err(|error| StoreError::from_sqlx(doing, error))?;
    let before = applied(&mut connection).await?;
    let known = known();
    let mut migrator = migrator();
    if before.iter().any(|version| !known.contains(version)) {
        // A missing migration would be applied after newer ones that were built on it.
        fits(&known, &before, oldest_program(&mut connection).await?)?;
        migrator.set_ignore_missing(true);
    }
    // `run` is generic over its source of connections, and its future cannot be sent between threads.
    let done = migrator.run_direct(None, &mut connection, false).await;
    done.map_err(|error| misfit(doing, error))?;
    let after = applied(&mut connection).await?;
    history_indexes::complete(&mut connection).await?;
    Ok(after.len().saturating_sub(before.len()))
}

/// Why a migration cannot be applied: an error of Postgres, or files that do not follow from those before.
fn misfit(doing: &'static str, problem: MigrateError) -> StoreError {
    match problem {
        MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) => {
            StoreError::from_sqlx(doing, source)
        }
        MigrateError::VersionMismatch(version) => StoreError::UnknownSchema(format!(
            "migration {version} was changed after it was applied; use the release that applied it"
        )),
        other => StoreError::UnknownSchema(format!("{doing}: {other}")),
    }
}

/// Refuses a schema that lacks what this program needs, or that is too new for it.
///
/// # Errors
///
/// This program must not work with the schema; or Postgres does not answer.
pub async fn check_schema(postgres: &Postgres) -> Result<(), StoreError> {
    let options = postgres.options_for_migration();
    let mut connection = listen(PgConnection::connect_with(&options))
        .await
        .map_err(|error| StoreError::from_sqlx("check the schema", error))?;
    let applied = applied(&mut connection).await?;
    let oldest_program = oldest_program(&mut connection).await?;
    Ok(fits(&known(), &applied, oldest_program)?)
}

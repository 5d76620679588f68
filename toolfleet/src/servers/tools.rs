//! The tools' part of a private Postgres: a role of their own, and a schema for their tables.

use fleet::store::{session, tool_role};
use secrecy::SecretString;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// The role that sql tools log in as.
pub const ROLE: &str = "toolfleet_tool";
/// The schema where a person puts tables for tools. The role may read and change what the owner creates there, and nothing
/// else.
pub const SCHEMA: &str = "tools";

/// Why it could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    /// The server refused, or does not answer.
    #[error("make the role of the tools")]
    Server(#[from] sqlx::Error),
    /// The ledger refused.
    #[error("grant the role of the tools")]
    Store(#[from] fleet::store::StoreError),
}

/// Makes the role with this password, the schema, and the grants, in the migrated database of this superuser's URL. Safe to
/// repeat. Returns the URL of the tools.
///
/// # Errors
///
/// The server refuses, or does not answer.
pub async fn provision(url: &str, password: &str) -> Result<String, ProvisionError> {
    let mut connection = PgConnection::connect(url).await?;
    let known: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)")
        .bind(ROLE)
        .fetch_one(&mut connection)
        .await?;
    let verb = if known { "ALTER" } else { "CREATE" };
    // Made of names of this file and a password of ours, which is hexadecimal.
    let sql = format!(
        "{verb} ROLE {ROLE} LOGIN PASSWORD '{password}' NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS; \
         CREATE SCHEMA IF NOT EXISTS {SCHEMA}; \
         GRANT USAGE ON SCHEMA {SCHEMA} TO {ROLE}; \
         ALTER DEFAULT PRIVILEGES IN SCHEMA {SCHEMA} GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {ROLE}; \
         ALTER DEFAULT PRIVILEGES IN SCHEMA {SCHEMA} GRANT USAGE, SELECT ON SEQUENCES TO {ROLE}"
    );
    sqlx::raw_sql(AssertSqlSafe(sql))
        .execute(&mut connection)
        .await?;
    let ledger = session::Postgres::new(&SecretString::from(url), "toolfleet tools")?;
    tool_role::grant(&ledger, ROLE).await?;
    Ok(url_of(url, password))
}

/// The same database with the tools' role.
pub fn url_of(url: &str, password: &str) -> String {
    let place = url.rsplit_once('@').map_or(url, |(_, place)| place);
    format!("postgres://{ROLE}:{password}@{place}")
}

//! The secrets of the ledger's tokens.

use sqlx::PgConnection;

use super::StoreError;
use crate::wire::token::{TokenSecret, Tokens};

/// Reads both secrets. Two statements; takes no lock.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn secrets(connection: &mut PgConnection) -> Result<Tokens, StoreError> {
    let callers = read(connection, "SELECT secret FROM toolfleet.token_secret").await?;
    let tools = completion_secret(connection).await?;
    Ok(Tokens { callers, tools })
}

/// Reads the secret of the tokens that tools get, with which they answer later. Own statement; takes no lock.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn completion_secret(connection: &mut PgConnection) -> Result<TokenSecret, StoreError> {
    read(connection, "SELECT completion FROM toolfleet.token_secret").await
}

async fn read(connection: &mut PgConnection, sql: &'static str) -> Result<TokenSecret, StoreError> {
    let secret: Vec<u8> = sqlx::query_scalar(sql)
        .fetch_one(connection)
        .await
        .map_err(|error| StoreError::from_sqlx("read a secret of tokens", error))?;
    Ok(TokenSecret::new(&secret))
}

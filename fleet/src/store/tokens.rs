//! The secret of the ledger's tokens.

use sqlx::PgConnection;

use super::StoreError;
use crate::wire::token::TokenSecret;

/// Reads the secret. Own statement; takes no lock.
///
/// # Errors
///
/// Postgres does not answer.
pub async fn secret(connection: &mut PgConnection) -> Result<TokenSecret, StoreError> {
    let secret: Vec<u8> = sqlx::query_scalar("SELECT secret FROM toolfleet.token_secret")
        .fetch_one(connection)
        .await
        .map_err(|error| StoreError::from_sqlx("read the secret of tokens", error))?;
    Ok(TokenSecret::new(&secret))
}

//! Tokens of clients over HTTP: reads those that hold, and asks the ledger to make one or to revoke one.
//!
//! `toolfleet.create_token` and `toolfleet.revoke_token` in the database decide whether that may be, for people with psql and at
//! the command line alike; who did it and when stands in the row of the token, which nothing else changes. The secret of a token
//! never comes here: the ledger has its SHA-256, in a view that only gateways may read.

use std::time::Duration;

use sqlx::{PgExecutor, PgPool, Row as _, postgres::PgRow};

use super::{
    DecisionError, StoreError, answer::answer_within, columns::parse as parse_text,
    decision::decide,
};
pub use crate::tokens::{Scope, TokenRow, parse};
use crate::{
    ids::Label,
    tokens::{LiveTokens, NewSecret},
};

/// How long reading them may take: a token that is revoked is to be refused within two seconds.
const READ_MAX: Duration = Duration::from_secs(1);

/// A token that somebody wants to have.
#[derive(Debug, Clone, Copy)]
pub struct NewToken<'a> {
    /// Its id and its hash.
    pub secret: &'a NewSecret,
    /// Whose it is.
    pub name: &'a str,
    /// Its tenant; `None`: every tenant.
    pub tenant: Option<&'a Label>,
    /// What it is good for.
    pub scopes: &'a [Scope],
    /// The tools that it may call.
    pub tools: &'a [String],
    /// The author.
    pub actor: &'a str,
    /// Why.
    pub note: &'a str,
    /// How long it holds, in milliseconds; `None`: until somebody revokes it.
    pub for_ms: Option<i64>,
}

/// What a revocation came to. Each with the token as a row of the view `tokens`, as JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenRevoked {
    /// It does not hold any more.
    Now(String),
    /// Somebody had revoked it before.
    Before(String),
    /// There is no such token.
    NotFound,
}

/// Makes a token, and returns it as a row of the view `tokens`, as JSON.
///
/// Own autocommit statement; guard: it makes sense. Safe to repeat: the same token is recognised by its id and its hash. Locks the fleet's
/// row, so that there are no more than there may be.
///
/// # Errors
///
/// [`DecisionError::Invalid`] says what is wrong with it; otherwise Postgres does not answer.
pub async fn create(
    ledger: impl PgExecutor<'_>,
    token: &NewToken<'_>,
) -> Result<String, DecisionError> {
    let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.as_str()).collect();
    let asking = sqlx::query(
        "SELECT token::text FROM toolfleet.create_token($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(token.secret.id())
    .bind(token.name)
    .bind(&token.secret.hash()[..])
    .bind(token.tenant.map_or("*", Label::as_str))
    .bind(scopes)
    .bind(token.tools)
    .bind(token.actor)
    .bind(token.note)
    .bind(token.for_ms);
    decide("make a token", ledger, asking, |row| row.try_get("token")).await
}

/// Revokes a token: gateways refuse it within two seconds.
///
/// Own autocommit statement; guard: it was not revoked before. Safe to repeat: the first revocation stays as it was.
///
/// # Errors
///
/// [`DecisionError::Invalid`] says what is wrong with the request; otherwise Postgres does not answer.
pub async fn revoke(
    ledger: impl PgExecutor<'_>,
    token_id: &str,
    actor: &str,
    note: &str,
) -> Result<TokenRevoked, DecisionError> {
    let asking = sqlx::query("SELECT verdict, token::text FROM toolfleet.revoke_token($1, $2, $3)")
        .bind(token_id)
        .bind(actor)
        .bind(note);
    decide("revoke a token", ledger, asking, revoke_answer).await
}

fn revoke_answer(row: &PgRow) -> Result<TokenRevoked, sqlx::Error> {
    Ok(match row.try_get("verdict")? {
        "revoked" => TokenRevoked::Now(row.try_get("token")?),
        "already" => TokenRevoked::Before(row.try_get("token")?),
        "not_found" => TokenRevoked::NotFound,
        other => {
            let what = format!("{other:?} is not a known verdict");
            return Err(sqlx::Error::Decode(what.into()));
        }
    })
}

/// The tokens that hold: neither revoked nor expired. For the role of gateways.
///
/// # Errors
///
/// As for [`read`].
pub async fn live(pool: &PgPool) -> Result<Vec<TokenRow>, StoreError> {
    Ok(read(pool).await?.rows)
}

/// The same, with the moment by the clock of the ledger.
///
/// One statement, which takes no lock; safe to drop. A row that this program cannot read is left out, and so is a scope that it does not
/// know: neither gives anybody a right.
///
/// # Errors
///
/// Postgres does not answer within a second, or the role may not read the hashes.
pub async fn read(pool: &PgPool) -> Result<LiveTokens, StoreError> {
    let doing = "read the tokens";
    let reading = sqlx::query(
        "SELECT moment.at, token_id, name, hash, tenant, scopes, tools, expires_at \
         FROM (SELECT clock_timestamp() AS at) moment LEFT JOIN toolfleet.token_hashes ON true",
    )
    .fetch_all(pool);
    let rows = answer_within(doing, READ_MAX, reading).await?;
    let unreadable = |error| StoreError::unreadable(doing, error);
    let first = rows
        .first()
        .ok_or_else(|| unreadable(sqlx::Error::RowNotFound))?;
    let at = first.try_get("at").map_err(unreadable)?;
    let mut tokens = Vec::with_capacity(rows.len());
    for row in &rows {
        match token(row) {
            Ok(token) => tokens.extend(token),
            // The others hold all the same.
            Err(error) => {
                tracing::debug!(%error, "a token cannot be read by this program and is left out");
            }
        }
    }
    Ok(LiveTokens { rows: tokens, at })
}

/// A token; `None` in the one row that says that there is none.
fn token(row: &PgRow) -> Result<Option<TokenRow>, sqlx::Error> {
    let Some(token_id) = row.try_get("token_id")? else {
        return Ok(None);
    };
    let hash: &[u8] = row.try_get("hash")?;
    let hash = <[u8; 32]>::try_from(hash).map_err(|error| sqlx::Error::Decode(error.into()))?;
    let tenant: &str = row.try_get("tenant")?;
    let scopes: Vec<String> = row.try_get("scopes")?;
    Ok(Some(TokenRow {
        token_id,
        name: row.try_get("name")?,
        hash,
        tenant: (tenant != "*").then(|| parse_text(tenant)).transpose()?,
        scopes: scopes
            .iter()
            .filter_map(|scope| scope.parse().ok())
            .collect(),
        tools: row.try_get("tools")?,
        expires_at: row.try_get("expires_at")?,
    }))
}

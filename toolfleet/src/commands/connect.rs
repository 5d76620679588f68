//! Connections to the two servers, for a command that asks something and ends.

use std::{io, time::Duration};

use fleet::{
    bus::{BusError, connect::Bus},
    config::{BusArgs, ConfigError, StoreArgs},
    process,
    store::{StoreError, migrate::check_schema, session::Postgres},
};
use fleet_client::FleetClient;
use secrecy::SecretString;
use sqlx::{PgConnection, PgPool};

/// The name of this program at the servers.
const NAME: &str = "toolfleet";
/// How long looking at the schema may take, the connection included.
const SCHEMA_MAX: Duration = Duration::from_secs(10);

/// The ledger, if the URL is valid.
pub(super) fn postgres(url: &SecretString) -> Result<Postgres, ConfigError> {
    process::ledger(url, NAME)
}

/// A connection that may write: the server keeps what it commits, and this program knows the schema.
pub(super) async fn writer(url: &SecretString) -> anyhow::Result<PgConnection> {
    let postgres = postgres(url)?;
    let connection = postgres.connect().await?;
    known_schema(&postgres).await?;
    Ok(connection)
}

/// A connection for reading the views.
pub(super) async fn reader(store: &StoreArgs) -> anyhow::Result<PgPool> {
    reader_of(&store.database_url).await
}

/// The same for a URL.
pub(super) async fn reader_of(url: &SecretString) -> anyhow::Result<PgPool> {
    let postgres = postgres(url)?;
    match known_schema(&postgres).await {
        // A role that may only read the views, as in docs/history.md. The views are a promise, whatever the schema is.
        Err(StoreError::Refused { source, .. }) if is_denied(&source) => {}
        checked => checked?,
    }
    Ok(postgres.pool_for_reading(1))
}

/// Whether something failed because the role lacks the right.
pub(super) fn lacks_right(problem: &anyhow::Error) -> bool {
    let refused = problem.downcast_ref::<StoreError>();
    refused.is_some_and(
        |error| matches!(error, StoreError::Refused { source, .. } if is_denied(source)),
    )
}

/// Whether the role lacks the right (SQLSTATE 42501).
fn is_denied(source: &sqlx::Error) -> bool {
    let answer = source.as_database_error().and_then(|answer| answer.code());
    answer.is_some_and(|code| code == "42501")
}

/// NATS, if the server is fit.
pub(super) async fn bus(args: &BusArgs) -> Result<Bus, BusError> {
    process::check_bus_url(args)?;
    Bus::connect(args, NAME).await
}

/// A client of the fleet, over NATS.
pub(super) async fn client(args: &BusArgs) -> anyhow::Result<FleetClient> {
    let bus = bus(args).await?;
    Ok(FleetClient::of(&bus).await?)
}

/// Whether this program knows the schema. Bounded in time.
pub(super) async fn known_schema(postgres: &Postgres) -> Result<(), StoreError> {
    // Dropping it closes its own connection, which nothing else uses.
    let checked = tokio::time::timeout(SCHEMA_MAX, check_schema(postgres)).await;
    checked.unwrap_or_else(|elapsed| {
        let late = io::Error::new(io::ErrorKind::TimedOut, elapsed);
        let source = sqlx::Error::Io(late);
        Err(StoreError::Unavailable {
            doing: "check the schema",
            source,
        })
    })
}

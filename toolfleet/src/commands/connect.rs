//! The way to the two servers for a command that asks something and ends.

use std::{io, time::Duration};

use async_nats::ServerAddr;
use fleet::{
    bus::{BusError, connect::Bus},
    config::{BusArgs, ConfigError, StoreArgs},
    store::{StoreError, migrate::check_schema, session::Postgres},
    telemetry,
};
use secrecy::{ExposeSecret, SecretString};
use sqlx::{PgConnection, PgPool};

/// How this program names itself to the servers.
const NAME: &str = "toolfleet";
/// How long looking at the schema may take, the connection included.
const SCHEMA_MAX: Duration = Duration::from_secs(10);

/// The ledger, if the URL is one. The driver would take any scheme.
pub(super) fn postgres(url: &SecretString) -> Result<Postgres, ConfigError> {
    let schemes = ["postgres://", "postgresql://"];
    if !schemes
        .iter()
        .any(|scheme| url.expose_secret().starts_with(scheme))
    {
        return Err(ConfigError(vec![
            "DATABASE_URL is not a postgres:// URL".to_owned(),
        ]));
    }
    Postgres::new(url, NAME).map_err(|problem| ConfigError(vec![telemetry::report(&problem)]))
}

/// A connection that may write: to a server that keeps what it commits, and a schema that we know.
pub(super) async fn writer(url: &SecretString) -> anyhow::Result<PgConnection> {
    let postgres = postgres(url)?;
    let connection = postgres.connect().await?;
    known_schema(&postgres).await?;
    Ok(connection)
}

/// A connection for reading the views.
pub(super) async fn reader(store: &StoreArgs) -> anyhow::Result<PgPool> {
    let postgres = postgres(&store.database_url)?;
    known_schema(&postgres).await?;
    Ok(postgres.pool_for_reading(1))
}

/// NATS, if it is one that we can use.
pub(super) async fn bus(args: &BusArgs) -> Result<Bus, BusError> {
    check_url(args).map_err(|_sentence| BusError::BadUrl)?;
    Bus::connect(&args.nats_url, NAME, args.prefix.clone()).await
}

/// Whether the URLs are URLs: all that can be said about them without a server. The sentences do not contain them.
pub(super) fn check_urls(store: &StoreArgs, bus: &BusArgs) -> Vec<String> {
    let store = postgres(&store.database_url).err();
    let store = store
        .map(|ConfigError(sentences)| sentences)
        .unwrap_or_default();
    store.into_iter().chain(check_url(bus).err()).collect()
}

fn check_url(bus: &BusArgs) -> Result<(), String> {
    let parsed = bus.nats_url.expose_secret().parse::<ServerAddr>();
    // Its message may quote the URL.
    parsed
        .map(drop)
        .map_err(|_has_the_url| BusError::BadUrl.to_string())
}

/// Whether the schema is the one we know. Bounded in time.
pub(super) async fn known_schema(postgres: &Postgres) -> Result<(), StoreError> {
    // Dropping it closes its own connection; nothing else uses that one.
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

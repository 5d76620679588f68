//! The first steps of each process of a fleet: it finds both servers, checks them, and holds the prefix.

use crate::{
    bus::{BusError, connect::Bus, excess, prefix::PrefixClaim, rights::NatsRole},
    config::{BusArgs, StoreArgs},
    store::{
        PgConnection, StoreError, migrate,
        rights::{self, Duty},
        session::Postgres,
    },
};

/// What a process has that may take part in its fleet.
#[derive(Debug)]
pub struct Joined {
    /// The ledger. Lost writes have been looked for.
    pub postgres: Postgres,
    /// The first connection to it.
    pub connection: PgConnection,
    /// NATS.
    pub bus: Bus,
    /// The fleet's subjects, held for this ledger.
    pub prefix: PrefixClaim,
}

/// Finds the ledger, checks its server and schema, and warns of rights there that `duty` does not need.
///
/// # Errors
///
/// The server cannot be reached or used, or its schema is not this program's.
pub async fn ledger(store: &StoreArgs, name: &str, duty: Duty) -> Result<Postgres, StoreError> {
    let postgres = Postgres::new(&store.database_url, &format!("toolfleet {name}"))?;
    postgres.check_server().await?;
    migrate::check_schema(&postgres).await?;
    rights::tell_beyond(&postgres, &store.database_url, duty).await;
    Ok(postgres)
}

/// Joins the fleet of a ledger and a prefix, and warns of rights at NATS that `role` does not need.
///
/// Order: NATS, lost writes, prefix. Nothing is read or written before it is known whether writes were lost.
///
/// # Errors
///
/// A server cannot be reached or used, or the prefix is another ledger's.
pub async fn join<E>(
    postgres: Postgres,
    args: &BusArgs,
    name: &str,
    role: NatsRole<'_>,
) -> Result<Joined, E>
where
    E: From<StoreError> + From<BusError>,
{
    let bus = Bus::connect(args, name).await?;
    excess::tell(&bus, args, role).await;
    let prefix = PrefixClaim::new(bus.clone(), postgres.name().await?);
    postgres.recalled(prefix.recall().await?);
    let connection = postgres.connect().await?;
    let watermark = postgres.watermark();
    prefix
        .hold(&watermark.expect("a process that has connected knows a watermark"))
        .await?;
    Ok(Joined {
        postgres,
        connection,
        bus,
        prefix,
    })
}

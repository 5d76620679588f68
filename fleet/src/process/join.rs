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

/// Joins the fleet of a ledger and a prefix, and warns of rights that `duty` and `role` do not need.
///
/// Order: server and schema, NATS, lost writes, prefix. Nothing is read or written before it is known whether writes were lost.
///
/// # Errors
///
/// A server cannot be reached or used, its schema is not this program's, or the prefix is another ledger's.
pub async fn join<E>(
    store: &StoreArgs,
    bus: &BusArgs,
    name: &str,
    (duty, role): (Duty, NatsRole<'_>),
) -> Result<Joined, E>
where
    E: From<StoreError> + From<BusError>,
{
    let postgres = Postgres::new(&store.database_url, &format!("toolfleet {name}"))?;
    postgres.check_server().await?;
    migrate::check_schema(&postgres).await?;
    rights::tell_beyond(&postgres, &store.database_url, duty).await;
    let args = bus;
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

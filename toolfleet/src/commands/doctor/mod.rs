//! `toolfleet doctor`: checks the servers and the fleet, one line each; rebuilds the stream or takes the prefix when it is told
//! to.
//!
//! `check` is a line. `postgres`, `locks`, `nats`, `prefix`, `lost_writes`, `stream`, `fleet`, `tools`, `brakes` and `models` read
//! and judge, in this order. Each read is bounded in time: a server that hangs is a finding. Judging is separate from reading.
//! `gateway` looks with the rights of a gateway. `rebuild` and `take` change something.

mod brakes;
mod check;
mod fleet;
mod gateway;
mod locks;
mod lost_writes;
mod models;
mod nats;
mod postgres;
mod prefix;
mod rebuild;
mod rights;
mod stream;
mod take;
mod tools;

use std::process::ExitCode;

use ::fleet::{
    config::{BusArgs, ConfigError, StoreArgs},
    explain::Servers,
    process,
};
use serde_json::json;

use self::check::{Check, Status};
use super::{actor::user_at_host, connect, output, words};

/// What `doctor` is told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each line says ok, warn or FAIL, what was looked at, what was found, and what to do.\n\
                  Exit codes: 0 nothing fails, 1 something does, 64 a server turns us away or is not fit for the fleet, 69 one is not reachable"
)]
pub struct Doctor {
    /// Look as a gateway: give it the `DATABASE_URL`, `NATS_URL` and `NATS_INBOX` of one. What they may do is compared with what a gateway
    /// needs
    #[arg(long, conflicts_with_all = ["rebuild_stream", "take_prefix"])]
    gateway: bool,
    /// Delete the stream of pointers, make it and its consumers anew, and publish every call that may run from Postgres.
    /// Costs time, never a call; safe while the fleet runs, and to repeat
    #[arg(long)]
    rebuild_stream: bool,
    /// Give the prefix to this ledger although it belongs to another one, which will not come back. Refused while a dispatcher of
    /// that one is seen to live
    #[arg(long, requires = "note", conflicts_with = "rebuild_stream")]
    take_prefix: bool,
    /// With --take-prefix: how you know that the other ledger is gone. It is kept in `toolfleet.prefix_takeovers`
    #[arg(long, value_name = "TEXT", requires = "take_prefix", value_parser = words::note)]
    note: Option<String>,
    /// With --take-prefix: who says so, as it is kept; user@host without it
    #[arg(long, value_name = "NAME", default_value_t = user_at_host(), hide_default_value = true, value_parser = words::name)]
    by: String,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    bus: BusArgs,
    /// Print JSON: the worst status, and what was checked
    #[arg(long)]
    json: bool,
    /// Where the addresses come from.
    #[arg(skip)]
    pub(super) servers: Option<Servers>,
}

impl Doctor {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let wrong = process::check_urls(&self.store, &self.bus);
        if !wrong.is_empty() {
            return Err(ConfigError(wrong).into());
        }
        if self.rebuild_stream {
            return rebuild::run(&self.store, &self.bus, self.json).await;
        }
        if let Some(note) = self.note.filter(|_| self.take_prefix) {
            let reason = take::TakeReason { by: self.by, note };
            return take::run(&self.store, &self.bus, &reason, self.json).await;
        }
        let servers = self
            .servers
            .unwrap_or_else(|| Servers::of_variables(&self.store.database_url, &self.bus.nats_url));
        let checks = if self.gateway {
            gateway::examine(&self.store, &self.bus, &servers).await?
        } else {
            examine(&self.store, &self.bus, &servers).await?
        };
        if self.json {
            let worst = checks.iter().map(|check| check.status).max();
            let worst = worst.unwrap_or(Status::Ok);
            output::print_json(&json!({ "status": worst, "checks": checks }))?;
        } else {
            output::print(&check::lines(&checks))?;
        }
        Ok(ExitCode::from(check::exit_code(&checks)))
    }
}

async fn examine(
    store: &StoreArgs,
    bus: &BusArgs,
    servers: &Servers,
) -> Result<Vec<Check>, ConfigError> {
    let postgres = connect::postgres(&store.database_url)?;
    let (mut checks, seen) = postgres::look(&postgres, servers).await;
    checks.extend(rights::look(&postgres, store, bus).await);
    let connected = nats::look(bus, seen.ledger.as_ref(), servers, &mut checks).await;
    let mut foreign = None;
    if seen.ledger.is_some() {
        let (found, theirs) = lost_writes::look(&postgres, connected.as_ref()).await;
        checks.extend(found);
        foreign = theirs;
    }
    let mut dispatchers = None;
    if let Some(bus) = &connected {
        let heard = nats::dispatchers(bus).await;
        match (&foreign, &seen.ledger) {
            // Everything under another ledger's prefix is that ledger's, its dispatchers included.
            (Some(theirs), _) => {
                checks.push(prefix::unseen(bus.subjects.prefix(), theirs));
                checks.push(prefix::heard(heard, theirs));
            }
            (None, ledger) => {
                dispatchers = heard;
                if let Some(ledger) = ledger {
                    checks.extend(stream::look(bus, ledger, dispatchers).await);
                }
                checks.push(nats::heard(dispatchers));
            }
        }
    }
    if let Some(ledger) = &seen.ledger {
        checks.extend(fleet::judge(ledger));
        checks.extend(tools::look(&postgres, ledger).await);
        checks.extend(brakes::look(&postgres).await);
        checks.extend(models::look(&postgres).await);
    }
    if let Some(server) = &seen.server {
        let ledger = seen.ledger.as_ref();
        let workers = ledger.map_or(0, |ledger| ledger.living().count());
        checks.push(postgres::connections(
            server,
            workers,
            dispatchers.unwrap_or(0),
        ));
    }
    Ok(checks)
}

//! `doctor --take-prefix`: gives the prefix to this ledger, where the ledger that had it is gone.
//!
//! No process can prove that another ledger is gone. So a person says so, and the record keeps who and why. A process can only
//! see signs of life: a dispatcher answers, or the watermark moves meanwhile. Then nothing is taken.

use std::process::ExitCode;

use anyhow::bail;
use fleet::{
    bus::{prefix::PrefixClaim, watermark},
    config::{BusArgs, StoreArgs},
    owner::{PrefixOwner, owner},
    store::takeover::{self, Takeover},
};
use serde_json::json;

use super::{check::count, nats};
use crate::commands::{connect, output};

/// Who takes it, and why.
pub(super) struct TakeReason {
    pub(super) by: String,
    pub(super) note: String,
}

pub(super) async fn run(
    store: &StoreArgs,
    bus: &BusArgs,
    reason: &TakeReason,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let postgres = connect::postgres(&store.database_url)?;
    connect::known_schema(&postgres).await?;
    let ours = postgres.name().await?;
    let bus = connect::bus(bus).await?;
    let prefix = bus.subjects.prefix();
    let recalled = watermark::recall(&bus).await?;
    let theirs = match owner(ours.id, recalled.left.clone()) {
        PrefixOwner::Foreign(theirs) => theirs,
        PrefixOwner::Ours(_) => {
            let said = format!("prefix {prefix} belongs to this ledger, {ours}, already");
            return tell(
                json,
                "ours",
                &json!({ "ledger_id": ours.id, "prefix": prefix }),
                &said,
            );
        }
        PrefixOwner::Free | PrefixOwner::Unnamed(_) => {
            let said = format!("prefix {prefix} is no ledger's; the next process takes it");
            return tell(
                json,
                "free",
                &json!({ "ledger_id": ours.id, "prefix": prefix }),
                &said,
            );
        }
    };
    match nats::dispatchers(&bus).await {
        None => bail!(
            "NATS takes no question whether ledger {theirs} still has dispatchers: let this user publish to $SRV.> and read its inbox"
        ),
        Some(0) => {}
        Some(heard) => bail!(
            "prefix {prefix} belongs to ledger {theirs}, and {} of it answers callers: stop its processes first",
            count(heard, "dispatcher")
        ),
    }
    // Like a process that starts: NATS has no watermark of this ledger.
    postgres.recalled(None);
    let mut connection = postgres.connect().await?;
    let watermark = postgres.watermark();
    let watermark = watermark.expect("a process that has connected knows a watermark");
    let takeover = Takeover {
        prefix,
        former: &theirs,
        by: &reason.by,
        note: &reason.note,
    };
    let record = takeover::asked(&mut connection, takeover).await?;
    let claim = PrefixClaim::new(bus.clone(), ours.clone());
    if !claim.take_over(&recalled, &watermark).await? {
        bail!(
            "prefix {prefix} belongs to ledger {theirs}, and its watermark moves: stop its processes first"
        );
    }
    takeover::taken(&mut connection, record).await?;
    let said = format!(
        "prefix {prefix} belongs to this ledger, {ours}, now; it belonged to {theirs}. \
         What lies in the stream for that one goes with `toolfleet doctor --rebuild-stream`"
    );
    let taken = json!({ "ledger_id": ours.id, "former_ledger_id": theirs.id, "prefix": prefix });
    tell(json, "taken", &taken, &said)
}

fn tell(
    json: bool,
    result: &str,
    what: &serde_json::Value,
    said: &str,
) -> anyhow::Result<ExitCode> {
    if json {
        let mut told = what.clone();
        told["result"] = json!(result);
        output::print_json(&told)?;
    } else {
        output::print(said)?;
    }
    Ok(ExitCode::SUCCESS)
}

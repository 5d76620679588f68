//! `toolfleet workers fence`.

use std::process::ExitCode;

use anyhow::bail;
use fleet::{
    config::StoreArgs,
    ids::WorkerId,
    lease::LEASE,
    store::workers::{self, Evidence, Fenced},
};
use serde_json::json;

use crate::commands::{actor::user_at_host, connect, output, words};

/// What `workers fence` is told.
#[derive(Debug, clap::Args)]
pub struct Fence {
    /// The worker's id, from `toolfleet workers list`
    id: WorkerId,
    /// How you know that it and every process it had started are gone
    #[arg(long, value_name = "TEXT", value_parser = words::note)]
    note: String,
    /// Who says so, as the history will say; user@host without it
    #[arg(long, value_name = "NAME", default_value_t = user_at_host(), hide_default_value = true, value_parser = words::name)]
    by: String,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: an object with the worker's id and the result
    #[arg(long)]
    json: bool,
}

impl Fence {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let mut connection = connect::writer(&self.store.database_url).await?;
        let fence = workers::Fence {
            worker: self.id,
            by: &self.by,
            note: &self.note,
            evidence: Evidence::Word,
        };
        let fenced = workers::fence(&mut connection, fence).await?;
        let id = self.id;
        let (word, sentence) = match fenced {
            Fenced::Now => (
                "fenced",
                "is fenced; the sweep decides about what it ran within seconds",
            ),
            Fenced::Before => ("already_fenced", "had been fenced before"),
            Fenced::Left => ("left", "had left in order: nothing that it started lives"),
            Fenced::Alive => bail!(
                "worker {id} lives: it has beaten within the last {LEASE:?}. \
                 Stop it first, with all that it started; fencing it would not stop what it runs"
            ),
            Fenced::NotFound => {
                bail!("there is no worker {id}; see `toolfleet workers list --all`")
            }
        };
        if self.json {
            output::print_json(&json!({"worker_id": id, "result": word}))?;
        } else {
            output::print(&format!("worker {id} {sentence}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

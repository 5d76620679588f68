//! `toolfleet calls explain`.

use std::process::ExitCode;

use anyhow::{Context, bail};
use fleet::{config::StoreArgs, ids::CallId};
use fleet_history::explain::{explain, facts};
use serde_json::json;

use crate::commands::{connect, output, plain::plain};

/// What `calls explain` is told.
#[derive(Debug, clap::Args)]
pub struct Explain {
    /// The call's id, as every envelope has it
    call_id: CallId,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: `{"call_id", "state", "reason", "because", "next"}`; `reason` is one word for programs
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let Some(facts) = facts(&pool, self.call_id).await? else {
            bail!(
                "there is no call {}; its history may have been dropped",
                self.call_id
            );
        };
        let facts = facts.read().context("read the views of a call")?;
        let found = explain(&facts);
        if self.json {
            output::print_json(&json!({
                "call_id": self.call_id,
                "state": facts.state,
                "reason": found.reason,
                "because": found.because,
                "next": found.next,
            }))?;
        } else {
            let state = facts.state.as_str();
            output::print(&format!(
                "{state}: {}\n{}\n",
                plain(&found.because),
                plain(&found.next)
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

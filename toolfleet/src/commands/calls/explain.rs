//! `toolfleet calls explain`.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, bail};
use fleet::{
    bus::BusError,
    config::{BusArgs, StoreArgs},
    explain::{Origin, Servers},
    ids::CallId,
    process,
    store::server_check::Finding,
};
use fleet_history::explain::{explain, facts};
use serde_json::json;
use tokio::time::timeout;

use crate::commands::{connect, output, plain::plain};

/// How long NATS may take to answer.
const NATS_MAX: Duration = Duration::from_secs(3);

/// What `calls explain` is told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "NATS is asked whether it answers, for a call that waits, if its address is given"
)]
pub struct Explain {
    /// The call's id, as every envelope has it
    call_id: CallId,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    bus: BusArgs,
    /// Print JSON: `{"call_id", "state", "reason", "because", "next", "commands"}`; `reason` is one word for programs
    #[arg(long)]
    json: bool,
    /// Where the addresses come from.
    #[arg(skip)]
    pub(super) servers: Option<Servers>,
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
        let mut facts = facts.read().context("read the views of a call")?;
        if facts.waits_for_nats()
            && let Some(finding) = self.nats_is_away().await
        {
            facts.nats_is_away(finding);
        }
        let found = explain(&facts);
        if self.json {
            output::print_json(&json!({
                "call_id": self.call_id,
                "state": facts.state,
                "reason": found.reason,
                "because": found.because,
                "next": found.next,
                "commands": found.commands,
            }))?;
        } else {
            let state = facts.state.as_str();
            let commands = found.commands.iter().map(|line| plain(line));
            let lines = [
                format!("{state}: {}", plain(&found.because)),
                plain(&found.next),
            ];
            let lines: Vec<String> = lines.into_iter().chain(commands).collect();
            output::print(&format!("{}\n", lines.join("\n")))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Why NATS does not answer, and what to do; `None` where it does, or turns this user away, or no person gave its address:
    /// what reads the views needs no NATS.
    async fn nats_is_away(&self) -> Option<Finding> {
        let servers = self.servers.as_ref()?;
        if matches!(servers.bus.as_ref()?.origin, Origin::Usual { .. }) {
            return None;
        }
        let silent = || BusError::Unavailable {
            doing: "connect to NATS",
            source: None,
        };
        let asking = async {
            let bus = connect::bus(&self.bus).await?;
            if bus.answers().await {
                Ok(())
            } else {
                Err(silent())
            }
        };
        let asked = timeout(NATS_MAX, asking).await;
        let problem = asked.unwrap_or_else(|_elapsed| Err(silent())).err()?;
        // A server that turns a user away answers.
        let is_away = process::exit_code(&problem) == process::UNREACHABLE;
        is_away.then(|| fleet::explain::explain(&problem, servers))
    }
}

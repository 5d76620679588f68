//! `toolfleet tools retire`.

use std::process::ExitCode;

use anyhow::bail;
use fleet::{
    config::{BusArgs, StoreArgs},
    ids::ToolName,
    store::retire::{self, Retired},
};
use fleet_history::instant;
use serde_json::json;

use super::bell;
use crate::commands::{actor::user_at_host, connect, output, plain::plain, words};

/// What `tools retire` is told.
#[derive(Debug, clap::Args)]
pub struct Retire {
    /// The tool's name
    tool: ToolName,
    /// Why, for who asks later
    #[arg(long, value_name = "TEXT", value_parser = words::note)]
    note: String,
    /// Who says so, as the history will say; user@host without it
    #[arg(long, value_name = "NAME", default_value_t = user_at_host(), hide_default_value = true, value_parser = words::name)]
    by: String,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    bus: BusArgs,
    /// Print JSON: an object with the tool's name, its newest retired version and the result
    #[arg(long)]
    json: bool,
}

impl Retire {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let mut connection = connect::writer(&self.store.database_url).await?;
        let tool = &self.tool;
        let retire = retire::Retire {
            tool,
            by: &self.by,
            note: &self.note,
        };
        let (version, word, sentence) = match retire::retire(&mut connection, retire).await? {
            Retired::Now(version) => {
                bell::ring(&self.bus).await;
                let sentence = format!(
                    "is retired, up to version {version}: within seconds it is no longer offered, and new calls are refused; \
                     open calls go on"
                );
                (version, "retired", sentence)
            }
            Retired::Before(before) => {
                let (version, by) = (before.version, plain(&before.retired_by));
                let at = instant(before.retired_at);
                let sentence =
                    format!("had been retired before, up to version {version}, by {by} at {at}");
                (version, "already_retired", sentence)
            }
            Retired::NotFound => {
                bail!("there is no tool {tool}; `toolfleet tools list` says which there are")
            }
        };
        if self.json {
            output::print_json(&json!({"tool": tool, "version": version, "result": word}))?;
        } else {
            output::print(&format!("tool {tool} {sentence}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

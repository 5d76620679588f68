//! `toolfleet control purge`.

use std::process::ExitCode;

use fleet::{
    config::StoreArgs,
    ids::{Label, ToolName},
    store::answers::{self, Purge},
};
use serde_json::json;

use super::answered;
use crate::commands::{connect, output, words};

/// What `control purge` is told.
#[derive(Debug, clap::Args)]
pub struct PurgeAnswers {
    /// The tool whose kept answers count no more
    #[arg(long, value_name = "NAME")]
    tool: ToolName,
    /// Only the answers to this tenant
    #[arg(long, value_name = "NAME")]
    tenant: Option<Label>,
    /// Why, for who asks later
    #[arg(long, value_name = "TEXT", value_parser = words::note)]
    note: String,
    /// Who says so, as the log will say
    #[arg(long, value_name = "NAME", env = "USER", default_value = "cli", value_parser = words::name)]
    actor: String,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: an object with the result and the number of answers
    #[arg(long)]
    json: bool,
}

impl PurgeAnswers {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let mut connection = connect::writer(&self.store.database_url).await?;
        let purge = Purge {
            tool: self.tool.as_str(),
            tenant: self.tenant.as_ref().map(Label::as_str),
            actor: &self.actor,
            note: &self.note,
            in_tenant: None,
        };
        let purged = answered(answers::purge(&mut connection, &purge).await)?;
        if self.json {
            output::print_json(&json!({"result": "purged", "answers": purged}))?;
        } else {
            let whose = match &self.tenant {
                Some(tenant) => format!(" for the tenant {tenant}"),
                None => String::new(),
            };
            let answers = match purged {
                1 => "1 answer".to_owned(),
                some => format!("{some} answers"),
            };
            let tool = &self.tool;
            output::print(&format!(
                "{answers} of {tool}{whose} count no more, those included that were being fetched: the next call asks the tool"
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

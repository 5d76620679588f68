//! `toolfleet control list`.

use std::process::ExitCode;

use fleet::config::StoreArgs;
use fleet_history::{
    controls::{self, ListedControl},
    instant,
    tools::{ClientTool, client_tools},
};

use super::scope::{self, Refusing};
use crate::commands::{connect, output};

/// What `control list` is told.
#[derive(Debug, clap::Args)]
pub struct ListControls {
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: an array of rows of the view toolfleet.controls
    #[arg(long)]
    json: bool,
}

impl ListControls {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let rows = controls::controls(&pool).await?;
        let headings = [
            "ID", "KIND", "SETTING", "SCOPE", "WAITING", "UNTIL", "BY", "SINCE", "NOTE",
        ];
        let clients = client_tools(&pool).await?;
        output::print_rows(&rows, self.json, &headings, |control| {
            cells(control, &clients)
        })
    }
}

fn cells(control: ListedControl, clients: &[ClientTool]) -> Vec<String> {
    let setting = scope::setting(&control.scope);
    vec![
        control.control_id.to_string(),
        control.scope.kind.clone(),
        match scope::refusing(&control.scope, clients) {
            Refusing::None => setting,
            Refusing::All => format!("{setting} (client tool: refuse)"),
            Refusing::Some => format!("{setting} (client tools: refuse)"),
        },
        scope::told(&control.scope),
        control
            .waiting
            .map_or_else(|| "-".to_owned(), |calls| calls.to_string()),
        control.expires_at.map_or_else(|| "-".to_owned(), instant),
        control.actor,
        instant(control.set_at),
        control.note,
    ]
}

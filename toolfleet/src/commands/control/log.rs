//! `toolfleet control log`.

use std::process::ExitCode;

use fleet::config::StoreArgs;
use fleet_history::{
    controls::{self, ControlChange},
    instant,
};

use super::scope;
use crate::commands::{connect, output};

/// What `control log` is told.
#[derive(Debug, clap::Args)]
pub struct ControlLog {
    /// How many changes at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: an array of rows of the view `toolfleet.control_log`
    #[arg(long)]
    json: bool,
}

impl ControlLog {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let rows = controls::control_log(&pool, self.limit).await?;
        let headings = [
            "AT", "CHANGE", "ID", "KIND", "SETTING", "SCOPE", "BY", "NOTE",
        ];
        output::print_rows(&rows, self.json, &headings, cells)
    }
}

fn cells(change: ControlChange) -> Vec<String> {
    vec![
        instant(change.at),
        change.change,
        change.control_id.to_string(),
        change.scope.kind.clone(),
        scope::setting(&change.scope),
        scope::told(&change.scope),
        change.actor,
        change.note,
    ]
}

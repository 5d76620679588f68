//! `toolfleet migrate`.

use std::process::ExitCode;

use fleet::{config::StoreArgs, store::migrate};
use serde_json::json;

use super::{connect, output};

/// What `migrate` is told.
#[derive(Debug, clap::Args)]
pub struct Migrate {
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Migrate {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let postgres = connect::postgres(&self.store.database_url)?;
        // Reachable, and worth a schema: a server that forgets what it commits is refused before it has one.
        // Whether it lost writes is for dispatchers, which may need the schema before they can start.
        postgres.check_server().await?;
        let applied = migrate::migrate(&postgres).await?;
        if self.json {
            output::print_json(&json!({ "applied": applied }))?;
        } else {
            output::print(&sentence(applied))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn sentence(applied: usize) -> String {
    match applied {
        0 => "nothing to do".to_owned(),
        1 => "1 migration applied".to_owned(),
        several => format!("{several} migrations applied"),
    }
}

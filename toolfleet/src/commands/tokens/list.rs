//! `toolfleet tokens list`.

use std::process::ExitCode;

use fleet::config::StoreArgs;
use fleet_history::{
    instant,
    tokens::{ListedToken, tokens},
};

use crate::commands::{connect, output};

/// What `tokens list` is told.
#[derive(Debug, clap::Args)]
pub struct ListTokens {
    /// Those too that are revoked or expired
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: an array of rows of the view toolfleet.tokens
    #[arg(long)]
    json: bool,
}

impl ListTokens {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let rows = tokens(&pool, self.all).await?;
        let headings = [
            "ID", "NAME", "TENANT", "SCOPES", "TOOLS", "STATE", "UNTIL", "BY", "SINCE", "NOTE",
        ];
        output::print_rows(&rows, self.json, &headings, cells)
    }
}

fn cells(token: ListedToken) -> Vec<String> {
    let ended = token.revoked_at.or(token.expires_at);
    let note = match (token.revoked_by, token.revoke_note) {
        (Some(by), Some(why)) => format!("{}; revoked by {by}: {why}", token.note),
        _ => token.note,
    };
    vec![
        token.token_id,
        token.name,
        token.tenant,
        token.scopes.join(","),
        token.tools.join(","),
        token.state,
        ended.map_or_else(|| "-".to_owned(), instant),
        token.created_by,
        instant(token.created_at),
        note,
    ]
}

//! `toolfleet tokens`: who may come over HTTP, and for what. It asks Postgres, so it works without NATS.

mod create;
mod flags;
mod list;
mod revoke;

use std::process::ExitCode;

use clap::Subcommand;
use fleet_history::{instant, tokens::ListedToken};

/// What `tokens` can do.
#[derive(Debug, Subcommand)]
pub enum Tokens {
    /// Make a token, and print it: the only time that it can be seen
    #[command(after_help = create::HELP)]
    Create(Box<create::CreateToken>),
    /// List the tokens that hold: whose they are, what they allow, until when, who made them
    List(list::ListTokens),
    /// Revoke a token: within two seconds every gateway refuses it, and ends what it has opened
    Revoke(Box<revoke::RevokeToken>),
}

impl Tokens {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Create(create) => Box::pin(create.run()).await,
            Self::List(list) => list.run().await,
            Self::Revoke(revoke) => Box::pin(revoke.run()).await,
        }
    }
}

/// What a token allows, in a few words.
fn in_words(token: &ListedToken) -> String {
    let tenant = match token.tenant.as_str() {
        "*" => "every tenant".to_owned(),
        tenant => format!("tenant {tenant}"),
    };
    let tools = match &token.tools[..] {
        [all] if all == "*" => "every tool".to_owned(),
        tools => format!("tools {}", tools.join(", ")),
    };
    let until = token.expires_at.map_or_else(
        || "until it is revoked".to_owned(),
        |at| format!("until {}", instant(at)),
    );
    format!("{} in {tenant}, {tools}, {until}", token.scopes.join(", "))
}

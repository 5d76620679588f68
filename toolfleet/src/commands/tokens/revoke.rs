//! `toolfleet tokens revoke`.

use std::process::ExitCode;

use anyhow::bail;
use fleet::{
    config::{BusArgs, StoreArgs},
    store::tokens::{self, TokenRevoked},
};
use fleet_history::{Row, instant, tokens::ListedToken};
use serde_json::{json, value::RawValue};

use super::flags;
use crate::commands::{
    actor::user_at_host, connect, control::answered, output, plain::plain, tools::bell, words,
};

/// What `tokens revoke` is told.
#[derive(Debug, clap::Args)]
pub struct RevokeToken {
    /// The token's id, from `toolfleet tokens list`; the token itself will do
    id: String,
    /// Why, for who asks later
    #[arg(long, value_name = "TEXT", value_parser = words::note)]
    note: String,
    /// Who says so, as the list will say; user@host without it
    #[arg(long, value_name = "NAME", default_value_t = user_at_host(), hide_default_value = true, value_parser = words::name)]
    actor: String,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    bus: BusArgs,
    /// Print JSON: an object with the result and the token
    #[arg(long)]
    json: bool,
}

impl RevokeToken {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let id = flags::id(&self.id)?;
        let mut connection = connect::writer(&self.store.database_url).await?;
        let revoking = tokens::revoke(&mut connection, id, &self.actor, &self.note).await;
        let (word, row) = match answered(revoking)? {
            TokenRevoked::Now(row) => ("revoked", row),
            TokenRevoked::Before(row) => ("already_revoked", row),
            TokenRevoked::NotFound => {
                bail!("there is no token {id}; `toolfleet tokens list --all` says which there are")
            }
        };
        // Again, too: whoever asks twice may not have been heard the first time.
        bell::ring(&self.bus).await;
        if self.json {
            let token: Box<RawValue> = RawValue::from_string(row)?;
            output::print_json(&json!({"result": word, "token": token}))?;
        } else {
            output::print(&sentence(&Row::from(row).read()?, word))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn sentence(token: &ListedToken, word: &str) -> String {
    let (id, name) = (&token.token_id, &token.name);
    if word == "revoked" {
        return format!(
            "token {id} of {name} is revoked: every gateway refuses it within two seconds"
        );
    }
    let at = token.revoked_at.map(instant).unwrap_or_default();
    let by = plain(token.revoked_by.as_deref().unwrap_or_default());
    format!("token {id} of {name} was revoked before, at {at} by {by}")
}

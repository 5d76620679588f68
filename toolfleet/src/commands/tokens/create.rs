//! `toolfleet tokens create`.

use std::{collections::BTreeSet, process::ExitCode, time::Duration};

use fleet::{
    config::{BusArgs, StoreArgs},
    store::tokens::{self, NewToken, Scope},
    tokens::NewSecret,
};
use fleet_history::{Row, tokens::ListedToken};
use serde_json::{json, value::RawValue};

use super::flags::{self, TokenTenant};
use crate::commands::{
    actor::user_at_host, connect, control::answered, output, tools::bell, words,
};

pub(super) const HELP: &str = "\
The token alone goes to standard output, what it allows to standard error: TOKEN=$(toolfleet tokens create …) keeps it.
The ledger has only its SHA-256, so a token that is lost is revoked, and another one made.

Scopes: call, submit calls, cancel them and hand in what they wait for; read, calls and their history; approve, say yes or
no to calls that wait for it; settle, say what became of a call in doubt; admin, set controls and take them away.";

/// What `tokens create` is told.
#[derive(Debug, clap::Args)]
pub struct CreateToken {
    /// Whose it is: the history names them as the author of what is decided with it, and of its calls. Tokens of one name are one principal
    #[arg(long, value_parser = flags::name)]
    name: String,
    /// Its tenant; '*', in quotes, is every tenant
    #[arg(long, value_parser = flags::tenant)]
    tenant: TokenTenant,
    /// What it is good for; several times, or with commas
    #[arg(long = "scope", required = true, value_delimiter = ',', value_parser = words::one_of(Scope::ALL, Scope::as_str))]
    scopes: Vec<Scope>,
    /// The tools that it may call: names in which * stands for any letters, as in 'pay_*'; several times, or with commas
    #[arg(long, value_name = "PATTERN", value_delimiter = ',', default_value = "*", value_parser = flags::pattern)]
    tools: Vec<String>,
    /// How long it holds, such as 90d or 12h, at most 3650d; without it, until it is revoked
    #[arg(long, value_name = "DURATION", value_parser = flags::expires)]
    expires: Option<Duration>,
    /// What it is for, for who asks later
    #[arg(long, value_name = "TEXT", value_parser = words::note)]
    note: String,
    /// Who makes it, as the list will say; user@host without it
    #[arg(long, value_name = "NAME", default_value_t = user_at_host(), hide_default_value = true, value_parser = words::name)]
    actor: String,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    bus: BusArgs,
    /// Print JSON: an object with the token as `secret`, and what it allows as `token`
    #[arg(long)]
    json: bool,
}

impl CreateToken {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let secret = NewSecret::generate();
        let scopes: BTreeSet<Scope> = self.scopes.into_iter().collect();
        let scopes: Vec<Scope> = scopes.into_iter().collect();
        let for_ms = |lasts: Duration| i64::try_from(lasts.as_millis()).unwrap_or(i64::MAX);
        let token = NewToken {
            secret: &secret,
            name: &self.name,
            tenant: self.tenant.0.as_ref(),
            scopes: &scopes,
            tools: &self.tools,
            actor: &self.actor,
            note: &self.note,
            for_ms: self.expires.map(for_ms),
        };
        let mut connection = connect::writer(&self.store.database_url).await?;
        let row = answered(tokens::create(&mut connection, &token).await)?;
        // Before the bell, which may take seconds: nobody could show it again.
        if self.json {
            let token: Box<RawValue> = RawValue::from_string(row)?;
            output::print_json(&json!({"secret": secret.expose(), "token": token}))?;
        } else {
            let token: ListedToken = Row::from(row).read()?;
            let (id, name, allows) = (&token.token_id, &token.name, super::in_words(&token));
            output::print(secret.expose())?;
            output::warn(&format!(
                "token {id} of {name}: {allows}; it is not shown again, so keep it now, or `toolfleet tokens revoke {id} --note WHY`; every gateway takes \
                 it within two seconds"
            ));
        }
        bell::ring(&self.bus).await;
        Ok(ExitCode::SUCCESS)
    }
}

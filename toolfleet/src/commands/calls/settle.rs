//! `toolfleet calls settle`.

use std::process::ExitCode;

use fleet::{
    config::BusArgs,
    ids::{CallId, Label},
    store::settle::SettledAs,
};
use fleet_client::calls::Settling;
use nix::unistd::{User, geteuid, gethostname};
use serde_json::value::RawValue;

use crate::commands::{ask::unanswered, connect, given, output, usage::UsageError, words::one_of};

/// What `calls settle` is told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code 1 when it was not settled like this: `conflict`, `worker_not_fenced`, `not_found` (docs/errors)"
)]
pub struct Settle {
    /// The call's id, as every envelope has it
    call_id: CallId,
    /// What was found out
    #[arg(long, value_parser = one_of::<SettledAs>(SettledAs::ALL, SettledAs::as_str))]
    outcome: SettledAs,
    /// How that is known, for the history; at most 2000 characters
    #[arg(long, value_name = "TEXT")]
    note: String,
    /// Who says so, as the history will have it; user@host without it
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// The tool's answer, if it was found too: the JSON itself, @FILE, or @- for standard input
    #[arg(long, value_name = "JSON|@FILE|@-")]
    result: Option<String>,
    /// Believe that it was not applied although something of its attempts may still be alive; the history will say so
    #[arg(long)]
    by_time_only: bool,
    /// Whose call it is
    #[arg(long, default_value = "default")]
    tenant: Label,
    #[command(flatten)]
    bus: BusArgs,
    /// Print the envelope on one line
    #[arg(long)]
    json: bool,
}

impl Settle {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let result = match &self.result {
            Some(text) => Some(result(&given::bytes("--result", text)?)?),
            None => None,
        };
        let actor = self.actor.clone().unwrap_or_else(user_at_host);
        let settling = Settling {
            call_id: self.call_id,
            outcome: self.outcome,
            actor: &actor,
            note: &self.note,
            result,
            by_time_only: self.by_time_only,
        };
        let client = connect::client(&self.bus).await?;
        let advice = "ask again: what is settled like this already is recognised";
        let answer = client
            .settle(&self.tenant, &settling)
            .await
            .map_err(|problem| unanswered(problem, advice))?;
        let (refused, envelope) = (answer.head()?.is_refused(), answer.text()?);
        output::print_text(envelope, self.json)?;
        Ok(ExitCode::from(u8::from(refused)))
    }
}

fn result(bytes: &[u8]) -> Result<Box<RawValue>, UsageError> {
    serde_json::from_slice(bytes)
        .map_err(|wrong| UsageError(format!("--result is not JSON: {wrong}")))
}

fn user_at_host() -> String {
    let user = User::from_uid(geteuid()).ok().flatten();
    let user = user.map_or_else(|| geteuid().to_string(), |user| user.name);
    let host = gethostname().unwrap_or_else(|_unknown| "unknown".into());
    format!("{user}@{}", host.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_sent_token_by_token_and_text_is_no_result() {
        let sent = result(b" {\"id\": 9007199254740993, \"x\": 1E2} ").unwrap();
        assert_eq!(sent.get(), "{\"id\": 9007199254740993, \"x\": 1E2}");
        assert!(result(b"charged").is_err());
        let (_user, host) = user_at_host()
            .split_once('@')
            .map(|(user, host)| (user.to_owned(), host.to_owned()))
            .unwrap();
        assert!(!host.is_empty());
    }
}

//! `toolfleet calls settle`.

use std::process::ExitCode;

use anyhow::bail;
use fleet::{config::BusArgs, ids::CallId, store::settle::SettledAs, wire::code::Code};
use fleet_client::calls::Settling;
use fleet_history::{bulk::BulkVerb, instant, story};
use serde_json::value::RawValue;

use super::{
    bulk::{Bulk, CountOnly, LedgerFlag, ManyFlags, SettleStep, is_bulk},
    filter::{EndFlags, FilterFlags, WhichCalls, not_of, tenant_of_one},
};
use crate::commands::{ask::unanswered, connect, given, output, usage::UsageError, words::one_of};

/// What `calls settle` is told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without a call's id, all doubts for which every flag holds are counted, and with --yes settled one by one, each \
                  by its own fences (docs/dead-letters.md). The tenant of one call is `default` unless --tenant says otherwise.\n\
                  Exit code 1 when it was not settled like this: `conflict`, `worker_not_fenced`, `not_found` (docs/errors)"
)]
pub struct Settle {
    /// The call's id, as every envelope has it; without it, which calls
    call_id: Option<CallId>,
    /// What was found out
    #[arg(long, value_parser = one_of::<SettledAs>(SettledAs::ALL, SettledAs::as_str))]
    outcome: SettledAs,
    /// How that is known, for the history; at most 2000 characters
    #[arg(long, value_name = "TEXT")]
    note: String,
    /// The tool's answer, if it was found too: the JSON itself, @FILE, or @- for standard input
    #[arg(long, value_name = "JSON|@FILE|@-")]
    result: Option<String>,
    /// Believe that it was not applied although something of its attempts may still be alive; the history will say so
    #[arg(long)]
    by_time_only: bool,
    #[command(flatten)]
    flags: FilterFlags,
    #[command(flatten)]
    bulk: ManyFlags,
    #[command(flatten)]
    ledger: LedgerFlag,
    #[command(flatten)]
    bus: BusArgs,
    /// Print the envelope on one line; of many calls, what was found and done as JSON
    #[arg(long)]
    json: bool,
}

impl Settle {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let result = match &self.result {
            Some(text) => Some(result(&given::bytes("--result", text)?)?),
            None => None,
        };
        let actor = self.bulk.actor();
        let which = WhichCalls {
            flags: self.flags,
            ends: EndFlags::default(),
        };
        if is_bulk(self.call_id.as_ref(), &which, &self.bulk)? {
            if result.is_some() {
                let what = "--result is the answer of one call: many have none in common";
                return Err(UsageError(what.to_owned()).into());
            }
            let verb = BulkVerb::Settle(self.outcome);
            let bulk = Bulk::of(verb, &which, &self.bulk, &self.ledger, self.json).await?;
            if self.bulk.only_counts() {
                return bulk.run(&mut CountOnly).await;
            }
            let mut step = SettleStep {
                client: connect::client(&self.bus).await?,
                outcome: self.outcome,
                actor,
                note: &self.note,
                by_time_only: self.by_time_only,
            };
            return bulk.run(&mut step).await;
        }
        let Some(call_id) = self.call_id else {
            bail!("no call was named");
        };
        let settling = Settling {
            call_id,
            outcome: self.outcome,
            actor,
            note: &self.note,
            result,
            by_time_only: self.by_time_only,
        };
        let client = connect::client(&self.bus).await?;
        let advice = "ask again: what is settled like this already is recognised";
        let answer = client
            .settle(&tenant_of_one(&which), &settling)
            .await
            .map_err(|problem| unanswered(problem, advice))?;
        let (head, envelope) = (answer.head()?, answer.text()?);
        output::print_text(envelope, self.json)?;
        if head.code() == Code::NotFound.as_str() {
            output::warn(&not_of(&tenant_of_one(&which), call_id));
        } else if !head.is_refused()
            && let Some(other) = noted(&self.ledger, call_id, &self.note).await
        {
            output::warn(&other);
        }
        Ok(ExitCode::from(u8::from(head.is_refused())))
    }
}

/// That the call was settled like this before, with another note, which stays. `None` as well where the ledger cannot be asked: the
/// call is settled, and that is what was asked for.
async fn noted(ledger: &LedgerFlag, call: CallId, note: &str) -> Option<String> {
    let pool = connect::reader_of(ledger.url().ok()?).await.ok()?;
    let story = story::story(&pool, call).await.ok()??;
    let events = story.events.read().ok()?;
    let settled = events
        .into_iter()
        .rfind(|event| event.reason.starts_with("settled_"))?;
    let kept = settled.details?.note.filter(|kept| kept != note)?;
    let at = settled.at.map_or_else(String::new, instant);
    Some(format!(
        "it was settled like this before, at {at} by {}: {kept}. That stays, and the new note is not kept",
        settled.actor
    ))
}

fn result(bytes: &[u8]) -> Result<Box<RawValue>, UsageError> {
    serde_json::from_slice(bytes)
        .map_err(|wrong| UsageError(format!("--result is not JSON: {wrong}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_sent_token_by_token_and_text_is_no_result() {
        let sent = result(b" {\"id\": 9007199254740993, \"x\": 1E2} ").unwrap();
        assert_eq!(sent.get(), "{\"id\": 9007199254740993, \"x\": 1E2}");
        assert!(result(b"charged").is_err());
    }
}

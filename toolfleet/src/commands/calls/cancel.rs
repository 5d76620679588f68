//! `toolfleet calls cancel`.

use std::process::ExitCode;

use anyhow::bail;
use fleet::{
    config::BusArgs,
    ids::CallId,
    wire::{
        cancel::{CancelAnswer, CancelResult},
        code::Code,
    },
};
use fleet_client::calls::Cancelling;
use fleet_history::bulk::BulkVerb;

use super::{
    bulk::{Bulk, CancelStep, CountOnly, LedgerFlag, ManyFlags, is_bulk},
    filter::{EndFlags, FilterFlags, WhichCalls, not_of, tenant_of_one},
    taking_back::{TakenBack, take_back},
};
use crate::commands::{ask::unanswered, connect, json, output};

/// What `calls cancel` is told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without a call's id, all calls for which every flag holds are counted, and with --yes taken back one by one \
                  (docs/dead-letters.md). The tenant of one call is `default` unless --tenant says otherwise.\n\
                  Exit code 1 when the call was over before, cancelled or not, or is in doubt: then nothing is taken back"
)]
pub struct Cancel {
    /// The call's id, as every envelope has it; without it, which calls
    call_id: Option<CallId>,
    /// Why, for the history; at most 2000 characters
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    flags: FilterFlags,
    #[command(flatten)]
    ends: EndFlags,
    #[command(flatten)]
    bulk: ManyFlags,
    #[command(flatten)]
    ledger: LedgerFlag,
    #[command(flatten)]
    bus: BusArgs,
    /// Print the answer as JSON: `{"call_id", "state", "result"}`, or the envelope of a refusal; of many calls what was found and done
    #[arg(long)]
    json: bool,
}

impl Cancel {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let which = WhichCalls {
            flags: self.flags,
            ends: self.ends,
        };
        if is_bulk(self.call_id.as_ref(), &which, &self.bulk)? {
            let verb = BulkVerb::Cancel;
            let bulk = Bulk::of(verb, &which, &self.bulk, &self.ledger, self.json).await?;
            if self.bulk.only_counts() {
                return bulk.run(&mut CountOnly).await;
            }
            let mut step = CancelStep {
                client: connect::client(&self.bus).await?,
                reason: self.reason,
                actor: self.bulk.actor(),
            };
            return bulk.run(&mut step).await;
        }
        let Some(call) = self.call_id else {
            bail!("no call was named");
        };
        let client = connect::client(&self.bus).await?;
        let (tenant, actor) = (tenant_of_one(&which), self.bulk.actor());
        let cancelling = Cancelling {
            call_id: call,
            reason: self.reason.as_deref(),
            actor: Some(actor),
        };
        let TakenBack {
            answer,
            is_nameless,
        } = take_back(&client, &tenant, cancelling)
            .await
            .map_err(|problem| unanswered(problem, "ask again: that is safe"))?;
        let (head, text) = (answer.head()?, answer.text()?);
        if head.is_refused() {
            output::print_text(text, self.json)?;
            if head.code() == Code::NotFound.as_str() {
                output::warn(&not_of(&tenant, call));
            }
            return Ok(ExitCode::FAILURE);
        }
        if is_nameless {
            output::warn(&format!(
                "its dispatcher is of an older release, and has recorded `caller` in place of {actor}"
            ));
        }
        let read: CancelAnswer = answer.read()?;
        output::print(&if self.json {
            json::compact(text)
        } else {
            format!("{}: {}", read.result, sentence(&read))
        })?;
        Ok(ExitCode::from(u8::from(!is_taken_back(&read))))
    }
}

/// Whether this request cancelled something, as far as that can be known now.
fn is_taken_back(answer: &CancelAnswer) -> bool {
    match answer.result {
        CancelResult::Cancelled | CancelResult::CancelRequested => true,
        CancelResult::AlreadyTerminal | CancelResult::InDoubt => false,
    }
}

fn sentence(answer: &CancelAnswer) -> String {
    match answer.result {
        CancelResult::Cancelled => "it has not run and never will".to_owned(),
        CancelResult::CancelRequested => {
            "its worker is told to stop; `toolfleet calls show` says how it ends".to_owned()
        }
        CancelResult::AlreadyTerminal => format!("it was over before, {}", answer.state),
        CancelResult::InDoubt => format!(
            "it will not run again, but whether it had its effect is unknown; `toolfleet calls explain {}` says how to find out and how to \
             record it",
            answer.call_id
        ),
    }
}

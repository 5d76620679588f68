//! `toolfleet calls discard`: gives dead letters up, one or many.

use std::process::ExitCode;

use anyhow::{Context, bail};
use fleet::{
    ids::CallId,
    store::{
        DecisionError,
        marks::{self, CallMark, MarkVerdict, NewMarks},
    },
};
use fleet_history::{bulk::BulkVerb, instant, marks::Mark};

use super::{
    bulk::{Bulk, CountOnly, DiscardStep, LedgerFlag, ManyFlags, is_bulk},
    filter::{EndFlags, FilterFlags, WhichCalls},
};
use crate::commands::{connect, output, usage::UsageError, words};

/// What `calls discard` is told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The call stays in the history as it failed, and is no dead letter any more (docs/dead-letters.md). \
                  Exit code 1 when it is none"
)]
pub struct Discard {
    /// The call's id; without it, which calls
    call_id: Option<CallId>,
    /// Why it is given up, for the history; at most 2000 characters
    #[arg(long, value_name = "TEXT", value_parser = words::note)]
    note: String,
    #[command(flatten)]
    flags: FilterFlags,
    #[command(flatten)]
    ends: EndFlags,
    #[command(flatten)]
    bulk: ManyFlags,
    #[command(flatten)]
    ledger: LedgerFlag,
    /// Print JSON: what was found, and what was done
    #[arg(long)]
    json: bool,
}

impl Discard {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let which = WhichCalls {
            flags: self.flags,
            ends: self.ends,
        };
        let actor = self.bulk.actor();
        if is_bulk(self.call_id.as_ref(), &which, &self.bulk)? {
            let verb = BulkVerb::Discard;
            let bulk = Bulk::of(verb, &which, &self.bulk, &self.ledger, self.json).await?;
            if self.bulk.only_counts() {
                return bulk.run(&mut CountOnly).await;
            }
            let mut step = DiscardStep {
                ledger: connect::writer(self.ledger.url()?).await?,
                actor,
                note: &self.note,
            };
            return bulk.run(&mut step).await;
        }
        let Some(call) = self.call_id else {
            bail!("no call was named");
        };
        let mut ledger = connect::writer(self.ledger.url()?).await?;
        let asked = NewMarks {
            what: CallMark::Discarded,
            actor,
            note: Some(&self.note),
            bulk_name: None,
            calls: &[(call, None)],
        };
        let marked = match marks::mark(&mut ledger, &asked).await {
            Err(DecisionError::Invalid(why)) => return Err(UsageError(why).into()),
            marked => marked?,
        };
        let verdict = marked
            .first()
            .map_or(MarkVerdict::NotFound, |marked| marked.verdict);
        if verdict == MarkVerdict::Marked {
            tell_of_another(&self.ledger, call, actor, &self.note).await?;
        }
        if self.json {
            output::print_json(
                &serde_json::json!({"call_id": call.to_string(), "result": verdict.as_str()}),
            )?;
        } else {
            output::print(sentence(verdict))?;
        }
        Ok(ExitCode::from(u8::from(verdict != MarkVerdict::Marked)))
    }
}

/// Says so where the call has a mark of before: that one stays, with its author and note.
async fn tell_of_another(
    ledger: &LedgerFlag,
    call: CallId,
    actor: &str,
    note: &str,
) -> anyhow::Result<()> {
    let pool = connect::reader_of(ledger.url()?).await?;
    let marks = fleet_history::marks::marks(&pool, call).await?;
    let marks = marks.read().context("read the marks of a call")?;
    let is_other = |mark: &&Mark| {
        mark.call_id == call
            && mark.what == CallMark::Discarded.as_str()
            && (mark.actor != actor || mark.note.as_deref() != Some(note))
    };
    if let Some(mark) = marks.iter().find(is_other) {
        let note = mark.note.as_deref().unwrap_or_default();
        output::warn(&format!(
            "it was discarded before, at {} by {}: {note}. That stays, and the new note is not kept",
            instant(mark.at),
            mark.actor
        ));
    }
    Ok(())
}

const fn sentence(verdict: MarkVerdict) -> &'static str {
    match verdict {
        MarkVerdict::Marked => "discarded: it is no dead letter any more",
        MarkVerdict::NotDead => {
            "not_dead: it is no dead letter, or was made again already; `toolfleet calls show` says what it is"
        }
        MarkVerdict::UnderWay => {
            "under_way: a retry makes it again just now, or was killed at it; `toolfleet calls explain` says which and what to do"
        }
        MarkVerdict::NotOver => {
            "not_over: it is open or in doubt; `toolfleet calls cancel` or `settle` is for that"
        }
        MarkVerdict::NotFound => {
            "not_found: there is no such call; its history may have been dropped"
        }
    }
}

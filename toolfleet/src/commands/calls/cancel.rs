//! `toolfleet calls cancel`.

use std::process::ExitCode;

use fleet::{
    config::BusArgs,
    ids::{CallId, Label},
    wire::cancel::{CancelAnswer, CancelResult},
};

use crate::commands::{ask::unanswered, connect, json, output};

/// What `calls cancel` is told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit code 1 when the call was over before, cancelled or not, or is in doubt: then nothing is taken back"
)]
pub struct Cancel {
    /// The call's id, as every envelope has it
    call_id: CallId,
    /// Why, for the history; at most 2000 characters
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Whose call it is
    #[arg(long, default_value = "default")]
    tenant: Label,
    #[command(flatten)]
    bus: BusArgs,
    /// Print the answer as JSON: `{"call_id", "state", "result"}`, or the envelope of a refusal
    #[arg(long)]
    json: bool,
}

impl Cancel {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let client = connect::client(&self.bus).await?;
        let answer = client
            .cancel(&self.tenant, self.call_id, self.reason.as_deref())
            .await
            .map_err(|problem| unanswered(problem, "ask again: that is safe"))?;
        let text = answer.text()?;
        if answer.head()?.is_refused() {
            output::print_text(text, self.json)?;
            return Ok(ExitCode::FAILURE);
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
        CancelResult::InDoubt => {
            "it will not run again, but whether it had its effect is unknown; \
             look it up, then use `toolfleet calls settle`"
                .to_owned()
        }
    }
}

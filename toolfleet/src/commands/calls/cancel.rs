//! `toolfleet calls cancel`.

use std::process::ExitCode;

use anyhow::Context;
use fleet::{
    config::BusArgs,
    ids::{CallId, Label},
    wire::cancel::{CancelAnswer, CancelResult},
};
use serde_json::json;

use crate::commands::{
    ask::{DECISION_MAX, Question, Verdict, ask},
    connect, json, output,
};

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
        let bus = connect::bus(&self.bus).await?;
        let mut body = json!({ "call_id": self.call_id });
        if let Some(reason) = &self.reason {
            body["reason"] = reason.as_str().into();
        }
        let question = Question {
            subject: bus.subjects.cancel(&self.tenant),
            headers: async_nats::HeaderMap::new(),
            body: body.to_string().into_bytes(),
            wait: DECISION_MAX,
            advice: "ask again: that is safe",
        };
        let answer = ask(&bus, question).await?;
        if Verdict::of(&answer)?.is_refused() {
            output::print(&if self.json {
                json::compact(&answer)
            } else {
                json::pretty(&answer)
            })?;
            return Ok(ExitCode::FAILURE);
        }
        let read: CancelAnswer = serde_json::from_str(&answer).context("read the answer")?;
        output::print(&if self.json {
            json::compact(&answer)
        } else {
            format!("{}: {}", read.result, sentence(&read))
        })?;
        Ok(ExitCode::from(u8::from(!is_taken_back(&read))))
    }
}

/// Whether this request took something back, as far as it can be known now.
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
            "it will not run again, but nobody knows whether it had its effect; \
             look it up, then use `toolfleet calls settle`"
                .to_owned()
        }
    }
}

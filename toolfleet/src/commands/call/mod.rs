//! `toolfleet call`: one request, as any client in any language would send it; or a file of them, in batches.

mod bulk;
mod request;

use std::{process::ExitCode, time::Duration};

use fleet::{
    call::{Language, Priority},
    config::BusArgs,
    ids::{IdempotencyKey, Label, ToolName},
    wire::headers::RequestHeaders,
};
use serde_json::value::RawValue;

use self::{bulk::BulkArgs, request::Pair};
use super::{
    ask::{Question, SLACK, Verdict, ask},
    connect, json, output,
    words::one_of,
};

/// What `call` is told.
#[derive(Debug, clap::Args)]
pub struct Call {
    /// The tool's name
    #[arg(required_unless_present = "bulk")]
    tool: Option<ToolName>,
    /// Arguments; a value that is JSON is sent as that JSON (days=2, tags=["a"]), everything else as a string
    #[arg(value_name = "NAME=VALUE", conflicts_with = "args")]
    pairs: Vec<Pair>,
    /// The arguments as one JSON object, sent as it stands: the text itself, @FILE, or @- for standard input
    #[arg(long, value_name = "JSON|@FILE|@-")]
    args: Option<String>,
    /// The idempotency key: the same key is the same call, however often it is sent
    #[arg(long)]
    key: Option<IdempotencyKey>,
    /// Do not wait for the result: print the accepted envelope
    #[arg(long = "async", conflicts_with = "wait")]
    detach: bool,
    /// How long to wait for the result, 0 to 300; 30 without it
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=300))]
    wait: Option<u64>,
    /// Who calls
    #[arg(long, default_value = "default")]
    tenant: Label,
    /// How long the whole call may take from its acceptance; the tool's own deadline without it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400_000))]
    deadline_ms: Option<u64>,
    /// The session it belongs to
    #[arg(long)]
    session: Option<Label>,
    /// The run it belongs to
    #[arg(long)]
    run: Option<Label>,
    /// The tool's version; the current one without it
    #[arg(long = "version", value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    tool_version: Option<i32>,
    /// The language of messages; the tool's own without it
    #[arg(long, value_parser = one_of::<Language>(Language::ALL, Language::as_str))]
    language: Option<Language>,
    /// A JSON object that is stored with the call and handed to the tool
    #[arg(long, value_name = "JSON", value_parser = meta)]
    meta: Option<Box<RawValue>>,
    /// Which calls of the tenant go first; normal without it
    #[arg(long, value_parser = one_of::<Priority>(Priority::ALL, Priority::as_str))]
    priority: Option<Priority>,
    #[command(flatten)]
    bus: BusArgs,
    /// Print the envelope on one line; with --bulk, the summary as the last line, and no progress
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    bulk: BulkArgs,
}

impl Call {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        if self.bulk.is_asked() {
            return Box::pin(bulk::run(&self)).await;
        }
        let tool = self.tool.as_ref().expect("clap asks for it without --bulk");
        let body = request::body(&self)?;
        let headers = request::headers(&self)?;
        let bus = connect::bus(&self.bus).await?;
        let question = Question {
            subject: bus.subjects.call(&self.tenant, tool.as_str()),
            headers,
            body,
            wait: self.patience(),
            advice: advice(self.key.is_some()),
        };
        let envelope = ask(&bus, question).await?;
        let verdict = Verdict::of(&envelope)?;
        output::print(&if self.json {
            json::compact(&envelope)
        } else {
            json::pretty(&envelope)
        })?;
        Ok(ExitCode::from(u8::from(verdict.is_error)))
    }

    /// How long to wait for the answer in all.
    fn patience(&self) -> Duration {
        let asked = self
            .wait
            .map_or(RequestHeaders::WAIT_DEFAULT, Duration::from_secs);
        if self.detach { SLACK } else { asked + SLACK }
    }
}

/// What to do when nobody knows whether a call was accepted.
pub(super) const fn advice(has_key: bool) -> &'static str {
    if has_key {
        "the call may have been accepted: send it again with the same --key, which cannot make a second call"
    } else {
        "the call may have been accepted: look at `toolfleet calls list` before sending it again; with --key that would be safe"
    }
}

fn meta(text: &str) -> Result<Box<RawValue>, String> {
    let value: Box<RawValue> =
        serde_json::from_str(text).map_err(|wrong| format!("it is not JSON: {wrong}"))?;
    if value.get().trim_start().starts_with('{') {
        Ok(value)
    } else {
        Err("it must be a JSON object".to_owned())
    }
}

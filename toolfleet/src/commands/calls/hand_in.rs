//! `toolfleet calls output`.

use std::process::ExitCode;

use fleet::{
    config::BusArgs,
    ids::{CallId, Label},
    wire::code::Code,
};
use fleet_client::calls::{ClientFailure, ClientOutput, HandedIn};
use serde_json::value::RawValue;

use super::filter::not_of;
use crate::commands::{ask::unanswered, connect, given, output, usage::UsageError};

/// What `calls output` is told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The tool has the executor `client` (docs/client-tools.md), has said that it answers later (docs/completion.md), or asks for something \
                  (docs/asking.md). The same answer again is recognised, so it is safe to repeat.\n\
                  Exit code 1 when it was not taken: `invalid_arguments`, `conflict`, `already_terminal`, `not_found` (docs/errors)"
)]
pub struct HandIn {
    /// The call's id, as the envelope has it with which the call was handed out
    call_id: CallId,
    /// Its `awaiting.token`: the token itself, @FILE, or @- for standard input
    #[arg(long, value_name = "TOKEN|@FILE|@-")]
    token: String,
    /// What came of it: the JSON itself, @FILE, or @- for standard input
    #[arg(
        long,
        value_name = "JSON|@FILE|@-",
        required_unless_present_any = ["error", "input"],
        conflicts_with_all = ["error", "input"]
    )]
    result: Option<String>,
    /// What its tool has asked for, a JSON object: the JSON itself, @FILE, or @- for standard input
    #[arg(long, value_name = "JSON|@FILE|@-", conflicts_with = "error")]
    input: Option<String>,
    /// It failed, and why, for the model
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// A word for the error, for programs; at most 64 characters
    #[arg(long, value_name = "WORD", requires = "error")]
    code: Option<String>,
    /// It failed, and it is certain that nothing was done
    #[arg(long, requires = "error")]
    not_done: bool,
    /// Whose call it is
    #[arg(long, default_value = "default")]
    tenant: Label,
    #[command(flatten)]
    bus: BusArgs,
    /// Print the envelope on one line
    #[arg(long)]
    json: bool,
}

impl HandIn {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let token = given::bytes("--token", &self.token)?;
        let token = String::from_utf8(token)
            .map_err(|_not_text| UsageError("--token is not text".to_owned()))?;
        let answer = match (&self.result, &self.input, &self.error) {
            (Some(result), _, _) => ClientOutput::Did {
                result: json_of("--result", &given::bytes("--result", result)?)?,
            },
            (None, Some(input), _) => ClientOutput::Told {
                input: json_of("--input", &given::bytes("--input", input)?)?,
            },
            (None, None, error) => ClientOutput::Failed {
                error: ClientFailure {
                    message: error.as_deref().unwrap_or_default(),
                    code: self.code.as_deref(),
                },
                not_done: self.not_done,
            },
        };
        let handed_in = HandedIn {
            call_id: self.call_id,
            token: token.trim(),
            answer,
        };
        let client = connect::client(&self.bus).await?;
        let advice = "send it again: what was handed in already is recognised";
        let answer = client
            .output(&self.tenant, &handed_in)
            .await
            .map_err(|problem| unanswered(problem, advice))?;
        output::print_text(answer.text()?, self.json)?;
        let head = answer.head()?;
        if head.code() == Code::NotFound.as_str() {
            output::warn(&format!(
                "{}; or the token is not the one of this call",
                not_of(&self.tenant, self.call_id)
            ));
        }
        Ok(ExitCode::from(u8::from(head.is_refused())))
    }
}

fn json_of(flag: &str, bytes: &[u8]) -> Result<Box<RawValue>, UsageError> {
    serde_json::from_slice(bytes)
        .map_err(|wrong| UsageError(format!("{flag} is not JSON: {wrong}")))
}

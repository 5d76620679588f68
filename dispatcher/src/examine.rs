//! `check`: what the door would say of these arguments, by the same functions that a submission passes. Nothing is stored, no key is used,
//! no quota and no room is taken: the request has its slot, as every request has.
//!
//! It is about arguments alone. Whether a call of them would come in now, by its key, its tenant's quota or a pause, only a submission can
//! say.

use fleet::{
    arguments::Coercion,
    ids::ToolName,
    wire::{code::Code, error::ErrorBody},
};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::{
    answer::{Answer, bytes_max},
    check::{self, Submission},
    door::Door,
    refusal::{Refusal, language_for},
    request::Request,
};

/// What the door would say.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum ArgumentsVerdict {
    Accepted,
    Refused,
}

#[derive(Debug, Serialize)]
struct Examined {
    tool: ToolName,
    /// `None`: the arguments cannot be read, so no version was looked for.
    tool_version: Option<i32>,
    verdict: ArgumentsVerdict,
    /// As the tool gets them, in canonical form. `None`: they are refused, or too large for an answer.
    args: Option<Box<RawValue>>,
    coercions: Vec<Coercion>,
    /// Of the arguments as the tool gets them, in hex.
    args_hash: Option<String>,
    /// As the refusal of a submission has it.
    error: Option<ErrorBody>,
}

/// Says it.
///
/// # Errors
///
/// The request is refused: its names or headers are not right, there is no such tool, or answers that the arguments refer to cannot be
/// read now.
pub(crate) async fn examine(door: &Door, request: &Request<'_>) -> Result<Answer, Refusal> {
    let tenant = request.tenant()?;
    let tool = request.tool()?;
    let headers = request.headers()?;
    let reading = Submission::of(&door.registry, tenant, tool.clone(), headers, request.body);
    let examined = match reading.await {
        Ok(mut submission) => {
            let (found, fitted) =
                check::fitted(&door.registry, &door.pool, &mut submission).await?;
            let version = Some(found.manifest.version);
            match fitted {
                Ok(arguments) => Examined {
                    tool,
                    tool_version: version,
                    verdict: ArgumentsVerdict::Accepted,
                    args_hash: Some(hex::encode(arguments.hash)),
                    args: short(arguments.text, bytes_max(&door.bus)),
                    coercions: arguments.coercions,
                    error: None,
                },
                Err(refusal) => refused(door, request, tool, version, &refusal)?,
            }
        }
        Err(refusal) => refused(door, request, tool, None, &refusal)?,
    };
    let text = serde_json::to_string(&examined).expect("an answer has only string keys");
    Ok(Answer::json(text))
}

/// The text, where an answer can carry it beside the rest.
fn short(text: String, bytes_max: usize) -> Option<Box<RawValue>> {
    let fits = text.len() <= bytes_max / 2;
    fits.then(|| RawValue::from_string(text).ok()).flatten()
}

/// What is wrong with the arguments; an error where it is something else.
fn refused(
    door: &Door,
    request: &Request<'_>,
    tool: ToolName,
    tool_version: Option<i32>,
    refusal: &Refusal,
) -> Result<Examined, Refusal> {
    // The ledger cannot be read, or this dispatcher is about to stop.
    if matches!(refusal.code, Code::StoreUnavailable | Code::Overloaded) {
        return Err(refusal.clone());
    }
    let language = language_for(&door.registry, request.language(), request.name);
    Ok(Examined {
        tool,
        tool_version,
        verdict: ArgumentsVerdict::Refused,
        args: None,
        coercions: Vec::new(),
        args_hash: None,
        error: Some(refusal.error(language)),
    })
}

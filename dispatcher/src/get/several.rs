//! Which calls several keys have, and what became of them, without their results: for callers that number their keys.

use fleet::{
    call::{CallOutcome, EffectKnown},
    ids::{CallId, IdempotencyKey, Label, ToolName},
    said,
    store::{
        keys::{self, KeyRow},
        read::{self, CallRow},
    },
    wire::{code::Code, envelope::EnvelopeState},
};
use serde::Serialize;

use crate::{answer::Answer, door::Door, key, refusal::Refusal};

/// The most keys of a question.
const KEYS_MAX: usize = 16;

#[derive(Serialize)]
struct CallsOfKeys<'a> {
    calls: Vec<CallOfKey<'a>>,
}

/// A call, as far as it says whether its key may be given to another intention.
#[derive(Serialize)]
struct CallOfKey<'a> {
    idempotency_key: &'a IdempotencyKey,
    call_id: CallId,
    state: EnvelopeState,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<CallOutcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<EffectKnown>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Code>,
}

/// Answers with the calls of these keys, in the order of the keys; a key without a call of this tool, or one that has lapsed, is left out.
pub(super) async fn calls(
    door: &Door,
    tenant: &Label,
    tool: &ToolName,
    keys: &[IdempotencyKey],
) -> Result<Answer, Refusal> {
    if keys.is_empty() || keys.len() > KEYS_MAX {
        let what = said!(
            "idempotency_keys must be a list of 1 to {KEYS_MAX} keys",
            "idempotency_keys 必须是 1 到 {KEYS_MAX} 个键的列表"
        );
        return Err(Refusal::new(Code::InvalidArguments, what));
    }
    let hashes: Vec<[u8; 32]> = keys
        .iter()
        .map(|key| key::hash_of_callers(tenant, key))
        .collect();
    let found = keys::find_keys(&door.pool, tenant, &hashes).await;
    let found = found.map_err(|error| Refusal::unreadable(&error))?;
    let mut calls = Vec::with_capacity(found.len());
    for (key, hash) in keys.iter().zip(&hashes) {
        let of_tool = |row: &&KeyRow| !row.lapsed && row.tool == tool.as_str();
        let Some(row) = found.get(hash).filter(of_tool) else {
            continue;
        };
        let call = read::find_of(&door.pool, tenant, row.call_id).await;
        if let Some(call) = call.map_err(|error| Refusal::unreadable(&error))? {
            calls.push(CallOfKey::of(key, &call)?);
        }
    }
    let text = serde_json::to_string(&CallsOfKeys { calls });
    Ok(Answer::json(text.expect("calls have only string keys")))
}

impl<'a> CallOfKey<'a> {
    fn of(key: &'a IdempotencyKey, call: &CallRow) -> Result<Self, Refusal> {
        let envelope = call.envelope(true);
        let envelope = envelope.map_err(|error| Refusal::unreadable(&error))?;
        let state = EnvelopeState::Of(call.state());
        Ok(Self {
            idempotency_key: key,
            call_id: call.call_id,
            state: envelope.as_ref().map_or(state, |envelope| envelope.state),
            outcome: envelope.as_ref().map(|envelope| envelope.outcome),
            effect: envelope.as_ref().map(|envelope| envelope.effect),
            code: envelope.and_then(|envelope| Some(envelope.error?.code)),
        })
    }
}

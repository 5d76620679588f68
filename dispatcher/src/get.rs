//! `get`: how a call stands, by its id or by its key; on request only once it is decided.

use std::time::Duration;

use fleet::{
    ids::{IdempotencyKey, Label, ToolName},
    wire::{code::Code, message::Message},
};
use serde::Deserialize;

use crate::{
    accept::Door,
    answer::{Answer, Refusal},
    key, request,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GetRequest {
    call_id: Option<String>,
    tool: Option<ToolName>,
    idempotency_key: Option<IdempotencyKey>,
    wait_ms: Option<u64>,
}

/// Longest wait of a `get`.
const GET_WAIT_MAX: Duration = Duration::from_secs(300);

/// How one call stands, at once or when it is decided.
pub(crate) async fn get(door: &Door, tenant: &Label, body: &[u8]) -> Result<Answer, Refusal> {
    let form = Message::fixed(
        "call_id, or tool and idempotency_key, and perhaps wait_ms",
        "call_id，或 tool 和 idempotency_key，可以再加 wait_ms",
    );
    let asked: GetRequest = request::short(body, &form)?;
    let wait = Duration::from_millis(asked.wait_ms.unwrap_or(0));
    if wait > GET_WAIT_MAX {
        let what = Message::fixed("wait_ms must be at most 300000", "wait_ms 最多是 300000");
        return Err(Refusal::new(Code::InvalidArguments, what));
    }
    let call = match (asked.call_id, asked.tool, asked.idempotency_key) {
        (Some(id), None, None) => request::call_id(&id)?,
        (None, Some(tool), Some(key)) => {
            let found = door
                .find_key(tenant, &key::hash_of_callers(tenant, &key))
                .await?
                .filter(|found| !found.lapsed && found.tool == tool.as_str());
            found.ok_or_else(Refusal::not_found)?.call_id
        }
        (_, _, _) => {
            let what = Message::fixed(
                "give call_id, or tool and idempotency_key",
                "请给出 call_id，或 tool 和 idempotency_key",
            );
            return Err(Refusal::new(Code::InvalidArguments, what));
        }
    };
    if wait.is_zero() {
        door.as_it_stands(call, tenant, false).await
    } else {
        door.wait_for(call, tenant, wait, false).await
    }
}

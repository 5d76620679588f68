//! `get`: the state of a call, by its id or by its key, on request only once the call is decided; or which calls several keys have.

use std::time::Duration;

use fleet::{
    ids::{IdempotencyKey, ToolName},
    wire::{
        code::Code,
        headers::{QUESTION, WAIT_FOR},
        message::Message,
    },
};
use serde::Deserialize;

mod several;

use crate::{
    answer::Answer,
    door::Door,
    form, key,
    refusal::Refusal,
    replay::{Asker, as_it_stands, find_key, wait_for},
    request::Request,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GetRequest {
    call_id: Option<String>,
    tool: Option<ToolName>,
    idempotency_key: Option<IdempotencyKey>,
    idempotency_keys: Option<Vec<IdempotencyKey>>,
    wait_ms: Option<u64>,
}

/// The longest wait of a `get`.
const GET_WAIT_MAX: Duration = Duration::from_secs(300);

/// Answers with the state of one call, at once or when it is decided.
pub(crate) async fn get(door: &Door, request: &Request<'_>) -> Result<Answer, Refusal> {
    let tenant = request.tenant()?;
    let wanted = Message::fixed(
        "call_id, or tool and idempotency_key, and perhaps wait_ms; or tool and idempotency_keys",
        "call_id，或 tool 和 idempotency_key，可以再加 wait_ms；或 tool 和 idempotency_keys",
    );
    let asked: GetRequest = form::short(request.body, &wanted)?;
    if let (Some(tool), Some(keys)) = (&asked.tool, &asked.idempotency_keys)
        && asked.call_id.is_none()
        && asked.idempotency_key.is_none()
        && asked.wait_ms.is_none()
    {
        return several::calls(door, &tenant, tool, keys).await;
    }
    let wait = Duration::from_millis(asked.wait_ms.unwrap_or(0));
    if wait > GET_WAIT_MAX {
        let what = Message::fixed("wait_ms must be at most 300000", "wait_ms 最多是 300000");
        return Err(Refusal::new(Code::InvalidArguments, what));
    }
    let one = (asked.call_id, asked.tool, asked.idempotency_key);
    let call = match one {
        (Some(id), None, None) if asked.idempotency_keys.is_none() => form::call_id(&id)?,
        (None, Some(tool), Some(key)) if asked.idempotency_keys.is_none() => {
            let hash = key::hash_of_callers(&tenant, &key);
            let found = find_key(&door.pool, &tenant, &hash).await?;
            found
                .filter(|found| !found.lapsed && found.tool == tool.as_str())
                .ok_or_else(Refusal::not_found)?
                .call_id
        }
        (_, _, _) => {
            let what = Message::fixed(
                "give call_id, or tool and idempotency_key, or tool and idempotency_keys without wait_ms",
                "请给出 call_id，或 tool 和 idempotency_key，或不带 wait_ms 的 tool 和 idempotency_keys",
            );
            return Err(Refusal::new(Code::InvalidArguments, what));
        }
    };
    if wait.is_zero() {
        as_it_stands(door, call, &tenant, false).await
    } else {
        wait_for(door, call, &tenant, wait, asker(request)).await
    }
}

/// As whom a request waits. A header says it, and no field: dispatchers of the release before pass over headers that they do not know.
fn asker(request: &Request<'_>) -> Asker {
    let mut lines = request.headers.iter();
    let waits = |(name, value): &(&str, &str)| {
        name.eq_ignore_ascii_case(WAIT_FOR) && value.eq_ignore_ascii_case(QUESTION)
    };
    match lines.any(waits) {
        true => Asker::Asked,
        false => Asker::Other,
    }
}

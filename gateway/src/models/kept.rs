//! A reply of which the answer of its call has a part only: the ledger has all of it, as the views show it.

use fleet::{
    call::Language,
    ids::Label,
    store::PgPool,
    telemetry::report,
    wire::{code::Code, message::Message},
};
use fleet_history::calls::result_of;

use super::{
    error::ModelError,
    reply::{ModelReply, unreadable},
};
use crate::views::in_time;

/// The whole reply. The pool is that of the views.
///
/// # Errors
///
/// It cannot be read, or is not kept.
pub(super) async fn whole(
    pool: &PgPool,
    tenant: &Label,
    part: ModelReply,
    language: Language,
) -> Result<ModelReply, ModelError> {
    let call = Some(part.call);
    let result = in_time(result_of(pool, tenant.as_str(), part.call)).await;
    let result = result.map_err(|error| {
        tracing::debug!(error = report(&error), "a large reply cannot be read");
        ModelError::of_call(Code::StoreUnavailable, &UNREAD, call, language)
    })?;
    let whole = result.and_then(|result| part.in_ledger(result.into()));
    whole.ok_or_else(|| unreadable(call, language))
}

const UNREAD: Message = Message::fixed(
    "The call has worked, and its large reply cannot be read at the moment. It is kept: ask for it by its id, or, if the request had an Idempotency-Key, send it again with that.",
    "调用已成功，但目前无法读取它的大回复。回复已保存：请用它的 id 查询，如果请求带有 Idempotency-Key，也可以带上它再次发送。",
);

//! What a caller is told where the views cannot be read.

use fleet::{
    store::StoreError,
    telemetry::report,
    wire::{code::Code, message::Message},
};

use crate::refusal::Refused;

/// How long one statement may take, as Postgres writes it.
pub(crate) const STATEMENT_MAX: &str = "2s";

/// Why there is no answer from the views.
pub(crate) fn unreadable(error: &StoreError) -> Refused {
    if error.took_too_long() {
        let what = Message::fixed(
            "the history holds too much to look through for this within 2 s",
            "历史记录太多，无法在 2 秒内完成这次查询",
        );
        return Refused::new(Code::NarrowIt, what);
    }
    tracing::debug!(error = report(error), "the views cannot be read");
    let what = Message::fixed(
        "the history cannot be read at the moment",
        "目前无法读取历史记录",
    );
    Refused::later(Code::StoreUnavailable, what)
}

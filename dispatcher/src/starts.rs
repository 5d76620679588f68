//! Start times at the door: a new call of a tool with `on_limit: refuse` takes its start time here, or is refused.
//!
//! A known key is answered with its call before, so that a repetition takes none.

use std::time::Duration;

use fleet::{
    ids::{Label, ToolName},
    said,
    store::{
        PgPool, StoreError,
        starts::{self, Started, Wanted},
    },
    wire::code::Code,
};

use crate::{door::Door, refusal::Refusal};

/// The refusal of a call that could not start at once.
pub(crate) fn refusal(tool: &ToolName, next: Duration) -> Refusal {
    let what = said!(
        "the tool {tool} starts only so often, and no start is free now",
        "工具 {tool} 在一段时间内只能启动有限次，现在没有空余的启动名额"
    );
    let wait_ms = u64::try_from(next.as_millis()).unwrap_or(u64::MAX);
    Refusal::too_early(Code::RateLimited, what, wait_ms.max(1))
}

/// Takes a start time for a new call, or refuses it.
pub(crate) async fn enter(door: &Door, tenant: &Label, tool: &ToolName) -> Result<(), Refusal> {
    match take(&door.pool, tenant, &[(tool, 1)]).await?.first() {
        Some(started) if started.calls == 0 => Err(refusal(tool, started.next)),
        Some(_) | None => Ok(()),
    }
}

/// Takes start times for so many new calls of each of these tools, in one statement.
pub(crate) async fn take(
    pool: &PgPool,
    tenant: &Label,
    wanted: &[(&ToolName, u32)],
) -> Result<Vec<Started>, Refusal> {
    let wanted: Vec<Wanted<'_>> = wanted
        .iter()
        .map(|(tool, calls)| Wanted {
            tool,
            calls: *calls,
        })
        .collect();
    let taken: Result<_, StoreError> = starts::take(pool, tenant, &wanted).await;
    taken.map_err(|error| Refusal::unreadable(&error))
}

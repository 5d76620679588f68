//! Start times at the door: a new call of a tool with `on_limit: refuse` takes its start time here, or is refused.
//!
//! A known key is answered with its call before, so that a repetition takes none.

use std::time::Duration;

use fleet::{
    ids::{Label, ToolName},
    modes::{Brake, InterceptMode},
    rate_key::RateKey,
    said,
    store::starts::{self, Started, Wanted},
    telemetry::metrics,
    wire::code::Code,
};
use tokio::time::Instant;

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
pub(crate) async fn enter(
    door: &Door,
    tenant: &Label,
    tool: &ToolName,
    key: Option<RateKey>,
) -> Result<(), Refusal> {
    let wanted = Wanted {
        tool,
        key,
        calls: 1,
    };
    match take(door, tenant, &[wanted]).await?.first() {
        Some(started) if started.calls == 0 => Err(refusal(tool, started.next)),
        Some(_) | None => Ok(()),
    }
}

/// Takes start times for so many new calls of each of these tools and keys, in one statement. Where operators have switched the limit off,
/// none; where it only observes, all may start.
pub(crate) async fn take(
    door: &Door,
    tenant: &Label,
    wanted: &[Wanted<'_>],
) -> Result<Vec<Started>, Refusal> {
    let (controls, now) = (door.registry.controls(), Instant::now());
    let mode_of = |tool: &ToolName| {
        let modes = controls.modes();
        modes.of_brake(Brake::RateLimit, tool, Some(tenant), now)
    };
    let asked = wanted
        .iter()
        .filter(|of| mode_of(of.tool) != InterceptMode::Off);
    let asked: Vec<_> = asked.cloned().collect();
    let mut taken = Vec::new();
    if !asked.is_empty() {
        let taking = starts::take(&door.pool, tenant, &asked).await;
        taken = taking.map_err(|error| Refusal::unreadable(&error))?;
    }
    let mut taken = taken.into_iter();
    let started = wanted.iter().map(|Wanted { tool, calls, .. }| {
        let all = Started {
            calls: *calls,
            next: Duration::ZERO,
        };
        let some = match mode_of(tool) {
            InterceptMode::Off => None,
            InterceptMode::Enforce | InterceptMode::Observe => taken.next(),
        };
        match some {
            Some(some) if mode_of(tool) == InterceptMode::Observe => {
                for _ in some.calls..*calls {
                    metrics().observed(tool, Brake::RateLimit);
                }
                all
            }
            some => some.unwrap_or(all),
        }
    });
    Ok(started.collect())
}

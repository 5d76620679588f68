//! What has just failed to be summed up, or to sum up: for a while it is not asked for again, so that no call waits or pays for it.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use fleet::ids::{Label, ToolName};
use tokio::time::Instant;

/// How long a tool is not asked that did not answer.
const OF_TOOL: Duration = Duration::from_secs(30);
/// How long a beginning is not summed up of which an answer was no summary.
const OF_BEGINNING: Duration = Duration::from_secs(600);
/// The most that is remembered. One more is as if it had not failed.
const MOST: usize = 10_000;

/// What failed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in super::super) enum FailedSummary {
    /// Whatever this tool was asked for the tenant: one whose calls have little time says nothing of others.
    By(Label, ToolName),
    /// That of the tenant's beginning with this hash, by this tool.
    Of(Label, ToolName, [u8; 32]),
    /// Any for this tool of the tenant's, which has none that could write them.
    Without(Label, ToolName),
}

/// Until when, and why.
#[derive(Debug, Default)]
pub(in super::super) struct SummaryRests(Mutex<HashMap<FailedSummary, (Instant, &'static str)>>);

impl SummaryRests {
    /// Why it is not asked for now, if it is not.
    pub(in super::super) fn of(&self, failed: &FailedSummary) -> Option<&'static str> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, why) = *all.get(failed)?;
        (until > Instant::now()).then_some(why)
    }

    /// It has failed, for this reason.
    pub(in super::super) fn begin(&self, failed: FailedSummary, why: &'static str) {
        let now = Instant::now();
        let rest = match failed {
            FailedSummary::By(..) => OF_TOOL,
            FailedSummary::Of(..) | FailedSummary::Without(..) => OF_BEGINNING,
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST {
            all.retain(|_, (until, _)| *until > now);
        }
        if all.len() < MOST {
            all.insert(failed, (now + rest, why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_has_failed_is_not_asked_for_again_for_a_while() {
        let rests = SummaryRests::default();
        let of_tenant = |tenant: &str, name: &str| {
            FailedSummary::By(tenant.parse().unwrap(), name.parse().unwrap())
        };
        let by = |name: &str| of_tenant("acme", name);
        let of_beginning = |tenant: &str, name: &str| {
            FailedSummary::Of(tenant.parse().unwrap(), name.parse().unwrap(), [1; 32])
        };
        let of = of_beginning("acme", "sum_up");
        assert_eq!(rests.of(&by("sum_up")), None);
        rests.begin(by("sum_up"), "no_answer");
        rests.begin(of.clone(), "longer");
        assert_eq!(rests.of(&by("sum_up")), Some("no_answer"));
        assert_eq!(rests.of(&by("other")), None);
        assert_eq!(rests.of(&of_tenant("evil", "sum_up")), None);
        assert_eq!(rests.of(&of_beginning("evil", "sum_up")), None);
        assert_eq!(rests.of(&of_beginning("acme", "other")), None);
        tokio::time::advance(OF_TOOL).await;
        assert_eq!(rests.of(&by("sum_up")), None);
        assert_eq!(rests.of(&of), Some("longer"));
        tokio::time::advance(OF_BEGINNING).await;
        assert_eq!(rests.of(&of), None);
    }
}

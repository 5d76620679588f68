//! Says of many calls in doubt what they turned out to be. Each has its own fences.

use fleet::store::settle::SettledAs;
use fleet_client::{FleetClient, calls::Settling};
use fleet_history::bulk::BulkCall;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::{AT_A_TIME, Came, Step};
use crate::commands::ask::unanswered;

/// One request for each call.
pub(in crate::commands::calls) struct SettleStep<'a> {
    pub(in crate::commands::calls) client: FleetClient,
    pub(in crate::commands::calls) outcome: SettledAs,
    pub(in crate::commands::calls) actor: &'a str,
    pub(in crate::commands::calls) note: &'a str,
    pub(in crate::commands::calls) by_time_only: bool,
}

impl SettleStep<'_> {
    async fn settle(&self, call: &BulkCall) -> anyhow::Result<Came> {
        let tenant = call.tenant.parse()?;
        let settling = Settling {
            call_id: call.id(),
            outcome: self.outcome,
            actor: self.actor,
            note: self.note,
            result: None,
            by_time_only: self.by_time_only,
        };
        let advice = "asking again is safe: what is settled like this already is recognised";
        let answer = self
            .client
            .settle(&tenant, &settling)
            .await
            .map_err(|problem| unanswered(problem, advice))?;
        let head = answer.head()?;
        Ok(if head.is_refused() {
            let message = match head.error.as_ref().and_then(|error| error.retry_after_ms) {
                Some(wait_ms) => format!("{} (in {} s)", head.message(), wait_ms.div_ceil(1_000)),
                None => head.message().to_owned(),
            };
            Came::refused_as(call.id(), head.code(), &message)
        } else {
            Came::Done(match self.outcome {
                SettledAs::Applied => "settled_as_applied",
                SettledAs::NotApplied => "settled_as_not_applied",
                SettledAs::Abandoned => "abandoned",
            })
        })
    }
}

impl Step for SettleStep<'_> {
    async fn take(&mut self, calls: &[BulkCall]) -> anyhow::Result<Vec<Came>> {
        let this = &*self;
        stream::iter(calls)
            .map(|call| this.settle(call))
            .buffer_unordered(AT_A_TIME)
            .try_collect()
            .await
    }
}

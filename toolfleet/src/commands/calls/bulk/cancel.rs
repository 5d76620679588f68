//! Takes many calls back.

use fleet::wire::cancel::{CancelAnswer, CancelResult};
use fleet_client::{FleetClient, calls::Cancelling};
use fleet_history::bulk::BulkCall;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::{super::taking_back::take_back, AT_A_TIME, Came, Step};
use crate::commands::ask::unanswered;

/// One request for each call.
pub(in crate::commands::calls) struct CancelStep<'a> {
    pub(in crate::commands::calls) client: FleetClient,
    pub(in crate::commands::calls) reason: Option<String>,
    pub(in crate::commands::calls) actor: &'a str,
}

impl CancelStep<'_> {
    async fn cancel(&self, call: &BulkCall) -> anyhow::Result<Came> {
        let tenant = call.tenant.parse()?;
        let cancelling = Cancelling {
            call_id: call.id(),
            reason: self.reason.as_deref(),
            actor: Some(self.actor),
        };
        let answer = take_back(&self.client, &tenant, cancelling)
            .await
            .map_err(|problem| unanswered(problem, "asking again is safe"))?
            .answer;
        let head = answer.head()?;
        if head.is_refused() {
            return Ok(Came::refused_as(call.id(), head.code(), head.message()));
        }
        let read: CancelAnswer = answer.read()?;
        Ok(Came::Done(match read.result {
            CancelResult::Cancelled => "cancelled",
            CancelResult::CancelRequested => "told_to_stop",
            CancelResult::AlreadyTerminal => "over_before",
            CancelResult::InDoubt => "in_doubt",
        }))
    }
}

impl Step for CancelStep<'_> {
    async fn take(&mut self, calls: &[BulkCall]) -> anyhow::Result<Vec<Came>> {
        let this = &*self;
        stream::iter(calls)
            .map(|call| this.cancel(call))
            .buffer_unordered(AT_A_TIME)
            .try_collect()
            .await
    }
}

//! Takes many calls back.

use fleet::wire::cancel::{CancelAnswer, CancelResult};
use fleet_client::FleetClient;
use fleet_history::bulk::BulkCall;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::{AT_A_TIME, Came, Step};
use crate::commands::ask::unanswered;

/// One request for each call.
pub(in crate::commands::calls) struct CancelStep {
    pub(in crate::commands::calls) client: FleetClient,
    pub(in crate::commands::calls) reason: Option<String>,
}

impl CancelStep {
    async fn cancel(&self, call: &BulkCall) -> anyhow::Result<Came> {
        let tenant = call.tenant.parse()?;
        let answer = self
            .client
            .cancel(&tenant, call.id(), self.reason.as_deref())
            .await
            .map_err(|problem| unanswered(problem, "asking again is safe"))?;
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

impl Step for CancelStep {
    async fn take(&mut self, calls: &[BulkCall]) -> anyhow::Result<Vec<Came>> {
        let this = &*self;
        stream::iter(calls)
            .map(|call| this.cancel(call))
            .buffer_unordered(AT_A_TIME)
            .try_collect()
            .await
    }
}

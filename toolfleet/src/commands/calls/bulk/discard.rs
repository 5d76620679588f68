//! Gives many dead letters up: a mark for each.

use fleet::store::marks::{self, CallMark, MarkVerdict, NewMarks};
use fleet_history::bulk::BulkCall;
use sqlx::PgConnection;

use super::{Came, Step};

/// One statement for all of a step.
pub(in crate::commands::calls) struct DiscardStep<'a> {
    pub(in crate::commands::calls) ledger: PgConnection,
    pub(in crate::commands::calls) actor: &'a str,
    pub(in crate::commands::calls) note: &'a str,
}

impl Step for DiscardStep<'_> {
    async fn take(&mut self, calls: &[BulkCall]) -> anyhow::Result<Vec<Came>> {
        let calls: Vec<_> = calls.iter().map(|call| (call.id(), None)).collect();
        let marks = NewMarks {
            what: CallMark::Discarded,
            actor: self.actor,
            note: Some(self.note),
            bulk_name: None,
            calls: &calls,
        };
        let marked = marks::mark(&mut self.ledger, &marks).await?;
        let came = marked.iter().map(|marked| match marked.verdict {
            MarkVerdict::Marked => Came::Done("discarded"),
            MarkVerdict::UnderWay => Came::refused_as(
                marked.call_id,
                MarkVerdict::UnderWay.as_str(),
                "a retry makes it again, or was killed at it: toolfleet.retries_under_way has its name, or none where it is of this call alone; that command is to be given again",
            ),
            other => Came::refused(other.as_str()),
        });
        Ok(came.collect())
    }
}

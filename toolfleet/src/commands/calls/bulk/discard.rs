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
            other => Came::Refused(other.as_str().to_owned()),
        });
        Ok(came.collect())
    }
}

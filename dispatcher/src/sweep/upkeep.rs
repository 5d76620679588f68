//! Vacuum, the counts of open calls, and partitions.

use std::time::Duration;

use fleet::store::{
    StoreError, open_counts,
    sweep::{self, Upkeep},
};

use super::{Sweep, every, warn};

impl Sweep {
    /// Vacuums every few seconds, keeps partitions every hour. Cancel-safe: each is one statement.
    pub(super) async fn keep_up(self) {
        let (mut seldom, mut hourly) = (
            every(Duration::from_secs(5)),
            every(Duration::from_secs(3600)),
        );
        loop {
            let kept = tokio::select! {
                _ = seldom.tick() => self.vacuum().await,
                _ = hourly.tick() => self.partitions().await.and(self.recount().await),
            };
            warn("upkeep", kept);
        }
    }

    async fn vacuum(&self) -> Result<(), StoreError> {
        let mut connection = self.postgres.connect_for_upkeep().await?;
        open_counts::fold(&mut connection).await?;
        sweep::vacuum(&mut connection).await
    }

    async fn recount(&self) -> Result<(), StoreError> {
        let mut connection = self.postgres.connect_for_upkeep().await?;
        let righted = open_counts::recount(&mut connection).await?;
        if righted > 0 {
            tracing::warn!(
                tenants = righted,
                "the counts of open calls did not agree with the calls and were put right; \
                 something has written to the ledger without its triggers"
            );
        }
        Ok(())
    }

    async fn partitions(&self) -> Result<(), StoreError> {
        let mut connection = self.postgres.connect_for_upkeep().await?;
        let kept = sweep::keep_partitions(&mut connection, self.history_days).await?;
        if kept != Upkeep::default() {
            tracing::info!(
                made = kept.made,
                dropped_days = kept.dropped_days,
                "history partitions were kept"
            );
        }
        Ok(())
    }
}

//! When vacuum is due, the counts of open calls, and partitions.

use std::time::Duration;

use fleet::store::{
    StoreError, answers, breakers, model_spend, open_counts, starts, summaries,
    sweep::{self, Upkeep},
    timeouts, todos,
};

use super::{Sweep, every, vacuum::Vacuums};

/// How many steps of old answers are dropped in one go.
const ANSWER_STEPS: usize = 20;

/// How many steps of what models have cost, and of summaries, are forgotten in one go.
const SPEND_STEPS: usize = 20;

/// How many steps of todo lists are forgotten in one go.
const TODO_STEPS: usize = 20;

/// How many steps of buckets of values are dropped in one go: more than a fleet makes in a minute.
const BUCKET_STEPS: usize = 100;

impl Sweep {
    /// Vacuums every second where there is something to vacuum, for until then new rows go to pages of their own, and where
    /// a snapshot kept the dead rows, not before it is another one; folds counts every few seconds, drops old answers and buckets
    /// of values every minute, keeps partitions and forgets what models have cost and have summed up, and todo lists, every hour.
    /// Cancel-safe: each is one statement.
    pub(super) async fn keep_up(self) {
        let (mut often, mut seldom, mut minutely, mut hourly) = (
            every(Duration::from_secs(1)),
            every(Duration::from_secs(5)),
            every(Duration::from_secs(60)),
            every(Duration::from_secs(3600)),
        );
        let mut vacuums = Vacuums::default();
        loop {
            let kept = tokio::select! {
                _ = often.tick() => self.vacuum(&mut vacuums).await,
                _ = seldom.tick() => self.fold().await,
                _ = minutely.tick() => self.old_answers().await.and(self.buckets_of_values().await),
                _ = hourly.tick() => self.partitions().await.and(self.recount().await).and(self.buckets().await).and(self.breakers().await).and(self.run_times().await).and(self.old_spend().await).and(self.old_summaries().await).and(self.old_todos().await),
            };
            self.warn("upkeep", kept);
        }
    }

    async fn fold(&self) -> Result<(), StoreError> {
        let mut connection = self.postgres.connect_for_upkeep().await?;
        open_counts::fold(&mut connection).await?;
        model_spend::fold(&mut connection).await.map(drop)
    }

    /// At most so many steps at a time, so that nothing else waits for them.
    async fn old_spend(&self) -> Result<(), StoreError> {
        let mut connection = self.postgres.connect_for_upkeep().await?;
        for _step in 0..SPEND_STEPS {
            if !model_spend::drop_old(&mut connection, self.retention()).await? {
                break;
            }
        }
        Ok(())
    }

    /// At most so many steps at a time, so that nothing else waits for them.
    async fn old_summaries(&self) -> Result<(), StoreError> {
        let mut connection = self.postgres.connect_for_upkeep().await?;
        for _step in 0..SPEND_STEPS {
            if !summaries::drop_old(&mut connection, self.retention()).await? {
                break;
            }
        }
        Ok(())
    }

    /// How long the history is kept; `None`: for ever.
    fn retention(&self) -> Option<Duration> {
        self.history_days
            .map(|days| Duration::from_secs(86_400 * u64::from(days.unsigned_abs())))
    }

    /// At most so many steps at a time, so that nothing else waits for them.
    async fn old_todos(&self) -> Result<(), StoreError> {
        let Some(retention) = self.retention() else {
            return Ok(());
        };
        let mut connection = self.postgres.connect_for_upkeep().await?;
        for _step in 0..TODO_STEPS {
            if !todos::drop_old(&mut connection, retention).await? {
                break;
            }
        }
        Ok(())
    }

    /// At most so many steps at a time, so that nothing else waits for them.
    async fn old_answers(&self) -> Result<(), StoreError> {
        let mut connection = self.postgres.connect_for_upkeep().await?;
        for _step in 0..ANSWER_STEPS {
            if !answers::drop_old(&mut connection).await? {
                break;
            }
        }
        Ok(())
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

    async fn buckets(&self) -> Result<(), StoreError> {
        let mut connection = self.postgres.connect_for_upkeep().await?;
        starts::drop_unused(&mut connection).await.map(drop)
    }

    async fn buckets_of_values(&self) -> Result<(), StoreError> {
        // Those of a tool that has no such limit any more go with the others.
        let tools = self.registry.all_current();
        if !tools
            .iter()
            .any(|tool| tool.manifest.rate_pointer().is_some())
        {
            return Ok(());
        }
        let mut connection = self.postgres.connect_for_upkeep().await?;
        for _ in 0..BUCKET_STEPS {
            let dropped = starts::drop_unused_values(&mut connection).await?;
            if dropped < starts::DROPPED_AT_ONCE {
                break;
            }
        }
        Ok(())
    }

    async fn run_times(&self) -> Result<(), StoreError> {
        let mut connection = self.postgres.connect_for_upkeep().await?;
        timeouts::drop_old(&mut connection).await
    }

    /// Those that no call meets any more: an open one would stay so for ever.
    async fn breakers(&self) -> Result<(), StoreError> {
        let known = self.registry.breakers();
        let unmet = known.iter().filter(|(tool, breaker)| {
            self.registry.knows(tool) && !self.registry.meets_breaker(tool, &breaker.target)
        });
        let ids: Vec<_> = unmet.map(|(_, breaker)| breaker.id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let mut connection = self.postgres.connect_for_upkeep().await?;
        breakers::drop_unused(&mut connection, &ids).await.map(drop)
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

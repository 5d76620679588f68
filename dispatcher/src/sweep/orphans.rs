//! Messages in the stream that no worker will ever get, and that keep their calls from being published again.

use std::{collections::HashMap, time::Duration};

use fleet::{
    bus::{
        BusError,
        orphans::{self, Look, Repair},
    },
    ids::QueueName,
    telemetry::{metrics, report},
};

use super::{Sweep, every};

impl Sweep {
    /// Looks at every queue, and repairs what two looks in a row find. Cancel-safe: each repair is one request.
    pub(super) async fn sweep_orphans(self) {
        let mut ticks = every(Duration::from_secs(5));
        let mut seen = HashMap::new();
        loop {
            ticks.tick().await;
            if !self.bus.is_connected() {
                // Another server may answer next, or the same one with other files.
                seen.clear();
                continue;
            }
            for queue in self.queues() {
                if let Err(error) = self.orphans(&queue, &mut seen).await {
                    seen.remove(&queue);
                    tracing::warn!(
                        pass = "orphan",
                        %queue,
                        error = report(&error),
                        "a sweep was cut short; the next one goes on"
                    );
                }
            }
        }
    }

    async fn orphans(
        &self,
        queue: &QueueName,
        seen: &mut HashMap<QueueName, Look>,
    ) -> Result<(), BusError> {
        let Some(now) = orphans::look(&self.bus, queue).await? else {
            seen.remove(queue);
            return Ok(());
        };
        let Some(repair) = seen
            .insert(queue.clone(), now)
            .and_then(|before| now.repair(before))
        else {
            return Ok(());
        };
        seen.remove(queue);
        let purged = orphans::repair(&self.bus, queue, repair).await?;
        metrics().swept("orphan", purged);
        self.publisher.suspect();
        match repair {
            Repair::Purge { below } => tracing::warn!(
                %queue, below, purged,
                "the stream held messages that no worker would have got; they were purged, and what is queued is \
                 published again"
            ),
            Repair::Remake => tracing::warn!(
                %queue,
                "the consumer was ahead of its stream and was made anew; everything of the queue is delivered again"
            ),
        }
        Ok(())
    }
}

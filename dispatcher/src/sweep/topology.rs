//! The stream and its consumers, made again when they are gone.

use std::{collections::BTreeSet, time::Duration};

use fleet::{bus::topology, ids::QueueName, telemetry::report};

use super::{Sweep, every};

impl Sweep {
    /// Makes the stream and the consumers again when they are gone. Cancel-safe.
    pub(super) async fn keep_topology(self) {
        let mut ticks = every(Duration::from_secs(5));
        loop {
            ticks.tick().await;
            if !self.bus.is_connected() {
                continue;
            }
            let queues: Vec<QueueName> = self.queues().into_iter().collect();
            if let Err(error) = topology::ensure(&self.bus, &queues).await {
                tracing::warn!(
                    error = report(&error),
                    "the stream or a consumer could not be made; trying again"
                );
            }
        }
    }
    /// The queues that may have calls.
    pub(super) fn queues(&self) -> BTreeSet<QueueName> {
        let mut queues = self.registry.queues();
        queues.insert(
            "default"
                .parse()
                .expect("the default queue has a valid name"),
        );
        queues
    }
}

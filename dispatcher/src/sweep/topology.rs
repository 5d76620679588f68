//! Makes the stream and its consumers again when they are gone.

use std::{collections::BTreeSet, mem, time::Duration};

use fleet::{
    bus::{events, topology},
    ids::QueueName,
    telemetry::report,
};

use tokio::time::Instant;

use super::{Sweep, every};

/// How often it looks for a consumer although no tool is new.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How soon a new tool's queue is noticed.
const NOTICE: Duration = Duration::from_millis(250);

impl Sweep {
    /// Makes the stream and the consumers again when they are gone, and at once for a new tool's queue. Cancel-safe.
    pub(super) async fn keep_topology(self) {
        let mut ticks = every(NOTICE);
        let (mut ensured, mut looked) = (BTreeSet::new(), None::<Instant>);
        loop {
            ticks.tick().await;
            let queues = self.queues();
            let due = looked.is_none_or(|looked| looked.elapsed() >= LOOK_AGAIN);
            if !self.bus.is_connected() || (queues == ensured && !due) {
                continue;
            }
            looked = Some(Instant::now());
            let wanted: Vec<QueueName> = queues.iter().cloned().collect();
            // Consumers that could not be made are tried again at the next look.
            ensured = queues;
            match topology::ensure(&self.bus, &wanted).await {
                Ok(false) => {}
                // The new stream is empty, whatever was published before.
                Ok(true) => self.publisher.suspect(),
                Err(error) => {
                    self.publisher.suspect();
                    tracing::warn!(
                        error = report(&error),
                        "the stream or a consumer could not be made; trying again"
                    );
                }
            }
        }
    }

    /// Makes the stream of session events again when it is gone, and widens one of an earlier release once. Separate from the
    /// others, for no call depends on it. Cancel-safe.
    pub(super) async fn keep_events(self) {
        let mut ticks = every(LOOK_AGAIN);
        let (mut said, mut widened) = (false, false);
        loop {
            ticks.tick().await;
            if !self.bus.is_connected() {
                continue;
            }
            match events::ensure(&self.bus).await {
                Ok(()) => {
                    said = false;
                    if !mem::replace(&mut widened, true) {
                        self.widen_events().await;
                    }
                }
                Err(error) if !said => {
                    said = true;
                    tracing::warn!(
                        error = report(&error),
                        "session events are not kept for followers that come late"
                    );
                }
                Err(_again) => {}
            }
        }
    }

    async fn widen_events(&self) {
        if let Err(error) = events::widen(&self.bus).await {
            tracing::warn!(
                error = report(&error),
                "the stream of session events keeps its old limit of events for a call; a user from `toolfleet nats-config` may raise it"
            );
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

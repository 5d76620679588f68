//! Publishes queued calls whose pause is over.

use std::time::Duration;

use fleet::{
    checkpoint::{Checkpoint, reached},
    hold::Line,
    store::{StoreError, sweep},
    telemetry::metrics,
};

use super::{Sweep, every};

impl Sweep {
    /// Publishes the calls that are due, as far as there is room; the others are held in their lines. Cancel-safe: a call that
    /// was taken and not published is found by its age.
    pub(super) async fn sweep_due(self) {
        let mut ticks = every(Duration::from_millis(200));
        loop {
            ticks.tick().await;
            // Calls that are taken while nothing can be published wait longer than calls that are left.
            if self.bus.is_connected() {
                self.warn("due", self.due().await);
            }
        }
    }

    async fn due(&self) -> Result<(), StoreError> {
        loop {
            let due = sweep::take_due(&self.pool, &self.room()).await?;
            metrics().swept("due", due.publish.len() as u64 + due.held);
            if due.held > 0 {
                self.meter.look_at_lines();
            }
            if !due.publish.is_empty() {
                reached(Checkpoint::DueTaken);
            } else if due.held == 0 {
                return Ok(());
            }
            for call in &due.publish {
                self.meter.queue(&call.queue).count(1);
            }
            if !self.publish(due.publish).await {
                return Ok(());
            }
        }
    }

    /// The room in the lines of all queues. A line in which calls wait already has none.
    fn room(&self) -> Vec<(Line, usize)> {
        let queues = self.queues().into_iter();
        let room = queues.map(|queue| {
            let meter = self.meter.queue(&queue);
            let room = if meter.holds() { 0 } else { meter.room() };
            (
                Line::Queue(queue),
                usize::try_from(room).unwrap_or(usize::MAX),
            )
        });
        room.collect()
    }
}

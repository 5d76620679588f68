//! Queued calls whose pause is over.

use std::time::Duration;

use fleet::{
    store::{StoreError, sweep},
    telemetry::metrics,
};

use super::{Sweep, every, warn};

impl Sweep {
    /// Publishes what is due. Cancel-safe: what was taken and not published is found by its age.
    pub(super) async fn sweep_due(self) {
        let mut ticks = every(Duration::from_millis(200));
        loop {
            ticks.tick().await;
            // What is taken while nothing can be published waits longer than what is left.
            if self.bus.is_connected() {
                warn("due", self.due().await);
            }
        }
    }

    async fn due(&self) -> Result<(), StoreError> {
        loop {
            let due = sweep::take_due(&self.pool).await?;
            metrics().swept("due", due.len() as u64);
            if due.is_empty() || !self.publish(due).await {
                return Ok(());
            }
        }
    }
}

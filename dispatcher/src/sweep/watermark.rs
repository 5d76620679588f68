//! Moves the ledger's watermark forward every second, and publishes it to NATS for processes that start later.
//!
//! This loop is also the first to notice another Postgres: its connection is never idle for longer than a second, and every new
//! connection checks the server and compares the watermark.

use std::time::Duration;

use fleet::{
    lost_writes::Watermark,
    store::{PgConnection, StoreError, session::within, watermark},
    telemetry::report,
};
use tokio::time::timeout;

use super::{Sweep, every};

/// How long moving the watermark may take before its connection is given up.
const ADVANCE_MAX: Duration = Duration::from_secs(5);
/// How long publishing it may delay the next one; it is given up then.
const LEAVE_MAX: Duration = Duration::from_secs(1);

impl Sweep {
    /// Keeps the watermark. Cancel-safe: each is one statement.
    pub(super) async fn keep_watermark(self) {
        let mut ticks = every(Duration::from_secs(1));
        let mut connection = None;
        loop {
            ticks.tick().await;
            let moved = self.move_watermark(connection.take()).await;
            self.warn("watermark", moved.map(|moved| connection = Some(moved)));
        }
    }

    /// Returns the connection while it can be used.
    async fn move_watermark(
        &self,
        connection: Option<PgConnection>,
    ) -> Result<PgConnection, StoreError> {
        let mut connection = match connection {
            Some(connection) => connection,
            None => self.postgres.connect().await?,
        };
        let moving = watermark::advance(&mut connection);
        if let Some(watermark) = within("move the ledger's watermark", ADVANCE_MAX, moving).await? {
            self.postgres.remember(watermark.clone());
            if self.bus.is_connected() {
                self.leave_watermark(&watermark).await;
            }
        }
        Ok(connection)
    }

    /// Publishes the watermark for processes that start later. Another ledger's watermark stays: `held_until` ends this
    /// process.
    async fn leave_watermark(&self, watermark: &Watermark) {
        match timeout(LEAVE_MAX, self.prefix.hold(watermark)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(
                    error = report(&error),
                    "the ledger's watermark was not left in NATS"
                );
            }
            Err(_elapsed) => tracing::debug!("the ledger's watermark was not left in NATS in time"),
        }
    }
}

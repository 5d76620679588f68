//! The ledger's watermark: moved forward every second, and left in NATS for those who start later.
//!
//! This loop is also the first to see that Postgres has become another: its connection is never idle for longer than a
//! second, and connecting again checks the server and compares the watermark.

use std::time::Duration;

use fleet::{
    lost_writes::Watermark,
    store::{PgConnection, StoreError, session::within, watermark},
    telemetry::report,
};
use tokio::time::timeout;

use super::{Sweep, every, warn};

/// How long moving the watermark may take before its connection is given up.
const ADVANCE_MAX: Duration = Duration::from_secs(5);
/// How long leaving it may hold up the next; that one is left then.
const LEAVE_MAX: Duration = Duration::from_secs(1);

impl Sweep {
    /// Keeps the watermark. Cancel-safe: each is one statement.
    pub(super) async fn keep_watermark(self) {
        let mut ticks = every(Duration::from_secs(1));
        let mut connection = None;
        loop {
            ticks.tick().await;
            let moved = self.move_watermark(connection.take()).await;
            warn("watermark", moved.map(|moved| connection = Some(moved)));
        }
    }

    /// Gives the connection back while it can be used.
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

    /// Leaves a watermark for those who start later. Another ledger's stays: `held_until` ends the process for it.
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

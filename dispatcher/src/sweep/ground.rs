//! The ledger's mark: moved forward every second, and left in NATS for those who start later.
//!
//! This loop is also the first to see that Postgres has become another: its connection is never idle for longer than a
//! second, and connecting again judges the ground.

use std::time::Duration;

use fleet::{
    standing::Mark,
    store::{PgConnection, StoreError, session::within, standing},
    telemetry::report,
};
use tokio::time::timeout;

use super::{Sweep, every, warn};

/// How long moving the mark may take before its connection is given up.
const ADVANCE_MAX: Duration = Duration::from_secs(5);
/// How long leaving it may hold up the next; that one is left then.
const LEAVE_MAX: Duration = Duration::from_secs(1);

impl Sweep {
    /// Keeps the mark. Cancel-safe: each is one statement.
    pub(super) async fn keep_mark(self) {
        let mut ticks = every(Duration::from_secs(1));
        let mut connection = None;
        loop {
            ticks.tick().await;
            let moved = self.move_mark(connection.take()).await;
            warn("ground", moved.map(|moved| connection = Some(moved)));
        }
    }

    /// Gives the connection back while it can be used.
    async fn move_mark(
        &self,
        connection: Option<PgConnection>,
    ) -> Result<PgConnection, StoreError> {
        let mut connection = match connection {
            Some(connection) => connection,
            None => self.postgres.connect().await?,
        };
        let moving = standing::advance(&mut connection);
        if let Some(mark) = within("move the ledger's mark", ADVANCE_MAX, moving).await? {
            self.postgres.remember(mark.clone());
            if self.bus.is_connected() {
                self.leave_mark(&mark).await;
            }
        }
        Ok(connection)
    }

    /// Leaves a mark for those who start later. Another ledger's stays: `held_until` ends the process for it.
    async fn leave_mark(&self, mark: &Mark) {
        match timeout(LEAVE_MAX, self.prefix.hold(mark)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::debug!(
                    error = report(&error),
                    "the ledger's mark was not left in NATS"
                );
            }
            Err(_elapsed) => tracing::debug!("the ledger's mark was not left in NATS in time"),
        }
    }
}

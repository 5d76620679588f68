//! The ledger's mark: moved forward every second, and left in NATS for those who start later.
//!
//! This loop is also the first to see that Postgres has become another: its connection is never idle for longer than a
//! second, and connecting again judges the ground.

use std::time::Duration;

use fleet::{
    bus,
    store::{PgConnection, StoreError, session::within, standing},
};

use super::{Sweep, every, warn};

/// How long moving the mark may take before its connection is given up.
const ADVANCE_MAX: Duration = Duration::from_secs(5);

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
                bus::mark::leave(&self.bus, &mark).await;
            }
        }
        Ok(connection)
    }
}

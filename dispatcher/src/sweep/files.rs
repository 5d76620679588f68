//! Files whose time is over, and that no open call names.

use std::time::Duration;

use fleet::store::{StoreError, files};

use super::{Sweep, every};

/// How often it is looked.
const PERIOD: Duration = Duration::from_secs(2);
/// How many are deleted in one statement: 512 MiB at most, which takes about a second.
const AT_ONCE: u32 = 16;
/// How many such statements follow each other.
const STEPS: usize = 20;

impl Sweep {
    /// Deletes files in small steps, so that no statement takes long. Cancel-safe: each step is one statement.
    pub(super) async fn drop_files(self) {
        let mut ticks = every(PERIOD);
        loop {
            ticks.tick().await;
            let dropped = self.expired_files().await;
            self.warn("files", dropped);
        }
    }

    async fn expired_files(&self) -> Result<(), StoreError> {
        for _step in 0..STEPS {
            let dropped = files::drop_expired(&self.pool, AT_ONCE).await?;
            if dropped < AT_ONCE {
                break;
            }
        }
        Ok(())
    }
}

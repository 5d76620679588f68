//! The keys with which the URLs of files are signed: read when they are needed, and known for a little while.

use std::{sync::Arc, time::Duration};

use sqlx::{PgPool, Row as _};
use time::OffsetDateTime;
use tokio::{sync::Mutex, time::Instant};

use super::{StoreError, answer::answer_within};
use crate::{telemetry::report, wire::file_url::FileKeys};

/// How long reading them may take.
const READ_MAX: Duration = Duration::from_secs(1);

/// The keys, and the ledger's clock when they were read.
#[derive(Debug)]
pub struct ReadFileKeys {
    /// The keys.
    pub keys: FileKeys,
    at: OffsetDateTime,
    asked_at: Instant,
}

impl ReadFileKeys {
    /// What time it is by the ledger's clock, at most as much too late as reading the keys took. No clock of this machine is
    /// compared with it.
    pub fn now(&self) -> OffsetDateTime {
        self.at + self.asked_at.elapsed()
    }
}

/// The keys as this process knows them. Cheap to clone; clones share them.
#[derive(Debug, Clone)]
pub struct KnownFileKeys {
    pool: PgPool,
    known: Arc<Mutex<LastRead>>,
}

#[derive(Debug, Default)]
struct LastRead {
    read: Option<Arc<ReadFileKeys>>,
    /// When they could not be read.
    failed_at: Option<Instant>,
}

impl KnownFileKeys {
    /// Keys that were read so long ago are read again, if the ledger answers.
    pub const FRESH: Duration = Duration::from_secs(10);
    /// How often they are read at most, whatever is asked.
    pub const PAUSE: Duration = Duration::from_secs(1);
    /// How long they count while the ledger does not answer.
    pub const HOLDS: Duration = Duration::from_secs(60);

    /// Reads them from here, when they are asked for.
    pub fn new(pool: PgPool) -> Self {
        Self {
            pool,
            known: Arc::default(),
        }
    }

    /// Keys that are not older than this, if that can be had within a second; `None` where none are known that count. Takes no lock of the
    /// ledger; safe to drop.
    pub async fn get(&self, age_max: Duration) -> Option<Arc<ReadFileKeys>> {
        // One asks, the others wait for what it gets.
        let mut known = self.known.lock().await;
        let counts = |read: &&Arc<ReadFileKeys>, max| read.asked_at.elapsed() < max;
        let age_max = age_max.max(Self::PAUSE);
        if let Some(read) = known.read.as_ref().filter(|read| counts(read, age_max)) {
            return Some(Arc::clone(read));
        }
        let has_just_failed = known
            .failed_at
            .is_some_and(|failed_at| failed_at.elapsed() < Self::PAUSE);
        if !has_just_failed {
            match read(&self.pool).await {
                Ok(read) => known.read = Some(Arc::new(read)),
                Err(error) => {
                    tracing::debug!(error = report(&error), "the keys of files cannot be read");
                    known.failed_at = Some(Instant::now());
                }
            }
        }
        let read = known.read.as_ref().filter(|read| counts(read, Self::HOLDS));
        read.map(Arc::clone)
    }
}

/// Reads them. Own statement; takes no lock.
///
/// # Errors
///
/// Postgres does not answer within a second, or the role may not read them.
async fn read(pool: &PgPool) -> Result<ReadFileKeys, StoreError> {
    let doing = "read the keys of files";
    let asked_at = Instant::now();
    let reading =
        sqlx::query("SELECT current, previous, clock_timestamp() AS at FROM toolfleet.file_keys")
            .fetch_one(pool);
    let row = answer_within(doing, READ_MAX, reading).await?;
    let read = || -> Result<ReadFileKeys, sqlx::Error> {
        let current: &[u8] = row.try_get("current")?;
        let previous: Option<&[u8]> = row.try_get("previous")?;
        let at = row.try_get("at")?;
        Ok(ReadFileKeys {
            keys: FileKeys::new(current, previous),
            at,
            asked_at,
        })
    };
    read().map_err(|error| StoreError::unreadable(doing, error))
}

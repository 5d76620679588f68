//! With what request states are signed: the keys of the ledger, so that any gateway can read them, or where there is no ledger, one of this
//! program's own.

use fleet::{store::file_keys::KnownFileKeys, wire::file_url::FileKeys};
use time::OffsetDateTime;
use tokio::time::Instant;
use uuid::Uuid;

/// Where keys are.
#[derive(Debug)]
pub(crate) enum StateKeys {
    /// In the ledger.
    Ledger(KnownFileKeys),
    /// Here alone.
    Own(Box<OwnKeys>),
}

/// Keys of this program.
#[derive(Debug)]
pub(crate) struct OwnKeys {
    keys: FileKeys,
    /// Their clock begins with them.
    since: Instant,
}

impl StateKeys {
    /// Keys that are known nowhere else.
    pub(crate) fn own() -> Self {
        let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
        let secret = [one.into_bytes(), other.into_bytes()].concat();
        Self::Own(Box::new(OwnKeys {
            keys: FileKeys::new(&secret, None),
            since: Instant::now(),
        }))
    }

    /// The keys, and what time it is by their clock; `None`: they cannot be read at the moment. `newest`: those that are known may be old.
    pub(crate) async fn get(&self, newest: bool) -> Option<(FileKeys, OffsetDateTime)> {
        match self {
            Self::Own(own) => {
                let now = OffsetDateTime::UNIX_EPOCH + own.since.elapsed();
                Some((own.keys.clone(), now))
            }
            Self::Ledger(known) => {
                let age_max = match newest {
                    true => KnownFileKeys::PAUSE,
                    false => KnownFileKeys::FRESH,
                };
                let read = known.get(age_max).await?;
                Some((read.keys.clone(), read.now()))
            }
        }
    }
}

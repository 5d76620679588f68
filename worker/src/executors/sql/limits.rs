//! What bounds an attempt's transaction, and what is known in it, as settings of the server.

use std::time::Duration;

use tokio::time::Instant;

use crate::executors::LINGER_MAX;

/// How long a lock may be waited for; less when the attempt has less time.
const LOCK_TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// How an attempt's transaction is to be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Whether the server refuses writes.
    pub read_only: bool,
    /// When it must have answered.
    pub until: Instant,
    /// The most bytes of an answer.
    pub output_limit: usize,
}

impl Limits {
    /// As settings of a transaction. `standard_conforming_strings` is how the checks of statements read them.
    pub(super) fn settings(&self) -> [(&'static str, String); 4] {
        let left = self
            .until
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(1));
        let lock = (left / 2).min(LOCK_TIMEOUT_MAX);
        [
            ("standard_conforming_strings", "on".to_owned()),
            ("statement_timeout", milliseconds(left)),
            ("lock_timeout", milliseconds(lock)),
            (
                "idle_in_transaction_session_timeout",
                milliseconds(left + LINGER_MAX),
            ),
        ]
    }
}

/// What Postgres takes: 0 would be no limit.
fn milliseconds(duration: Duration) -> String {
    let milliseconds = i32::try_from(duration.as_millis()).unwrap_or(i32::MAX);
    milliseconds.max(1).to_string()
}

//! Waiting for facts: no test sleeps and hopes.

use std::time::{Duration, Instant};

/// Far more than anything here takes on a busy machine.
pub const LONG: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(5);

/// Looks until there is something to see, and returns it.
///
/// # Panics
///
/// There is nothing after [`LONG`]; the message names what was awaited.
pub async fn until<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    until_within(LONG, what, look).await
}

/// Looks until there is something to see, for what takes longer because there is so much of it.
///
/// # Panics
///
/// There is nothing after `limit`; the message names what was awaited.
pub async fn until_within<T>(
    limit: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> T {
    let began = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(began.elapsed() < limit, "waited {limit:?} for {what}");
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until something is so.
///
/// # Panics
///
/// It is not so after [`LONG`]; the message names what was awaited.
pub async fn until_so(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    until(what, async || is_so().await.then_some(())).await;
}

//! Expiry on time: which calls a dispatcher expects to be over, and when it has a look at them.
//!
//! Postgres's clock decides, in the look; here is only when a look is worth it. A caller who waits has a timer of its own and
//! asks. Of the other calls those that are over soon are remembered: when they are accepted, and when the walk over open calls
//! meets them. So nothing is stored for it and no index kept, and a call that ends in time costs nothing.

mod upcoming;

use std::{
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fleet::ids::CallId;
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::{Instant, sleep_until},
};

use self::upcoming::Upcoming;

/// What one dispatcher expects to expire. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Expiry {
    inner: Arc<Expected>,
    asking: mpsc::Sender<Question>,
}

#[derive(Debug)]
struct Expected {
    upcoming: Mutex<Upcoming>,
    /// Something comes before all that was waited for.
    sooner: Notify,
    /// What is over later than this from now on is met by the walk before that, in milliseconds.
    horizon_ms: AtomicU64,
}

/// Whether a call that is waited for is over, and where to say when it is worth another look.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) call: CallId,
    pub(crate) again: oneshot::Sender<Duration>,
}

/// Questions that are under way; the next waiter to ask waits until one is answered.
const QUESTIONS_MAX: usize = 1_024;
/// How far ahead is remembered at least: several walks over a small ledger.
const HORIZON_MIN: Duration = Duration::from_secs(10);

impl Expiry {
    /// With the receiver of what waiters ask.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Question>) {
        let (asking, asked) = mpsc::channel(QUESTIONS_MAX);
        let inner = Expected {
            upcoming: Mutex::default(),
            sooner: Notify::new(),
            horizon_ms: AtomicU64::new(millis(HORIZON_MIN)),
        };
        let inner = Arc::new(inner);
        (Self { inner, asking }, asked)
    }

    /// Has a call that is waited for looked at now, and ended if it is over. Returns when it is worth another look. Cancel-safe.
    pub(crate) async fn look(&self, call: CallId) -> Duration {
        let (again, answered) = oneshot::channel();
        if self.asking.send(Question { call, again }).await.is_ok()
            && let Ok(again) = answered.await
        {
            return again;
        }
        // The sweep has stopped: the process is ending.
        pending().await
    }

    /// Remembers a call that is over so long from now, if the walk may come by too late for it.
    pub(crate) fn remember(&self, call: CallId, left: Duration) {
        self.remember_all([(call, left)]);
    }

    /// The same for many.
    pub(crate) fn remember_all(&self, calls: impl IntoIterator<Item = (CallId, Duration)>) {
        let horizon = self.inner.horizon_ms.load(Ordering::Relaxed);
        let mut soon = calls
            .into_iter()
            .filter(|(_, left)| millis(*left) <= horizon)
            .peekable();
        // Mostly there is none, and then nothing is locked.
        if soon.peek().is_none() {
            return;
        }
        let (now, mut upcoming, mut sooner) = (Instant::now(), self.upcoming(), false);
        for (call, left) in soon {
            sooner |= upcoming.remember(call, now + left);
        }
        drop(upcoming);
        if sooner {
            self.inner.sooner.notify_one();
        }
    }

    /// How long the walk took to come round. It may take twice as long the next time.
    pub(crate) fn walk_took(&self, took: Duration) {
        let horizon = took.saturating_mul(2).max(HORIZON_MIN);
        self.inner
            .horizon_ms
            .store(millis(horizon), Ordering::Relaxed);
    }

    /// Waits until remembered calls are over and takes them, so many at most. Cancel-safe.
    pub(crate) async fn until_over(&self, calls_max: usize) -> Vec<CallId> {
        loop {
            let next = {
                let mut upcoming = self.upcoming();
                let over = upcoming.take(Instant::now(), calls_max);
                if !over.is_empty() {
                    return over;
                }
                upcoming.next()
            };
            let over = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = over => {}
                () = self.inner.sooner.notified() => {}
            }
        }
    }

    fn upcoming(&self) -> MutexGuard<'_, Upcoming> {
        let upcoming = self.inner.upcoming.lock();
        upcoming.unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_over_soon_is_remembered_and_what_the_walk_meets_is_not() {
        let (expiry, _asked) = Expiry::new();
        let (soon, later) = (CallId::generate(), CallId::generate());
        expiry.remember(later, HORIZON_MIN * 3);
        expiry.remember(soon, HORIZON_MIN);
        assert_eq!(expiry.until_over(10).await, [soon]);
        assert_eq!(expiry.upcoming().next(), None);
        // The walk has become slow.
        expiry.walk_took(HORIZON_MIN * 2);
        expiry.remember(later, HORIZON_MIN * 3);
        assert_eq!(expiry.until_over(10).await, [later]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_over_sooner_is_not_kept_waiting() {
        let (expiry, _asked) = Expiry::new();
        let (first, second) = (CallId::generate(), CallId::generate());
        let began = Instant::now();
        expiry.remember(second, Duration::from_secs(8));
        let remembering = async {
            tokio::task::yield_now().await;
            expiry.remember(first, Duration::from_secs(2));
        };
        let (over, ()) = tokio::join!(expiry.until_over(10), remembering);
        assert_eq!(over, [first]);
        assert_eq!(began.elapsed().as_secs(), 2);
    }
}

//! Expiry on time: when to look whether a call's time is over.
//!
//! Postgres's clock decides, in the look; this module only says when a look is worth it. The timer of a waiting caller asks by
//! itself. Of all other calls, those that expire soon are remembered, when they are accepted and when the walk over open calls
//! reads them. So expiry stores nothing and needs no index, and a call that ends in time costs nothing.

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

/// The calls that one dispatcher expects to expire. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Expiry {
    inner: Arc<Expected>,
    asking: mpsc::Sender<Question>,
}

#[derive(Debug)]
struct Expected {
    upcoming: Mutex<Upcoming>,
    /// Told when a call expires before all that were waited for.
    sooner: Notify,
    /// A call that expires later than this from now, in milliseconds, is read by the walk before that.
    horizon_ms: AtomicU64,
}

/// Asks whether the time of a call is over; answered with the pause until another look is worth it.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) call: CallId,
    pub(crate) again: oneshot::Sender<Duration>,
}

/// The most questions under way; a further waiter waits until one is answered.
const QUESTIONS_MAX: usize = 1_024;
/// How far ahead calls are remembered at least: several walks over a small ledger.
const HORIZON_MIN: Duration = Duration::from_secs(10);

impl Expiry {
    /// Also returns the receiver of the waiters' questions.
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

    /// Looks at a call that a caller waits for, and ends it if its time is over. Returns the pause until another look is worth
    /// it. Cancel-safe.
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

    /// Remembers a call whose time is over after `left`, if the walk may come too late for it.
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
        // Usually there is none, and then the lock is not taken.
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

    /// How long the walk over all open calls took. The next one may take twice as long.
    pub(crate) fn walk_took(&self, took: Duration) {
        let horizon = took.saturating_mul(2).max(HORIZON_MIN);
        self.inner
            .horizon_ms
            .store(millis(horizon), Ordering::Relaxed);
    }

    /// Waits until remembered calls are due and takes them, at most `calls_max`. Cancel-safe.
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

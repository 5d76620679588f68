//! Time that passes when the schedule lets it: sleeps end in the order of their ends, and nothing else is known of them.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    future::poll_fn,
    ops::Add,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

pub(crate) use std::time::Duration;

/// Never.
pub(crate) const NEVER: Duration = Duration::from_secs(u32::MAX as u64);

/// How often others get a chance before a sleep ends, so that most of what is quick in life is quick here.
const HESITATION: u32 = 10;

thread_local! {
    static CLOCK: RefCell<Clock> = RefCell::default();
}

#[derive(Default)]
struct Clock {
    now: Duration,
    sleepers: BTreeMap<(Duration, u64), Waker>,
    last: u64,
    /// The task that lets time pass, while no other task runs.
    idle: Option<Waker>,
}

/// Starts from zero.
pub(crate) fn begin() {
    drop(CLOCK.replace(Clock::default()));
    drop(shuttle::future::spawn(pass()));
}

/// Ends one sleep after the other.
async fn pass() {
    loop {
        poll_fn(|context| {
            CLOCK.with_borrow_mut(|clock| {
                if clock.sleepers.is_empty() {
                    clock.idle = Some(context.waker().clone());
                    Poll::Pending
                } else {
                    Poll::Ready(())
                }
            })
        })
        .await;
        for _ in 0..HESITATION {
            shuttle::future::yield_now().await;
        }
        let first = CLOCK.with_borrow_mut(|clock| {
            let ((until, _), sleeper) = clock.sleepers.pop_first()?;
            clock.now = until;
            Some(sleeper)
        });
        if let Some(sleeper) = first {
            sleeper.wake();
        }
    }
}

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Self {
        Self(CLOCK.with_borrow(|clock| clock.now))
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(length))
    }
}

/// Waits.
pub(crate) fn sleep(length: Duration) -> Sleep {
    sleep_until(Instant::now() + length)
}

/// Waits until then.
pub(crate) const fn sleep_until(until: Instant) -> Sleep {
    Sleep {
        until: until.0,
        place: None,
    }
}

pub(crate) struct Sleep {
    until: Duration,
    place: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        CLOCK.with_borrow_mut(|clock| {
            if let Some(place) = self.place.take() {
                clock.sleepers.remove(&(self.until, place));
            }
            if clock.now >= self.until {
                return Poll::Ready(());
            }
            if self.until < NEVER {
                clock.last += 1;
                self.place = Some(clock.last);
                let waker = context.waker().clone();
                clock.sleepers.insert((self.until, clock.last), waker);
                if let Some(idle) = clock.idle.take() {
                    idle.wake();
                }
            }
            Poll::Pending
        })
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            // Gone with its thread, at the latest.
            CLOCK
                .try_with(|clock| clock.borrow_mut().sleepers.remove(&(self.until, place)))
                .unwrap_or_default();
        }
    }
}

/// Waits for a future, but only so long.
pub(crate) async fn timeout<F: Future>(
    limit: Duration,
    future: F,
) -> Result<F::Output, error::Elapsed> {
    let (mut future, mut sleep) = (pin!(future), pin!(sleep(limit)));
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        sleep.as_mut().poll(context).map(|()| Err(error::Elapsed))
    })
    .await
}

pub(crate) mod error {
    /// It took too long.
    #[derive(Debug, thiserror::Error)]
    #[error("deadline has elapsed")]
    pub(crate) struct Elapsed;
}

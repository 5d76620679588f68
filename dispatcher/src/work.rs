//! How long a request keeps a thread: what its tenant takes from all others.
//!
//! Requests are counted and so are their bytes, but a small one may cost a thousand times what another costs: arguments that fit
//! one of many alternatives are checked against each of them. So the time itself is counted.

use std::{cell::Cell, future::poll_fn, pin::pin, time::Duration};

use tokio::time::Instant;

tokio::task_local! {
    /// What the request that this task answers has had done on blocking threads.
    static ASIDE: Cell<Duration>;
}

/// The answer, and how long the threads of this process were kept by it. Waiting is not counted; what the system gave to others
/// meanwhile is, so a short time says little. Cancel-safe as `answering` is.
pub(crate) async fn timed<F: Future>(answering: F) -> (F::Output, Duration) {
    let answering = async {
        let mut answering = pin!(answering);
        let mut kept = Duration::ZERO;
        let output = poll_fn(|context| {
            let begun = Instant::now();
            let polled = answering.as_mut().poll(context);
            kept += begun.elapsed();
            polled
        })
        .await;
        (output, kept + ASIDE.with(Cell::get))
    };
    ASIDE.scope(Cell::default(), answering).await
}

/// Does this, and returns how long it took, for [`add`].
pub(crate) fn clocked<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    (work(), begun.elapsed())
}

/// Counts what was done for this task's request on another thread; nothing where no request is timed.
pub(crate) fn add(took: Duration) {
    let _untimed = ASIDE.try_with(|aside| aside.set(aside.get() + took));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_counted_on_this_thread() {
        let took = Duration::from_millis(20);
        let (answer, kept) = timed(async {
            std::thread::sleep(took);
            7
        })
        .await;
        assert_eq!(answer, 7);
        assert!(kept >= took, "{kept:?}");
        assert!(clocked(|| std::thread::sleep(took)).1 >= took);
    }

    #[tokio::test(start_paused = true)]
    async fn work_on_another_thread_is_counted_and_waiting_is_not() {
        let (hour, second) = (Duration::from_secs(3_600), Duration::from_secs(1));
        let ((), kept) = timed(async {
            tokio::time::sleep(hour).await;
            add(second);
            tokio::time::sleep(hour).await;
            add(second);
        })
        .await;
        assert_eq!(kept, 2 * second);
    }
}

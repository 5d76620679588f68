//! How long a request keeps a thread: what its tenant takes from all others.
//!
//! Requests are counted and so are their bytes, but a small one may cost a thousand times what another costs: arguments that fit
//! one of many alternatives are checked against each of them. So the time itself is counted.

use std::{
    cell::Cell,
    future::poll_fn,
    pin::pin,
    time::{Duration, Instant},
};

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
    async fn work_is_counted_on_each_thread_and_waiting_is_not() {
        let (answer, kept) = timed(async {
            let ((), took) = clocked(|| std::thread::sleep(Duration::from_millis(20)));
            tokio::task::yield_now().await;
            add(took + Duration::from_secs(60));
            7
        })
        .await;
        assert_eq!(answer, 7);
        assert!(
            kept >= Duration::from_secs(60) + Duration::from_millis(40),
            "{kept:?}"
        );
        let (_, kept) = timed(tokio::time::sleep(Duration::from_millis(300))).await;
        assert!(kept < Duration::from_millis(150), "{kept:?}");
    }
}

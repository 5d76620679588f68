//! Runs one hook of one interceptor: bounded in time, and with panics caught.

use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::time::timeout;

use crate::interceptor::{Answer, CallView, Carried, EndedView, Interceptor, Verdict};

/// The hooks of an interceptor whose type is not known.
pub(super) trait Hooks: Send + Sync {
    fn before<'a>(
        &'a self,
        call: &'a CallView<'a>,
        carried: &'a mut Carried,
    ) -> BoxFuture<'a, Verdict>;

    fn after<'a>(
        &'a self,
        call: &'a CallView<'a>,
        carried: &'a mut Carried,
        answer: &'a mut Answer,
    ) -> BoxFuture<'a, ()>;

    fn ended<'a>(
        &'a self,
        call: &'a CallView<'a>,
        carried: &'a mut Carried,
        ended: &'a EndedView,
    ) -> BoxFuture<'a, ()>;
}

// Lazy: what a hook does before it returns its future runs where panics are caught, too.
impl<I: Interceptor> Hooks for I {
    fn before<'a>(
        &'a self,
        call: &'a CallView<'a>,
        carried: &'a mut Carried,
    ) -> BoxFuture<'a, Verdict> {
        Box::pin(async move { Interceptor::before(self, call, carried).await })
    }

    fn after<'a>(
        &'a self,
        call: &'a CallView<'a>,
        carried: &'a mut Carried,
        answer: &'a mut Answer,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move { Interceptor::after(self, call, carried, answer).await })
    }

    fn ended<'a>(
        &'a self,
        call: &'a CallView<'a>,
        carried: &'a mut Carried,
        ended: &'a EndedView,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move { Interceptor::ended(self, call, carried, ended).await })
    }
}

/// Which hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    Before,
    After,
    Ended,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before => "before",
            Self::After => "after",
            Self::Ended => "ended",
        })
    }
}

/// Why a hook has failed. It holds no value of a call: a panic's message may, so only one that stands in the program is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    Panicked(Option<&'static str>),
    TooSlow(Duration),
    /// As many hooks as may are told of ends already.
    TooMany,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(Some(message)) => write!(f, "it panicked: {message}"),
            Self::Panicked(None) => f.write_str(
                "it panicked, with a message that may hold values and is on the worker's standard error",
            ),
            Self::TooSlow(budget) => write!(f, "it took longer than {budget:?}"),
            Self::TooMany => f.write_str("too many of these were running, so it was not called"),
        }
    }
}

/// Awaits a hook for so long.
pub(super) async fn run<T>(hook: BoxFuture<'_, T>, budget: Duration) -> Result<T, Fault> {
    match timeout(budget, AssertUnwindSafe(hook).catch_unwind()).await {
        Ok(Ok(returned)) => Ok(returned),
        Ok(Err(panic)) => Err(Fault::Panicked(literal(panic))),
        Err(_elapsed) => Err(Fault::TooSlow(budget)),
    }
}

/// The message of a panic if it is a text of the program: a message that was put together may hold arguments.
fn literal(panic: Box<dyn Any + Send>) -> Option<&'static str> {
    let text = panic.downcast_ref::<&'static str>().copied();
    // A payload of the program's own may panic in its turn when it is dropped.
    drop(catch_unwind(AssertUnwindSafe(|| drop(panic))));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hook_that_fails_says_how_and_no_value() {
        let budget = Duration::from_secs(1);
        let secret = String::from("4111-1111");
        let returned = run(Box::pin(async { 7 }), budget).await;
        assert_eq!(returned, Ok(7));
        let slow = run(Box::pin(std::future::pending::<()>()), budget).await;
        assert_eq!(slow, Err(Fault::TooSlow(budget)));
        let literal = run(Box::pin(async { panic!("as asked") }), budget).await;
        let literal: Result<(), Fault> = literal;
        assert_eq!(literal, Err(Fault::Panicked(Some("as asked"))));
        let told: Result<(), Fault> =
            run(Box::pin(async { panic!("the card {secret}") }), budget).await;
        assert_eq!(told, Err(Fault::Panicked(None)));
        assert!(!told.unwrap_err().to_string().contains("4111"));
    }

    struct Loud;

    impl Drop for Loud {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "dropped");
        }
    }

    #[tokio::test]
    async fn a_payload_that_panics_itself_ends_nothing() {
        let hook: BoxFuture<'_, ()> = Box::pin(async { std::panic::panic_any(Loud) });
        let told = run(hook, Duration::from_secs(1)).await;
        assert_eq!(told, Err(Fault::Panicked(None)));
    }
}

//! The hooks of an interceptor.

use std::convert::Infallible;

use futures_util::future::BoxFuture;

use crate::{executors::AttemptContext, stage::Execution};

/// A part that wraps the executor, for one attempt.
pub(super) trait Interceptor: Send {
    /// Its name, for tests.
    fn name(&self) -> &'static str;

    /// Called before the executor runs.
    fn before(&mut self, _context: &mut AttemptContext) {}

    /// Runs beside the executor. Dropped when the executor returns.
    fn meanwhile(&mut self) -> Option<BoxFuture<'_, Infallible>> {
        None
    }

    /// Called when the executor has answered, not when it panicked or did not return in time.
    fn after(&mut self, execution: Execution) -> After<'_> {
        After::Now(execution)
    }

    /// Called when the attempt is over, however it ended. Changes nothing.
    fn over(&mut self, _execution: &Execution) {}
}

/// What an interceptor makes of an answer. Most need not wait, and then cost no allocation.
pub(super) enum After<'a> {
    Now(Execution),
    Later(BoxFuture<'a, Execution>),
}

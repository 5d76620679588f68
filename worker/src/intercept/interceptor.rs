//! The hooks of an interceptor.

use std::convert::Infallible;

use futures_util::future::BoxFuture;

use crate::{executors::AttemptContext, stage::Execution};

/// One thing that stands around the executor, for one attempt.
pub(super) trait Interceptor: Send {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// The executor is about to be asked.
    fn before(&mut self, _context: &mut AttemptContext) {}

    /// What it does as long as the executor is at work. Dropped when the executor comes back.
    fn meanwhile(&mut self) -> Option<BoxFuture<'_, Infallible>> {
        None
    }

    /// The executor has answered; it did not panic, and came back in time.
    fn after(&mut self, execution: Execution) -> After<'_> {
        After::Now(execution)
    }

    /// The attempt is over, however it ended. Changes nothing.
    fn over(&mut self, _execution: &Execution) {}
}

/// What an interceptor makes of an answer: most need not wait, and cost no allocation.
pub(super) enum After<'a> {
    Now(Execution),
    Later(BoxFuture<'a, Execution>),
}

//! Counts that a library keeps by itself, read at a scrape and shown as one counter of this process.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use opentelemetry::metrics::Meter;

use super::definitions::Definition;

/// The sum of counts that only grow. None is ever taken out: the sum would fall.
#[derive(Default)]
pub(super) struct Sum(Mutex<Vec<Count>>);

type Count = Box<dyn Fn() -> u64 + Send + Sync>;

impl Sum {
    pub(super) fn add(&self, count: impl Fn() -> u64 + Send + Sync + 'static) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.push(Box::new(count));
    }

    fn now(&self) -> u64 {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.iter().map(|count| count()).sum()
    }

    /// Has the sum read whenever metrics are written out. The handle that `build` returns carries nothing.
    pub(super) fn observe(self: &Arc<Self>, meter: &Meter, define: Definition) {
        let sum = Arc::clone(self);
        meter
            .u64_observable_counter(define.name)
            .with_unit(define.unit)
            .with_description(define.help)
            .with_callback(move |observer| observer.observe(sum.now(), &[]))
            .build();
    }
}

impl fmt::Debug for Sum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Sum").field(&self.now()).finish()
    }
}

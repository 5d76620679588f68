//! Figures that only Postgres knows, shown to a scrape while they are fresh.
//!
//! They are the fleet's, not the process's: a dispatcher reads them right before a scrape. When Postgres does not answer they
//! are missing rather than old, so that an alert on their absence can fire.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use opentelemetry::{
    KeyValue,
    metrics::{AsyncInstrument, AsyncInstrumentBuilder, Meter},
};

use super::{
    definitions::{self as define, Definition},
    fields::{FOR, QUEUE, STATE},
    labels::word,
};
use crate::call::{Awaiting, State};

/// How long figures are shown after they were read.
pub const FIGURES_FRESH: Duration = Duration::from_secs(15);

/// What the dispatcher read from Postgres for a scrape.
#[derive(Debug, Clone, Default)]
pub struct LedgerFigures {
    /// Open calls per state.
    pub backlog: Vec<(State, u64)>,
    /// Age of the oldest open call per state; a state without calls is left out.
    pub oldest_age: Vec<(State, Duration)>,
    /// The queues, by name; of more than [`QUEUES_MAX`] the first.
    pub queues: BTreeMap<String, QueueFigures>,
    /// Calls that are held in the ledger.
    pub held: u64,
    /// Those of them that wait for the end of a pause.
    pub paused: u64,
    /// Calls that wait for somebody outside the fleet, by whom.
    pub waiting: Vec<(Awaiting, u64)>,
    /// How long the oldest of them has waited, by whom; the same words as there.
    pub oldest_waiting: Vec<(Awaiting, Duration)>,
    /// Breakers that let nothing or only probes through.
    pub breakers_open: u64,
    /// Calls in doubt.
    pub in_doubt: u64,
    /// Dead letters, at most [`DEAD_LETTERS_MAX`](crate::store::figures::DEAD_LETTERS_MAX); `None`: they were not counted.
    pub dead_letters: Option<u64>,
    /// How often lost writes were found and acted on.
    pub quarantines: u64,
    /// The age of the oldest snapshot that keeps vacuum from freeing rows.
    pub oldest_snapshot: Duration,
    /// Sessions of the fleet that wait for a lock.
    pub lock_waiters: u64,
}

/// How many queues have figures of their own.
pub const QUEUES_MAX: usize = 500;

/// What a dispatcher read about one queue.
#[derive(Debug, Clone, Default)]
pub struct QueueFigures {
    /// Its open calls per state.
    pub calls: Vec<(State, u64)>,
    /// How long its oldest queued call has waited, if there is one.
    pub oldest_age: Option<Duration>,
    /// The slots of its live workers.
    pub slots: u64,
}

/// The last figures, and when they were read.
#[derive(Debug, Default)]
pub(super) struct Figures(Mutex<Option<(Instant, LedgerFigures)>>);

impl Figures {
    pub(super) fn set(&self, figures: LedgerFigures, at: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, figures));
    }

    fn fresh(&self, now: Instant) -> Option<LedgerFigures> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, figures) = held.as_ref()?;
        (now.saturating_duration_since(*at) < FIGURES_FRESH).then(|| figures.clone())
    }
}

/// Has the figures read whenever metrics are written out.
///
/// The handles that `build` returns are not needed: the meter keeps the callbacks.
pub(super) fn observe(meter: &Meter, figures: &Arc<Figures>) {
    let count = |define: Definition, tell: Tell<u64>| {
        let gauge = meter.u64_observable_gauge(define.name);
        told(gauge, define, figures, tell).build();
    };
    count(define::BACKLOG, |figures, gauge| {
        for (state, calls) in &figures.backlog {
            gauge.observe(*calls, &[word(STATE, state.as_str())]);
        }
    });
    count(define::QUEUE_CALLS, |figures, gauge| {
        for (queue, of_queue) in &figures.queues {
            for (state, calls) in &of_queue.calls {
                gauge.observe(*calls, &[named(queue), word(STATE, state.as_str())]);
            }
        }
    });
    count(define::QUEUE_SLOTS, |figures, gauge| {
        for (queue, of_queue) in &figures.queues {
            gauge.observe(of_queue.slots, &[named(queue)]);
        }
    });
    count(define::HELD, |figures, gauge| {
        gauge.observe(figures.held, &[])
    });
    count(define::BREAKERS_OPEN, |figures, gauge| {
        gauge.observe(figures.breakers_open, &[]);
    });
    count(define::PAUSED, |figures, gauge| {
        gauge.observe(figures.paused, &[]);
    });
    count(define::WAITING, |figures, gauge| {
        for (whom, calls) in &figures.waiting {
            gauge.observe(*calls, &[word(FOR, whom.as_str())]);
        }
    });
    count(define::IN_DOUBT, |figures, gauge| {
        gauge.observe(figures.in_doubt, &[]);
    });
    count(define::DEAD_LETTERS, |figures, gauge| {
        if let Some(letters) = figures.dead_letters {
            gauge.observe(letters, &[]);
        }
    });
    count(define::QUARANTINES, |figures, gauge| {
        gauge.observe(figures.quarantines, &[]);
    });
    count(define::LOCK_WAITERS, |figures, gauge| {
        gauge.observe(figures.lock_waiters, &[]);
    });
    let age = |define: Definition, tell: Tell<f64>| {
        let gauge = meter.f64_observable_gauge(define.name);
        told(gauge, define, figures, tell).build();
    };
    age(define::OLDEST_AGE, |figures, gauge| {
        for (state, age) in &figures.oldest_age {
            gauge.observe(age.as_secs_f64(), &[word(STATE, state.as_str())]);
        }
    });
    age(define::OLDEST_WAITING_AGE, |figures, gauge| {
        for (whom, age) in &figures.oldest_waiting {
            gauge.observe(age.as_secs_f64(), &[word(FOR, whom.as_str())]);
        }
    });
    age(define::QUEUE_OLDEST_AGE, |figures, gauge| {
        for (queue, of_queue) in &figures.queues {
            if let Some(age) = of_queue.oldest_age {
                gauge.observe(age.as_secs_f64(), &[named(queue)]);
            }
        }
    });
    age(define::OLDEST_SNAPSHOT, |figures, gauge| {
        gauge.observe(figures.oldest_snapshot.as_secs_f64(), &[]);
    });
}

fn named(queue: &str) -> KeyValue {
    KeyValue::new(QUEUE, queue.to_owned())
}

/// Tells a gauge what fresh figures say.
type Tell<T> = fn(&LedgerFigures, &dyn AsyncInstrument<T>);

fn told<'a, I, T: 'static>(
    gauge: AsyncInstrumentBuilder<'a, I, T>,
    define: Definition,
    figures: &Arc<Figures>,
    tell: Tell<T>,
) -> AsyncInstrumentBuilder<'a, I, T> {
    let figures = Arc::clone(figures);
    gauge
        .with_unit(define.unit)
        .with_description(define.help)
        .with_callback(move |gauge| {
            if let Some(figures) = figures.fresh(Instant::now()) {
                tell(&figures, gauge);
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_figures_are_left_out() {
        let figures = Figures::default();
        let read_at = Instant::now();
        figures.set(LedgerFigures::default(), read_at);
        assert!(
            figures
                .fresh(read_at + FIGURES_FRESH - Duration::from_millis(1))
                .is_some()
        );
        assert!(figures.fresh(read_at + FIGURES_FRESH).is_none());
    }
}

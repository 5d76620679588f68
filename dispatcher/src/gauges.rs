//! Figures that are read from the ledger when a scraper asks.

use std::{sync::Arc, time::Duration};

use fleet::{
    http,
    registry::Registry,
    store::{
        PgPool, StoreError, breakers, figures as ledger_figures,
        snapshot::{self, SnapshotWatch},
    },
    telemetry::{LedgerFigures, metrics, report},
};
use tokio::{task::JoinSet, time::Instant};

/// Fills the gauges that need the ledger, at a scrape only. They read every open call. Where that takes long, the figures are
/// kept for a while, so that reading them takes at most a twentieth of the time.
pub(crate) fn gauges(pool: PgPool, registry: Registry) -> http::BeforeScrape {
    let state = Arc::new(tokio::sync::Mutex::new((
        Instant::now(),
        SnapshotWatch::default(),
        DeadLetters::new(Instant::now()),
    )));
    Arc::new(move || {
        let (pool, registry, state) = (pool.clone(), registry.clone(), Arc::clone(&state));
        Box::pin(async move {
            let (rests_until, watch, letters) = &mut *state.lock().await;
            let began = Instant::now();
            if began < *rests_until {
                return;
            }
            let read = figures(&pool, &registry, watch).await;
            let took = began.elapsed();
            match read {
                Ok(figures) => metrics().counted(LedgerFigures {
                    dead_letters: letters.counted(&pool),
                    ..figures
                }),
                Err(error) => tracing::debug!(error = report(&error), "figures were not read"),
            }
            if took > FIGURES_AT_ONCE {
                *rests_until = Instant::now() + took * FIGURES_REST;
            }
        })
    })
}

async fn figures(
    pool: &PgPool,
    registry: &Registry,
    watch: &mut SnapshotWatch,
) -> Result<LedgerFigures, StoreError> {
    let holder = snapshot::oldest(pool).await?;
    let shut = breakers::shut(pool).await?;
    // One that no call meets any more stays as it is until it is dropped, and is nobody's trouble.
    let met = shut
        .iter()
        .filter(|(tool, target)| registry.meets_breaker(tool, target));
    Ok(LedgerFigures {
        breakers_open: u64::try_from(met.count()).unwrap_or(u64::MAX),
        oldest_snapshot: watch.age(holder.as_ref(), Instant::now()),
        ..ledger_figures::figures(pool).await?
    })
}

/// The last count of dead letters. They are counted beside the scrapes: that reads the history, which may take as long as a statement
/// may, and no other figure waits for it.
struct DeadLetters {
    /// Until when they are not counted again.
    rests_until: Instant,
    /// The count under way, if there is one, and what it took.
    counting: JoinSet<LetterCount>,
    /// `None` while Postgres cannot count them.
    last: Option<u64>,
}

/// What a count came to, and until when there is no other one.
struct LetterCount {
    letters: Option<u64>,
    rests_until: Instant,
}

impl LetterCount {
    /// A count that ends now. It rests from its own end on, and not from the scrape that shows it: then every second scrape would begin
    /// none.
    fn now(letters: Option<u64>, began: Instant) -> Self {
        let now = Instant::now();
        Self {
            letters,
            rests_until: now + (now - began) * FIGURES_REST,
        }
    }
}

impl DeadLetters {
    fn new(now: Instant) -> Self {
        Self {
            rests_until: now,
            counting: JoinSet::new(),
            last: None,
        }
    }

    /// The last count. Unless counting rests, they are counted anew for a later scrape.
    fn counted(&mut self, pool: &PgPool) -> Option<u64> {
        let began = Instant::now();
        while let Some(counted) = self.counting.try_join_next() {
            let counted = counted.unwrap_or_else(|_panicked| LetterCount::now(None, began));
            self.last = counted.letters;
            self.rests_until = counted.rests_until;
        }
        if self.counting.is_empty() && began >= self.rests_until {
            let pool = pool.clone();
            self.counting.spawn(async move {
                let counted = ledger_figures::dead_letters(&pool).await;
                let counted = counted.inspect_err(|error| {
                    tracing::debug!(error = report(error), "dead letters were not counted");
                });
                LetterCount::now(counted.ok(), began)
            });
        }
        self.last
    }
}

/// Figures that take no longer than this are read at every scrape.
const FIGURES_AT_ONCE: Duration = Duration::from_millis(50);
/// Other figures are kept for this many times as long as they took.
const FIGURES_REST: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_count_that_was_quick_is_followed_by_another_at_the_scrape_that_shows_it() {
        let began = Instant::now();
        tokio::time::advance(Duration::from_millis(10)).await;
        let quick = LetterCount::now(Some(3), began);
        assert!(quick.rests_until <= began + Duration::from_millis(210));
        tokio::time::advance(Duration::from_secs(1)).await;
        let slow = LetterCount::now(None, began);
        assert!(slow.rests_until >= Instant::now() + Duration::from_secs(20));
    }
}

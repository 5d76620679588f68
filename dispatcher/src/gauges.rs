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
use tokio::time::Instant;

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
                    dead_letters: letters.counted(&pool).await,
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

/// The last count of dead letters, which are counted apart: that reads the history, and must not make other figures rare.
struct DeadLetters {
    rests_until: Instant,
    last: Option<u64>,
}

impl DeadLetters {
    const fn new(now: Instant) -> Self {
        Self {
            rests_until: now,
            last: None,
        }
    }

    /// Counts them, unless counting rests; `None` while Postgres cannot count them.
    async fn counted(&mut self, pool: &PgPool) -> Option<u64> {
        let began = Instant::now();
        if began >= self.rests_until {
            self.last = match ledger_figures::dead_letters(pool).await {
                Ok(letters) => Some(letters),
                Err(error) => {
                    tracing::debug!(error = report(&error), "dead letters were not counted");
                    None
                }
            };
            self.rests_until = Instant::now() + began.elapsed() * FIGURES_REST;
        }
        self.last
    }
}

/// Figures that take no longer than this are read at every scrape.
const FIGURES_AT_ONCE: Duration = Duration::from_millis(50);
/// Other figures are kept for this many times as long as they took.
const FIGURES_REST: u32 = 20;

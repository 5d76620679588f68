//! Figures that are read from the ledger when a scraper asks.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

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
    )));
    let letters = Arc::new(Mutex::new(DeadLetters::new(Instant::now())));
    Arc::new(move || {
        let (pool, registry, state) = (pool.clone(), registry.clone(), Arc::clone(&state));
        let letters = Arc::clone(&letters);
        Box::pin(async move {
            let (rests_until, watch) = &mut *state.lock().await;
            let began = Instant::now();
            if began < *rests_until {
                return;
            }
            let read = figures(&pool, &registry, watch).await;
            let took = began.elapsed();
            match read {
                Ok(figures) => metrics().counted(LedgerFigures {
                    dead_letters: counted_letters(&letters, &pool),
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

/// The last count of dead letters.
struct DeadLetters {
    /// Until when they are not counted again.
    rests_until: Instant,
    is_counting: bool,
    /// `None` while Postgres cannot count them.
    last: Option<u64>,
}

impl DeadLetters {
    const fn new(now: Instant) -> Self {
        Self {
            rests_until: now,
            is_counting: false,
            last: None,
        }
    }
}

type SharedLetters = Arc<Mutex<DeadLetters>>;

fn locked(letters: &SharedLetters) -> MutexGuard<'_, DeadLetters> {
    letters.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last count. Unless counting rests, they are counted anew, beside the scrape: that reads the history, which may take as long
/// as a statement may, and no other figure waits for it.
fn counted_letters(letters: &SharedLetters, pool: &PgPool) -> Option<u64> {
    let mut known = locked(letters);
    let began = Instant::now();
    if !known.is_counting && began >= known.rests_until {
        known.is_counting = true;
        let (letters, pool) = (Arc::clone(letters), pool.clone());
        tokio::spawn(async move {
            let counted = ledger_figures::dead_letters(&pool).await;
            let mut known = locked(&letters);
            known.is_counting = false;
            known.rests_until = Instant::now() + began.elapsed() * FIGURES_REST;
            known.last = counted
                .inspect_err(|error| {
                    tracing::debug!(error = report(error), "dead letters were not counted");
                })
                .ok();
        });
    }
    known.last
}

/// Figures that take no longer than this are read at every scrape.
const FIGURES_AT_ONCE: Duration = Duration::from_millis(50);
/// Other figures are kept for this many times as long as they took.
const FIGURES_REST: u32 = 20;

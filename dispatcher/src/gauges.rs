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
    )));
    Arc::new(move || {
        let (pool, registry, state) = (pool.clone(), registry.clone(), Arc::clone(&state));
        Box::pin(async move {
            let (rests_until, watch) = &mut *state.lock().await;
            let began = Instant::now();
            if began < *rests_until {
                return;
            }
            match figures(&pool, &registry, watch).await {
                Ok(figures) => metrics().counted(figures),
                Err(error) => tracing::debug!(error = report(&error), "figures were not read"),
            }
            let took = began.elapsed();
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

/// Figures that take no longer than this are read at every scrape.
const FIGURES_AT_ONCE: Duration = Duration::from_millis(50);
/// Other figures are kept for this many times as long as they took.
const FIGURES_REST: u32 = 20;

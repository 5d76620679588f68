//! Figures that are read from the ledger when a scraper asks.

use std::{sync::Arc, time::Duration};

use fleet::{
    http,
    store::{
        PgPool, StoreError, figures as ledger_figures,
        snapshot::{self, SnapshotWatch},
    },
    telemetry::{LedgerFigures, metrics, report},
};
use tokio::time::Instant;

/// Fills the gauges that need the ledger, at a scrape only. They read every open call. Where that takes long, the figures are
/// kept for a while, so that reading them takes at most a twentieth of the time.
pub(crate) fn gauges(pool: PgPool) -> http::BeforeScrape {
    let state = Arc::new(tokio::sync::Mutex::new((
        Instant::now(),
        SnapshotWatch::default(),
    )));
    Arc::new(move || {
        let (pool, state) = (pool.clone(), Arc::clone(&state));
        Box::pin(async move {
            let (rests_until, watch) = &mut *state.lock().await;
            let began = Instant::now();
            if began < *rests_until {
                return;
            }
            match figures(&pool, watch).await {
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

async fn figures(pool: &PgPool, watch: &mut SnapshotWatch) -> Result<LedgerFigures, StoreError> {
    let holder = snapshot::oldest(pool).await?;
    Ok(LedgerFigures {
        oldest_snapshot: watch.age(holder.as_ref(), Instant::now()),
        ..ledger_figures::figures(pool).await?
    })
}

/// Figures that take no longer than this are read at every scrape.
const FIGURES_AT_ONCE: Duration = Duration::from_millis(50);
/// Other figures are kept for this many times as long as they took.
const FIGURES_REST: u32 = 20;

//! Reads the tokens each second, and at the bell; the effects around [`TokenCache`].

use std::{
    sync::{Arc, RwLock},
    time::Duration,
};

use futures_util::StreamExt;
use sqlx::PgPool;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cache::{TokenCache, TokenLookup};
use crate::{
    bus::connect::Bus,
    store::{StoreError, tokens},
    telemetry::report,
};

/// The tokens as this process knows them. Cheap to clone; clones share them.
#[derive(Debug, Clone, Default)]
pub struct KnownTokens(Arc<RwLock<TokenCache>>);

impl KnownTokens {
    /// How often they are read without a bell.
    pub const POLL: Duration = Duration::from_secs(1);

    /// What is said now of this text, which somebody sent as their token.
    pub fn look(&self, text: &str) -> TokenLookup {
        self.read(|cache| cache.look(text, Instant::now()))
    }

    /// What is said now of a token with this id, which held when its stream was opened.
    pub fn again(&self, token_id: &str) -> TokenLookup {
        self.read(|cache| cache.again(token_id, Instant::now()))
    }

    /// Reads them now. One statement; safe to drop.
    ///
    /// # Errors
    ///
    /// Postgres does not answer; what was read before stays.
    pub async fn refresh(&self, pool: &PgPool) -> Result<(), StoreError> {
        let asked_at = Instant::now();
        let live = tokens::read(pool).await?;
        let mut cache = self
            .0
            .write()
            .expect("no thread panics while holding the tokens");
        cache.put(live, asked_at);
        Ok(())
    }

    /// Keeps them up to date until `stop`. Give it a pool that nothing else uses: where all connections are taken, no token would
    /// be revoked in time.
    pub async fn keep_fresh(self, pool: PgPool, bus: Bus, stop: CancellationToken) {
        let mut bell = match bus.client.subscribe(bus.subjects.control_changed()).await {
            Ok(bell) => Some(bell),
            Err(error) => {
                tracing::warn!(%error, "cannot listen for changed tokens; looking once a second instead");
                None
            }
        };
        let mut is_away = false;
        loop {
            let rung = async {
                let rung = match bell.as_mut() {
                    Some(bell) => bell.next().await.is_some(),
                    None => false,
                };
                // The bell is gone; the poll goes on without it.
                if !rung {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = rung => {}
                () = tokio::time::sleep(Self::POLL) => {}
            }
            let read = self.refresh(&pool).await;
            let was_away = std::mem::replace(&mut is_away, read.is_err());
            match read {
                Ok(()) if was_away => tracing::info!("the tokens are read again"),
                Ok(()) => {}
                Err(error) if was_away => {
                    tracing::debug!(error = report(&error), "the tokens were not read");
                }
                Err(error) => tracing::warn!(
                    error = report(&error),
                    "the tokens cannot be read; those that are known count for {:?} from when they were",
                    TokenCache::HOLDS
                ),
            }
        }
    }

    fn read<T>(&self, of: impl FnOnce(&TokenCache) -> T) -> T {
        of(&self
            .0
            .read()
            .expect("no thread panics while holding the tokens"))
    }
}

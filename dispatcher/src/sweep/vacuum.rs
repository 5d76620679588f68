//! Vacuum of the hot tables, by the dispatcher and by Postgres, and its rest while a snapshot keeps it from its work.

use std::collections::HashMap;

use fleet::store::{
    StoreError,
    hot_tables::{self, HotTable},
    snapshot,
};
use tokio::time::Instant;

use super::{
    Sweep,
    pace::{self, Hold, Rest},
};

/// What a dispatcher knows of the vacuums before.
#[derive(Debug, Default)]
pub(super) struct Vacuums {
    /// The hot tables whose last vacuum was for nothing.
    rests: HashMap<&'static str, Rest>,
    hold: Hold,
}

impl Sweep {
    /// Vacuums what has too many dead rows; where a snapshot kept them, not before it is another one. Then sees to the pace of
    /// autovacuum. Cancel-safe: each is one statement.
    pub(super) async fn vacuum(&self, vacuums: &mut Vacuums) -> Result<(), StoreError> {
        let tables = hot_tables::look(&self.pool).await?;
        if tables.is_empty() {
            return Ok(());
        }
        let (now, oldest) = (Instant::now(), snapshot::oldest(&self.pool).await?);
        let horizon = oldest.map(|holder| holder.horizon);
        let held = vacuums.hold.seen(horizon, now);
        let rests = &mut vacuums.rests;
        let is_due = |table: &&HotTable| {
            let rest = rests.get(table.name());
            table.is_dirty() && rest.is_none_or(|rest| rest.is_over(now, horizon))
        };
        let due: Vec<_> = tables.iter().filter(is_due).collect();
        if !due.is_empty() {
            let mut connection = self.postgres.connect_for_upkeep().await?;
            for table in due {
                let began = Instant::now();
                let left = hot_tables::vacuum(&mut connection, table).await?;
                if pace::is_futile(table.dead(), left) {
                    let rest = Rest::after(began, began.elapsed(), horizon);
                    rests.insert(table.name(), rest);
                } else {
                    rests.remove(table.name());
                }
            }
        }
        match held {
            Some(held) => self.pace_autovacuum(&tables, held).await,
            None => Ok(()),
        }
    }

    /// Has autovacuum wait for more dead rows while the same snapshot is held, and for the usual number when it is gone.
    async fn pace_autovacuum(&self, tables: &[HotTable], held: bool) -> Result<(), StoreError> {
        let paced = tables
            .iter()
            .filter_map(|table| Some((table, table.autovacuum_at(held)?)));
        let paced: Vec<_> = paced.collect();
        if paced.is_empty() {
            return Ok(());
        }
        let mut connection = self.postgres.connect_for_upkeep().await?;
        for (table, dead_rows) in paced {
            hot_tables::set_autovacuum_at(&mut connection, table, dead_rows).await?;
        }
        Ok(())
    }
}

//! Whose turn it is in the line of a tool whose attempts may start only so often.

use std::{collections::HashMap, time::Duration};

use fleet::{
    hold::Line,
    ids::{Label, ToolName},
    modes::{Brake, InterceptMode},
    store::{
        PgConnection, StoreError,
        session::within,
        starts::{self, FreeStarts},
        under_way,
    },
};
use tokio::time::Instant;

use super::{Sweep, turn::Turn};

/// How long a statement may take before its connection is given up.
const STATEMENT_MAX: Duration = Duration::from_secs(10);

impl Sweep {
    /// Whether operators have taken a tool's limit of starts away for this tenant.
    pub(super) fn is_without_limit(&self, tool: &ToolName, tenant: &Label) -> bool {
        let controls = self.registry.controls();
        let modes = controls.modes();
        let mode = modes.of_brake(Brake::RateLimit, tool, Some(tenant), Instant::now());
        mode != InterceptMode::Enforce
    }

    /// Whether attempts of the line's tool may start only so often.
    pub(super) fn is_paced(&self, line: &Line) -> bool {
        let Line::Tool(tool) = line else {
            return false;
        };
        let current = self.registry.current(tool);
        current.is_some_and(|current| current.manifest.rate_limit.is_some())
    }

    /// The turn of tenants whose calls may start in the next half second, or for whom operators have taken the limit away.
    pub(super) async fn turn_of_starts(
        &self,
        connection: &mut PgConnection,
        tool: &ToolName,
        tenants: Vec<Label>,
        room: usize,
    ) -> Result<Turn, StoreError> {
        let looking = starts::free(&mut *connection, tool, &tenants);
        let free = within("look for free start times", STATEMENT_MAX, looking).await?;
        let is_free = |tenant: &Label| self.is_without_limit(tool, tenant);
        let mut turn = match free {
            FreeStarts::Unlimited => Turn::of(tenants, room),
            FreeStarts::Shared(free) => {
                let free = usize::try_from(free).unwrap_or(usize::MAX);
                let (freed, bound): (Vec<_>, Vec<_>) = tenants.into_iter().partition(is_free);
                let mut turn = Turn::of(bound, room.min(free));
                let taken: usize = turn.shares.iter().map(|(_, share)| share).sum();
                let more = Turn::of(freed, room - taken);
                turn.shares.extend(more.shares);
                turn.last = turn.last.or(more.last);
                turn
            }
            FreeStarts::Each(mut each) => {
                let free = tenants.into_iter().map(|tenant| {
                    let free = if is_free(&tenant) {
                        u64::MAX
                    } else {
                        each.remove(&tenant).unwrap_or(0)
                    };
                    (tenant, free)
                });
                Turn::within(free, room)
            }
        };
        if let Some(most) = self.most_of_starts(tool) {
            let left = self.left_of_tenants(connection, tool, most).await?;
            turn.at_most(|tenant| left.get(tenant).copied().unwrap_or(most));
        }
        Ok(turn)
    }

    /// How many more calls of a tool each tenant may have under way, of those that have some.
    pub(super) async fn left_of_tenants(
        &self,
        connection: &mut PgConnection,
        tool: &ToolName,
        most: u64,
    ) -> Result<HashMap<Label, u64>, StoreError> {
        let current = self.registry.current(tool);
        let by_key = current.is_some_and(|current| current.manifest.rate_pointer().is_some());
        let counting = under_way::of_tool(connection, tool, by_key);
        let counted = within("count a tool's tenants", STATEMENT_MAX, counting).await?;
        let left = |(tenant, calls)| (tenant, most.saturating_sub(calls));
        Ok(counted.into_iter().map(left).collect())
    }

    /// How many calls of a tenant may be under way of a tool that bounds starts and not attempts: as many as of the others in its
    /// queue. `None`: no bound.
    pub(super) fn most_of_starts(&self, tool: &ToolName) -> Option<u64> {
        let current = self.registry.current(tool)?;
        let manifest = &current.manifest;
        match manifest.concurrency {
            Some(_its_own) => None,
            None => self.running.most_of(&manifest.queue),
        }
    }
}

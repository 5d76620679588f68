//! Calls that wait for a target: a few are released to probe it when that is due, the others go back to their own line when the
//! breaker is closed.
//!
//! What this process knows of the breakers may be a moment old. A call that is released too early is put aside again by the gate,
//! and more probes than there are permits for come back from there.

use std::collections::HashMap;

use fleet::{
    breaker::{self, BreakerId, Passage},
    hold::Line,
    ids::Label,
    manifest::BreakerSpec,
    modes::{Brake, InterceptMode},
    store::{PgConnection, StoreError, breakers, session::within},
};
use tokio::time::{Duration, Instant};

use super::Sweep;

/// How long calls that were released as probes have to reach the gate and be seen there, before others are released.
const PROBED_FOR: Duration = Duration::from_secs(1);
/// How long a statement may take.
const STATEMENT_MAX: Duration = Duration::from_secs(10);
/// How many steps all breakers together get in one round of the release, so that other lines are not kept waiting.
const STEPS_AT_ONCE: usize = 10;

/// What a releasing dispatcher remembers of breakers. No call's fate depends on it.
#[derive(Default)]
pub(super) struct ReleasedProbes {
    /// When probes were released last, for which generation, and whose turn is next.
    probed: HashMap<BreakerId, Probed>,
}

struct Probed {
    at: Instant,
    generation: i64,
    last: Option<Label>,
}

/// What becomes of the calls that wait for a breaker.
enum BreakerTurn {
    /// They wait.
    Stay,
    /// So many of them are released to probe the target, for this generation.
    Probe(usize, i64),
    /// They go back to their own line.
    Go,
}

impl Sweep {
    /// Visits the lines of breakers that hold calls.
    pub(super) async fn release_breakers(
        &self,
        connection: &mut PgConnection,
        waiting: &[BreakerId],
        probes: &mut ReleasedProbes,
    ) -> Result<(), StoreError> {
        probes.probed.retain(|id, _| waiting.contains(id));
        let mut steps = STEPS_AT_ONCE;
        for id in waiting {
            match self.waiting_for(*id).await? {
                BreakerTurn::Stay => {}
                BreakerTurn::Go => self.hand_back_of(&Line::Breaker(*id), &mut steps).await?,
                BreakerTurn::Probe(room, generation) => {
                    let before = probes.probed.remove(id);
                    let is_answered = before.as_ref().is_none_or(|before| {
                        before.generation != generation || before.at.elapsed() >= PROBED_FOR
                    });
                    let mut now = before.unwrap_or(Probed {
                        at: Instant::now(),
                        generation,
                        last: None,
                    });
                    if is_answered {
                        let line = Line::Breaker(*id);
                        (now.at, now.generation) = (Instant::now(), generation);
                        now.last = self
                            .release_room(connection, &line, room, now.last.take())
                            .await?;
                    }
                    probes.probed.insert(*id, now);
                }
            }
        }
        Ok(())
    }

    async fn waiting_for(&self, id: BreakerId) -> Result<BreakerTurn, StoreError> {
        let (breakers, controls, now) = (
            self.registry.breakers(),
            self.registry.controls(),
            Instant::now(),
        );
        let Some((tool, known)) = breakers.with_id(id) else {
            // A row that this process has not read yet; or one that lost writes have taken away.
            let asking = breakers::is_shut(&self.pool, id);
            let is_shut = within("look at a breaker", STATEMENT_MAX, asking).await?;
            return Ok(if is_shut {
                BreakerTurn::Stay
            } else {
                BreakerTurn::Go
            });
        };
        let Some(BreakerSpec { probes, .. }) = self
            .registry
            .current(tool)
            .and_then(|tool| tool.manifest.breaker.clone())
        else {
            return Ok(BreakerTurn::Go);
        };
        // Of one tenant's calls nothing is said here: they wait with the others, and new ones pass the gate.
        let mode = controls.modes().of_brake(Brake::Breaker, tool, None, now);
        if mode != InterceptMode::Enforce {
            return Ok(BreakerTurn::Go);
        }
        let forced = controls.forced_breaker(tool);
        Ok(match breaker::passage(forced, Some(known), probes, now) {
            Passage::Free(_) => BreakerTurn::Go,
            Passage::Shut(_) => BreakerTurn::Stay,
            Passage::Ask => {
                let room = known.room(probes, now);
                BreakerTurn::Probe(
                    usize::try_from(room).unwrap_or(usize::MAX),
                    known.generation,
                )
            }
        })
    }
}

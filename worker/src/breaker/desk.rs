//! The desk where it is asked whether a target may be tried: by the gate for a call, and by a call of a model for each of its routes.
//!
//! What the snapshot of the registry says is enough for most. Only where a permit may be there the ledger is asked for it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fleet::{
    breaker::{self, BreakerId, BreakerTerms, Passage, PermitVerdict},
    bus::connect::Bus,
    checkpoint::{Checkpoint, reached},
    ids::{Label, ToolName},
    manifest::{BreakerSpec, Manifest},
    modes::{Brake, InterceptMode},
    registry::Registry,
    store::{PgPool, StoreError, breakers},
    telemetry::{metrics, report},
};
use tokio::time::Instant;

use super::{
    counts::{BreakerCounts, Circuit},
    permit::BreakerPermit,
};

/// What is known of breakers, and whom to ask. Clones share the counts.
#[derive(Debug, Clone)]
pub(crate) struct BreakerDesk {
    pub(crate) registry: Registry,
    pub(crate) pool: PgPool,
    pub(crate) bus: Bus,
    /// What this worker has counted.
    pub(crate) counts: Arc<BreakerCounts>,
}

/// What became of the question.
pub(crate) enum Passed {
    /// The target may be tried.
    May(BreakerPermit),
    /// Not by this worker, which alone cannot reach the target.
    OnlyElsewhere,
    /// Not now: the breaker is shut, until then if that is known.
    Shut {
        id: Option<BreakerId>,
        until: Option<Instant>,
    },
}

/// What the snapshot says, before anybody is asked.
pub(crate) enum Glance {
    /// The target may be tried, or the ledger says so.
    Perhaps,
    /// Not by this worker.
    OnlyElsewhere,
    /// Not now.
    Shut {
        id: Option<BreakerId>,
        until: Option<Instant>,
    },
}

/// Whether one of the routes of a model may be tried.
pub(crate) enum RoutePassage {
    /// It may. `None`: its tool has no breaker.
    May(Option<BreakerPermit>),
    /// It may not, and it is worth asking again after so long.
    Shut(Duration),
}

/// The ledger does not say whether a target may be tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotAsked;

/// A target of a tool that has a breaker.
pub(crate) struct Guarded<'a> {
    desk: &'a BreakerDesk,
    spec: &'a BreakerSpec,
    pub(crate) circuit: Circuit,
    /// How long an attempt may take.
    timeout: Duration,
}

impl BreakerDesk {
    /// What the breaker of this tool may do; `None`: the tool has none, or it is switched off.
    pub(crate) fn mode(
        &self,
        tool: &ToolName,
        newest: &Manifest,
        tenant: Option<&Label>,
    ) -> Option<InterceptMode> {
        newest.breaker.as_ref()?;
        let controls = self.registry.controls();
        let mode = controls
            .modes()
            .of_brake(Brake::Breaker, tool, tenant, Instant::now());
        (mode != InterceptMode::Off).then_some(mode)
    }

    /// A target of this tool; `None`: it has no breaker, by its newest version.
    pub(crate) fn guarded<'a>(
        &'a self,
        tool: &Manifest,
        newest: &'a Manifest,
        target: String,
    ) -> Option<Guarded<'a>> {
        Some(Guarded {
            desk: self,
            spec: newest.breaker.as_ref()?,
            circuit: Circuit {
                tool: tool.name.clone(),
                target,
            },
            timeout: tool.timeout.longest(),
        })
    }

    /// Whether a call of this tool may try one of its routes. One of which the ledger says nothing is tried.
    pub(crate) async fn pass_route(
        &self,
        name: &ToolName,
        tenant: &Label,
        target: String,
    ) -> RoutePassage {
        let Some(newest) = self.registry.current(name) else {
            return RoutePassage::May(None);
        };
        let newest = &newest.manifest;
        let mode = self.mode(name, newest, Some(tenant));
        let guarded = self.guarded(newest, newest, target);
        let (Some(mode), Some(guarded)) = (mode, guarded) else {
            return RoutePassage::May(None);
        };
        match guarded.permit_now().await {
            Ok(Passed::May(permit)) => RoutePassage::May(Some(permit)),
            Ok(Passed::OnlyElsewhere | Passed::Shut { .. }) if mode == InterceptMode::Observe => {
                metrics().observed(name, Brake::Breaker);
                RoutePassage::May(None)
            }
            Ok(Passed::OnlyElsewhere) => RoutePassage::Shut(soon(Some(Instant::now()))),
            Ok(Passed::Shut { until, .. }) => RoutePassage::Shut(soon(until)),
            Err(NotAsked) => RoutePassage::May(None),
        }
    }
}

fn soon(until: Option<Instant>) -> Duration {
    Passage::Shut(until).retry_after(Instant::now())
}

impl Guarded<'_> {
    fn passage(&self, now: Instant) -> (Passage, Option<BreakerId>) {
        let registry = &self.desk.registry;
        let breakers = registry.breakers();
        let known = breakers.of(&self.circuit.tool, &self.circuit.target);
        let forced = registry.controls().forced_breaker(&self.circuit.tool);
        let id = known.map(|known| known.id);
        (breaker::passage(forced, known, self.spec.probes, now), id)
    }

    /// Whether this worker alone cannot reach the target.
    fn is_bad_here(&self, generation: i64, now: Instant) -> bool {
        let forced = self.desk.registry.controls();
        let forced = forced.forced_breaker(&self.circuit.tool);
        !forced.is_some_and(|forced| forced.holds(now))
            && self.desk.counts.is_bad_here(&self.circuit, generation, now)
    }

    /// What the snapshot says. Nobody is asked.
    pub(crate) fn glance(&self) -> Glance {
        let now = Instant::now();
        match self.passage(now) {
            (Passage::Free(generation), _) if self.is_bad_here(generation, now) => {
                Glance::OnlyElsewhere
            }
            (Passage::Free(_) | Passage::Ask, _) => Glance::Perhaps,
            (Passage::Shut(until), id) => Glance::Shut { id, until },
        }
    }

    /// Whether the target may be tried now, as this call's permit says.
    pub(crate) async fn permit_now(&self) -> Result<Passed, NotAsked> {
        let now = Instant::now();
        let (passage, id) = self.passage(now);
        Ok(match passage {
            Passage::Free(generation) if self.is_bad_here(generation, now) => Passed::OnlyElsewhere,
            Passage::Free(generation) => Passed::May(self.permit(generation, false)),
            Passage::Shut(until) => Passed::Shut { id, until },
            Passage::Ask => match self.desk.counts.refused_until(&self.circuit, now) {
                Some(lapses) => Passed::Shut {
                    id,
                    until: Some(breaker::known_soon(Some(lapses), now)),
                },
                None => Box::pin(self.ask()).await?,
            },
        })
    }

    fn permit(&self, generation: i64, is_probe: bool) -> BreakerPermit {
        BreakerPermit {
            counts: Arc::clone(&self.desk.counts),
            circuit: self.circuit.clone(),
            generation,
            is_probe,
            terms: BreakerTerms::from(self.spec),
            window: self.spec.window,
            slow_after: self.spec.slow.as_ref().map(|slow| slow.after),
        }
    }

    /// Asks the ledger for a permit.
    async fn ask(&self) -> Result<Passed, NotAsked> {
        let BreakerDesk {
            pool, bus, counts, ..
        } = self.desk;
        let Circuit { tool, target } = &self.circuit;
        let answer = breakers::permit(pool, tool, target, self.timeout).await;
        let permitted = answer.map_err(|error| {
            tracing::debug!(error = report(&error), "a breaker was not asked");
            NotAsked
        })?;
        Ok(match permitted.verdict {
            PermitVerdict::Closed | PermitVerdict::Unguarded => {
                Passed::May(self.permit(permitted.generation, false))
            }
            PermitVerdict::Granted => {
                let permit = self.permit(permitted.generation, true);
                reached(Checkpoint::Permitted);
                // The others need not ask for what is given out. A bell that is lost costs each of them a statement.
                let lost =
                    "that a permit is given out was not told; processes find out by themselves";
                let subject = bus.subjects.control_changed();
                bus.tell(subject, Bytes::new(), lost).await;
                Passed::May(permit)
            }
            PermitVerdict::Refused => {
                let until = permitted.until;
                counts.refused(&self.circuit, until);
                Passed::Shut {
                    id: Some(permitted.id),
                    until: Some(breaker::known_soon(until, Instant::now())),
                }
            }
        })
    }

    /// The row of a breaker that an operator has forced before anything was counted.
    pub(crate) async fn row(&self) -> Result<BreakerId, StoreError> {
        let Circuit { tool, target } = &self.circuit;
        let permitted = breakers::permit(&self.desk.pool, tool, target, self.timeout).await?;
        if permitted.verdict == PermitVerdict::Granted {
            let circuit = self.circuit.clone();
            self.desk.counts.give_back(circuit, permitted.generation);
        }
        Ok(permitted.id)
    }
}

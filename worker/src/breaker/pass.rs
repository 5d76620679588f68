//! Breakers at the gate: a call whose target fails is ended, put aside or left to another worker, before its claim.
//!
//! What the snapshot of the registry says is enough for most calls. Only where a permit may be there the ledger is asked for it.

use std::sync::Arc;

use fleet::{
    breaker::{self, BreakerId, BreakerTerms, Passage, PermitVerdict},
    call::{Effect, State},
    checkpoint::{Checkpoint, reached},
    ending::{Ending, Fact, Guard, Known},
    hold::Line,
    ids::Label,
    manifest::{BreakerSpec, FallbackSpec, Manifest, WhenOpen},
    modes::{Brake, InterceptMode},
    outcome::ToolFailure,
    registry::Tool,
    store::{
        StoreError, breakers, pauses,
        read::{self, CallRow, CallState},
    },
    telemetry::{metrics, report},
    wire::{code::Code, message::Message, pointer::Pointer},
};
use tokio::time::Instant;

use super::{counts::Circuit, permit::BreakerPermit, reporter::ring};
use crate::{
    brakes, dispose::Skip, fallback::kept as fallback, large_results::pass as large_results,
    worker::WorkerProcess,
};

/// How a call goes on from its breaker.
pub(crate) enum Way {
    /// Its target may be tried. `None`: its tool has no breaker, by its newest version.
    Open(Option<BreakerPermit>),
    /// It is not, for this reason, and another tool is to be asked in its place, once the call is claimed.
    Shut(Box<ToolFailure>),
}

impl Way {
    /// The permit, or the reason.
    pub(crate) fn parts(self) -> (Option<BreakerPermit>, Option<Box<ToolFailure>>) {
        match self {
            Self::Open(permit) => (permit, None),
            Self::Shut(failure) => (None, Some(failure)),
        }
    }
}

/// Lets a call pass whose target may be tried, or that asks another tool.
pub(crate) async fn pass(
    worker: &WorkerProcess,
    pointer: &Pointer,
    tool: &Tool,
    newest: Option<&Manifest>,
) -> Result<Way, Skip> {
    let Some(newest) = newest else {
        return Ok(Way::Open(None));
    };
    let tenant = pointer.tenant.as_ref();
    let Some((guarded, mode)) = Guarded::of(worker, tool, newest, tenant) else {
        return Ok(Way::Open(None));
    };
    match Box::pin(guarded.permit_now()).await? {
        Passed::May(permit) => Ok(Way::Open(Some(permit))),
        Passed::OnlyElsewhere | Passed::Shut { .. } if mode == InterceptMode::Observe => {
            metrics().observed(&tool.manifest.name, Brake::Breaker);
            // It counts nothing: what is open hears only of its probes.
            Ok(Way::Open(None))
        }
        Passed::OnlyElsewhere => Err(Skip::OnlyHere),
        Passed::Shut { id, until } => {
            let shut = ShutCall {
                guarded,
                pointer,
                when_open: newest.when_open(),
            };
            let failure = Box::pin(shut.becomes(id, until)).await?;
            Ok(Way::Shut(failure))
        }
    }
}

/// The permit to ask a tool in the place of another one. `Ok(None)`: it has no breaker.
pub(crate) async fn permit_of(
    worker: &WorkerProcess,
    tool: &Tool,
    tenant: Option<&Label>,
) -> Result<Option<BreakerPermit>, &'static str> {
    let Some((guarded, mode)) = Guarded::of(worker, tool, &tool.manifest, tenant) else {
        return Ok(None);
    };
    match Box::pin(guarded.permit_now()).await {
        Ok(Passed::May(permit)) => Ok(Some(permit)),
        Ok(Passed::OnlyElsewhere | Passed::Shut { .. }) if mode == InterceptMode::Observe => {
            metrics().observed(&tool.manifest.name, Brake::Breaker);
            Ok(None)
        }
        Ok(Passed::OnlyElsewhere | Passed::Shut { .. }) => Err("its breaker is open"),
        Err(_silent) => Err("its breaker was not asked"),
    }
}

/// What became of a call at its breaker.
enum Passed {
    /// Its target may be tried.
    May(BreakerPermit),
    /// Not by this worker, which alone cannot reach the target.
    OnlyElsewhere,
    /// Not now: the breaker is shut, until then if that is known.
    Shut {
        id: Option<BreakerId>,
        until: Option<Instant>,
    },
}

/// A call at the gate whose tool has a breaker.
struct Guarded<'a> {
    worker: &'a WorkerProcess,
    tool: &'a Tool,
    spec: &'a BreakerSpec,
    circuit: Circuit,
}

impl<'a> Guarded<'a> {
    /// A call of this tool, and the mode of its breaker; `None`: it has none, or it is switched off.
    fn of(
        worker: &'a WorkerProcess,
        tool: &'a Tool,
        newest: &'a Manifest,
        tenant: Option<&Label>,
    ) -> Option<(Self, InterceptMode)> {
        let spec = newest.breaker.as_ref()?;
        let name = &tool.manifest.name;
        let mode = brakes::mode_of(worker, Brake::Breaker, name, tenant);
        let guarded = Self {
            worker,
            tool,
            spec,
            circuit: Circuit {
                tool: name.clone(),
                target: tool.manifest.executor.target(),
            },
        };
        (mode != InterceptMode::Off).then_some((guarded, mode))
    }

    async fn permit_now(&self) -> Result<Passed, Skip> {
        let (worker, now) = (self.worker, Instant::now());
        let breakers = worker.registry.breakers();
        let known = breakers.of(&self.circuit.tool, &self.circuit.target);
        let forced = worker.registry.controls();
        let forced = forced.forced_breaker(&self.circuit.tool);
        let id = known.map(|known| known.id);
        Ok(
            match breaker::passage(forced, known, self.spec.probes, now) {
                Passage::Free(generation) => {
                    let is_bad_here = !forced.is_some_and(|forced| forced.holds(now))
                        && worker.breakers.is_bad_here(&self.circuit, generation, now);
                    if is_bad_here {
                        Passed::OnlyElsewhere
                    } else {
                        Passed::May(self.permit(generation, false))
                    }
                }
                Passage::Shut(until) => Passed::Shut { id, until },
                Passage::Ask => match worker.breakers.refused_until(&self.circuit, now) {
                    Some(lapses) => Passed::Shut {
                        id,
                        until: Some(breaker::known_soon(Some(lapses), now)),
                    },
                    None => self.ask().await?,
                },
            },
        )
    }

    fn permit(&self, generation: i64, is_probe: bool) -> BreakerPermit {
        BreakerPermit {
            counts: Arc::clone(&self.worker.breakers),
            circuit: self.circuit.clone(),
            generation,
            is_probe,
            terms: BreakerTerms::from(self.spec),
            window: self.spec.window,
            slow_after: self.spec.slow.as_ref().map(|slow| slow.after),
        }
    }

    /// Asks the ledger for a permit.
    async fn ask(&self) -> Result<Passed, Skip> {
        let worker = self.worker;
        let Circuit { tool, target } = &self.circuit;
        let timeout = self.tool.manifest.timeout.longest();
        let answer = breakers::permit(&worker.pool, tool, target, timeout).await;
        let permitted = answer.map_err(|error| {
            tracing::debug!(error = report(&error), "a breaker was not asked");
            Skip::StoreSilent
        })?;
        Ok(match permitted.verdict {
            PermitVerdict::Closed | PermitVerdict::Unguarded => {
                Passed::May(self.permit(permitted.generation, false))
            }
            PermitVerdict::Granted => {
                let permit = self.permit(permitted.generation, true);
                reached(Checkpoint::Permitted);
                // The others need not ask for what is given out. A bell that is lost costs each of them a statement.
                ring(worker).await;
                Passed::May(permit)
            }
            PermitVerdict::Refused => {
                let until = permitted.until;
                worker.breakers.refused(&self.circuit, until);
                Passed::Shut {
                    id: Some(permitted.id),
                    until: Some(breaker::known_soon(until, Instant::now())),
                }
            }
        })
    }

    /// The row of a breaker that an operator has forced before anything was counted.
    async fn row(&self) -> Result<BreakerId, StoreError> {
        let Circuit { tool, target } = &self.circuit;
        let timeout = self.tool.manifest.timeout.longest();
        let permitted = breakers::permit(&self.worker.pool, tool, target, timeout).await?;
        if permitted.verdict == PermitVerdict::Granted {
            let circuit = self.circuit.clone();
            self.worker
                .breakers
                .give_back(circuit, permitted.generation);
        }
        Ok(permitted.id)
    }
}

/// A call whose target is not tried now.
struct ShutCall<'a> {
    guarded: Guarded<'a>,
    pointer: &'a Pointer,
    when_open: WhenOpen,
}

impl ShutCall<'_> {
    /// It ends, or waits; or it is claimed all the same, to ask another tool: then this returns why its own is not asked.
    async fn becomes(
        &self,
        id: Option<BreakerId>,
        until: Option<Instant>,
    ) -> Result<Box<ToolFailure>, Skip> {
        let Guarded { worker, tool, .. } = self.guarded;
        if self.when_open == WhenOpen::Fail {
            match read::find(&worker.pool, self.pointer.call_id).await {
                Ok(Some(row)) if row.state() != State::Queued => {
                    return Err(Skip::NotQueued(row.state()));
                }
                Ok(Some(row)) if !may_have_happened(&row, tool.manifest.effect) => {
                    let failure = self.failure(until);
                    let fallback = self.fallback(&row);
                    if fallback.is_some_and(|(fallback, mode)| {
                        fallback.tool.is_some() && mode == InterceptMode::Enforce
                    }) {
                        return Ok(Box::new(failure));
                    }
                    return Err(self.end(&row, &failure, fallback).await);
                }
                Ok(Some(_waits)) => {}
                Ok(None) => return Err(Skip::Gone),
                Err(_silent) => return Err(Skip::StoreSilent),
            }
        }
        Err(self.put_aside(id).await)
    }

    fn failure(&self, until: Option<Instant>) -> ToolFailure {
        let now = Instant::now();
        let forced = self.guarded.worker.registry.controls();
        let forced = forced.forced_breaker(&self.guarded.circuit.tool);
        let what = if forced.is_some_and(|forced| forced.is_open && forced.holds(now)) {
            Message::fixed(
                "an operator has stopped what is sent to what the tool depends on, so nothing was sent to it",
                "运维人员已停止向工具所依赖的目标发送请求，因此没有向它发送任何请求",
            )
        } else {
            Message::fixed(
                "what the tool depends on fails at present, so nothing was sent to it",
                "工具所依赖的目标目前出现故障，因此没有向它发送任何请求",
            )
        };
        let retry_after = Passage::Shut(until).retry_after(now);
        ToolFailure::new(Code::CircuitOpen, what).with_retry_after(Some(retry_after))
    }

    /// How what stands in for the answer of its tool does so, if something may.
    fn fallback(&self, row: &CallRow) -> Option<(&FallbackSpec, InterceptMode)> {
        let Guarded { worker, tool, .. } = self.guarded;
        let fallback = tool.manifest.fallback.as_ref()?;
        let is_probe = matches!(row.state, CallState::Queued { is_probe: true, .. });
        let (name, tenant) = (&tool.manifest.name, Some(&row.tenant));
        let mode = brakes::mode_of(worker, Brake::Fallback, name, tenant);
        (!is_probe && mode != InterceptMode::Off).then_some((fallback, mode))
    }

    /// Ends the call, with what stands in for its answer if that is there.
    async fn end(
        &self,
        row: &CallRow,
        failure: &ToolFailure,
        fallback: Option<(&FallbackSpec, InterceptMode)>,
    ) -> Skip {
        let Guarded { worker, tool, .. } = self.guarded;
        let known = Known {
            effect: tool.manifest.effect,
            language: row.language,
            cancelled: false,
            earlier_unknown: false,
            applied_late: false,
        };
        let (call, fact) = (self.pointer.call_id, Fact::Refused(failure));
        let guard = Guard::Queued(row.rev);
        let refused = Ending::by(&fact, &known, call, guard, None, worker.actor());
        let ending = match fallback {
            Some(fallback) => match self.stood_in_for(refused, row, fallback).await {
                Ok(ending) => ending,
                Err(skip) => return skip,
            },
            None => refused,
        };
        let (ended, ending) = match worker.end(&ending).await {
            Err(StoreError::Refused { .. }) if ending.is_stood_in_for() => {
                tracing::warn!("the ledger does not take the answer that stands in");
                let alone = ending.without_stand_in();
                (worker.end(&alone).await, alone)
            }
            ended => (ended, ending),
        };
        match ended {
            Ok(moved) => {
                if let Some(moved) = moved {
                    worker.reply(call, moved, ending, None).await;
                }
                Skip::CircuitOpen
            }
            Err(error) => {
                tracing::debug!(error = report(&error), "the call was not ended");
                Skip::StoreSilent
            }
        }
    }

    /// The same ending, with what stands in, if that is there. Where operators only observe the fallback, it is counted.
    async fn stood_in_for(
        &self,
        refused: Ending,
        row: &CallRow,
        (spec, mode): (&FallbackSpec, InterceptMode),
    ) -> Result<Ending, Skip> {
        let Guarded { worker, tool, .. } = self.guarded;
        let (name, began) = (&tool.manifest.name, Instant::now());
        let stale = fallback::stale(worker, spec, self.pointer.call_id, name, &row.tenant).await;
        let stale = stale.map_err(|error| {
            tracing::debug!(
                error = report(&error),
                "the ledger does not say what there is"
            );
            Skip::StoreSilent
        })?;
        let found = stale.or_else(|| fallback::stub(spec));
        if mode == InterceptMode::Observe {
            if found.is_some() || spec.tool.is_some() {
                metrics().observed(name, Brake::Fallback);
            }
            return Ok(refused);
        }
        worker.fallbacks.looked(found.is_some(), began.elapsed());
        Ok(match (found, refused.cause_of_fallback(false, false)) {
            (Some(stand_in), Some(cause)) => {
                reached(Checkpoint::FellBack);
                let ending = refused.answered_by(&stand_in, cause);
                let (manifest, language) = (&tool.manifest, row.language);
                large_results::shortened(worker, manifest, &row.tenant, ending, language)
            }
            (_, _) => refused,
        })
    }

    async fn put_aside(&self, id: Option<BreakerId>) -> Skip {
        let Guarded { worker, .. } = self.guarded;
        let id = match id {
            Some(id) => Ok(id),
            None => self.guarded.row().await,
        };
        let put = match id {
            Ok(id) => {
                pauses::put_aside(&worker.pool, self.pointer.call_id, &Line::Breaker(id)).await
            }
            Err(error) => Err(error),
        };
        match put {
            // Where it was not put aside it has moved, or is held already: its row says what becomes of it.
            Ok(_put_or_moved) => Skip::CircuitOpen,
            Err(error) => {
                tracing::debug!(error = report(&error), "the call was not put aside");
                Skip::StoreSilent
            }
        }
    }
}

/// Whether an earlier attempt may have had its effect, so that the call must not end as one without.
fn may_have_happened(row: &CallRow, effect: Effect) -> bool {
    let leaves_unknown = matches!(
        row.state,
        CallState::Queued {
            effect_unknown: true,
            ..
        }
    );
    match effect {
        Effect::Read | Effect::Transaction => false,
        Effect::Once => leaves_unknown,
        // Any earlier attempt may have had its effect, perhaps one that the ledger has lost.
        Effect::Idempotent => leaves_unknown || row.attempts > 0,
    }
}

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
    manifest::{BreakerSpec, Manifest, WhenOpen},
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
use crate::{brakes, dispose::Skip, worker::WorkerProcess};

/// Lets a call pass whose target may be tried. `None`: its tool has no breaker, by its newest version.
pub(crate) async fn pass(
    worker: &WorkerProcess,
    pointer: &Pointer,
    tool: &Tool,
    newest: Option<&Manifest>,
) -> Result<Option<BreakerPermit>, Skip> {
    let Some(newest) = newest else {
        return Ok(None);
    };
    let Some(spec) = &newest.breaker else {
        return Ok(None);
    };
    let name = &tool.manifest.name;
    let mode = brakes::mode_of(worker, Brake::Breaker, name, pointer.tenant.as_ref());
    if mode == InterceptMode::Off {
        return Ok(None);
    }
    let guarded = Guarded {
        worker,
        pointer,
        tool,
        spec,
        when_open: newest.when_open(),
        circuit: Circuit {
            tool: name.clone(),
            target: tool.manifest.executor.target(),
        },
    };
    match Box::pin(guarded.permit_now()).await? {
        Passed::May(permit) => Ok(Some(permit)),
        Passed::OnlyElsewhere | Passed::Shut { .. } if mode == InterceptMode::Observe => {
            metrics().observed(name, Brake::Breaker);
            // It counts nothing: what is open hears only of its probes.
            Ok(None)
        }
        Passed::OnlyElsewhere => Err(Skip::OnlyHere),
        Passed::Shut { id, until } => Err(Box::pin(guarded.shut(id, until)).await),
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
    pointer: &'a Pointer,
    tool: &'a Tool,
    spec: &'a BreakerSpec,
    when_open: WhenOpen,
    circuit: Circuit,
}

impl Guarded<'_> {
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

    /// Nothing is sent to the target now: the call ends, or waits.
    async fn shut(&self, id: Option<BreakerId>, until: Option<Instant>) -> Skip {
        if self.when_open == WhenOpen::Fail {
            match read::find(&self.worker.pool, self.pointer.call_id).await {
                Ok(Some(row)) if row.state() != State::Queued => {
                    return Skip::NotQueued(row.state());
                }
                Ok(Some(row)) if !may_have_happened(&row, self.tool.manifest.effect) => {
                    return self.end(&row, until).await;
                }
                Ok(Some(_waits)) => {}
                Ok(None) => return Skip::Gone,
                Err(_silent) => return Skip::StoreSilent,
            }
        }
        self.put_aside(id).await
    }

    async fn end(&self, row: &CallRow, until: Option<Instant>) -> Skip {
        let worker = self.worker;
        let now = Instant::now();
        let forced = worker.registry.controls();
        let forced = forced.forced_breaker(&self.circuit.tool);
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
        let failure = ToolFailure::new(Code::CircuitOpen, what).with_retry_after(Some(retry_after));
        let known = Known {
            effect: self.tool.manifest.effect,
            language: row.language,
            cancelled: false,
            earlier_unknown: false,
            applied_late: false,
        };
        let (call, fact) = (self.pointer.call_id, Fact::Refused(&failure));
        let ending = Ending::by(
            &fact,
            &known,
            call,
            Guard::Queued(row.rev),
            None,
            worker.actor(),
        );
        match worker.end(&ending).await {
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

    async fn put_aside(&self, id: Option<BreakerId>) -> Skip {
        let worker = self.worker;
        let id = match id {
            Some(id) => Ok(id),
            None => self.row().await,
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

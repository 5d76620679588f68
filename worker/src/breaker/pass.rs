//! Breakers at the gate: a call whose target fails is ended, put aside or left to another worker, before its claim.
//!
//! A model has a breaker for each of its routes, and its attempt asks about them; the gate only sees whether all are shut.

use fleet::{
    breaker::{BreakerId, Passage},
    call::{Effect, State},
    checkpoint::{Checkpoint, reached},
    ending::{Ending, Fact, Guard, Known},
    hold::Line,
    ids::Label,
    manifest::{ExecutorSpec, FallbackSpec, Manifest, WhenOpen},
    modes::{Brake, InterceptMode},
    outcome::ToolFailure,
    registry::Tool,
    store::{
        StoreError, pauses,
        read::{self, CallRow, CallState},
    },
    telemetry::{metrics, report},
    wire::{code::Code, message::Message, pointer::Pointer},
};
use tokio::time::Instant;

use super::{
    desk::{Glance, Guarded, NotAsked, Passed},
    permit::BreakerPermit,
};
use crate::{
    brakes, dispose::Skip, fallback::kept as fallback, large_results, worker::WorkerProcess,
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
    let (manifest, tenant) = (&tool.manifest, pointer.tenant.as_ref());
    let Some(mode) = worker.breaker_desk.mode(&manifest.name, newest, tenant) else {
        return Ok(Way::Open(None));
    };
    let (passed, guarded) = match &manifest.executor {
        ExecutorSpec::Chat(chat) => {
            // Its attempt asks for the permit of each route that it comes to.
            let routes = chat.targets().into_iter();
            let routes =
                routes.filter_map(|one| worker.breaker_desk.guarded(manifest, newest, one));
            match all_shut(routes) {
                Some((passed, guarded)) => (passed, guarded),
                None => return Ok(Way::Open(None)),
            }
        }
        other => {
            let target = other.target();
            let Some(guarded) = worker.breaker_desk.guarded(manifest, newest, target) else {
                return Ok(Way::Open(None));
            };
            let passed = Box::pin(guarded.permit_now()).await;
            (passed.map_err(|NotAsked| Skip::StoreSilent)?, guarded)
        }
    };
    match passed {
        Passed::May(permit) => Ok(Way::Open(Some(permit))),
        Passed::OnlyElsewhere | Passed::Shut { .. } if mode == InterceptMode::Observe => {
            metrics().observed(&tool.manifest.name, Brake::Breaker);
            // It counts nothing: what is open hears only of its probes.
            Ok(Way::Open(None))
        }
        Passed::OnlyElsewhere => Err(Skip::OnlyHere),
        Passed::Shut { id, until } => {
            let shut = ShutCall {
                worker,
                tool,
                guarded,
                pointer,
                when_open: newest.when_open(),
            };
            let failure = Box::pin(shut.becomes(id, until)).await?;
            Ok(Way::Shut(failure))
        }
    }
}

/// Why none of these may be tried now: by the one that may be tried first. `None`: one may, or there are none.
fn all_shut<'a>(routes: impl Iterator<Item = Guarded<'a>>) -> Option<(Passed, Guarded<'a>)> {
    let mut first: Option<(Option<Instant>, Passed, Guarded<'a>)> = None;
    for guarded in routes {
        let (until, passed) = match guarded.glance() {
            Glance::Perhaps => return None,
            // Another worker may try it at once.
            Glance::OnlyElsewhere => (Some(Instant::now()), Passed::OnlyElsewhere),
            Glance::Shut { id, until } => (until, Passed::Shut { id, until }),
        };
        let is_sooner = match &first {
            None => true,
            Some((other, ..)) => until.is_some_and(|until| other.is_none_or(|other| until < other)),
        };
        if is_sooner {
            first = Some((until, passed, guarded));
        }
    }
    first.map(|(_, passed, guarded)| (passed, guarded))
}

/// The permit to ask a tool in the place of another one. `Ok(None)`: it has no breaker.
pub(crate) async fn permit_of(
    worker: &WorkerProcess,
    tool: &Tool,
    tenant: Option<&Label>,
) -> Result<Option<BreakerPermit>, &'static str> {
    let manifest = &tool.manifest;
    // A model's routes are asked about by its attempt.
    if matches!(manifest.executor, ExecutorSpec::Chat(_)) {
        return Ok(None);
    }
    let mode = worker.breaker_desk.mode(&manifest.name, manifest, tenant);
    let target = manifest.executor.target();
    let guarded = worker.breaker_desk.guarded(manifest, manifest, target);
    let (Some(mode), Some(guarded)) = (mode, guarded) else {
        return Ok(None);
    };
    match Box::pin(guarded.permit_now()).await {
        Ok(Passed::May(permit)) => Ok(Some(permit)),
        Ok(Passed::OnlyElsewhere | Passed::Shut { .. }) if mode == InterceptMode::Observe => {
            metrics().observed(&manifest.name, Brake::Breaker);
            Ok(None)
        }
        Ok(Passed::OnlyElsewhere | Passed::Shut { .. }) => Err("its breaker is open"),
        Err(NotAsked) => Err("its breaker was not asked"),
    }
}

/// A call whose target is not tried now.
struct ShutCall<'a> {
    worker: &'a WorkerProcess,
    tool: &'a Tool,
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
        let Self { worker, tool, .. } = self;
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
        let forced = self.worker.registry.controls();
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
        let Self { worker, tool, .. } = self;
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
        let Self { worker, tool, .. } = self;
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
        let Self { worker, tool, .. } = self;
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
        let worker = self.worker;
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

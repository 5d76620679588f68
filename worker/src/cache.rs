//! The cache at the gate: a call whose tool has one is answered by an equal call, follows it, or fetches the answer.
//!
//! The ledger decides, by the call's row. A call that is answered costs no claim, no permit of a breaker and no slot of a
//! program. Probes of calls in doubt never come here: a kept "not found" would settle a charge as not applied.

use std::time::Duration;

use bytes::Bytes;
use fleet::{
    call::State,
    checkpoint::{Checkpoint, reached},
    ending::{Ending, Fact, Guard, Known},
    ids::CallId,
    manifest::{CacheSpec, Manifest},
    modes::{Brake, InterceptMode},
    registry::Tool,
    store::{
        answers::{Answered, LookRow, Looked},
        read::{self, CallRow, CallState},
    },
    telemetry::{metrics, report},
    wire::pointer::Pointer,
};
use tokio::time::Instant;

use crate::{brakes, dispose::Skip, interceptor::EndedView, onion::Round, worker::WorkerProcess};

/// Lets a call go on that has to ask its tool. Where the tool has no cache, this costs nothing.
pub(crate) async fn pass(
    worker: &WorkerProcess,
    pointer: &Pointer,
    tool: &Tool,
    newest: Option<&Manifest>,
    round: &mut Option<Box<Round>>,
) -> Result<(), Skip> {
    let Some(cache) = &tool.manifest.cache else {
        return Ok(());
    };
    if pointer.is_probe {
        return Ok(());
    }
    let name = &tool.manifest.name;
    let mode = brakes::mode_of(worker, Brake::Cache, name, pointer.tenant.as_ref());
    if mode == InterceptMode::Off {
        return Ok(());
    }
    let newest = newest.unwrap_or(&tool.manifest);
    let call = CachedCall {
        worker,
        call: pointer.call_id,
        tool,
        is_limited: newest.is_limited(),
        observes: mode == InterceptMode::Observe,
    };
    Box::pin(call.pass(cache, round)).await
}

/// A call at the gate whose tool has a cache.
struct CachedCall<'a> {
    worker: &'a WorkerProcess,
    call: CallId,
    tool: &'a Tool,
    /// Whether the newest version has a limit, for which it has waited.
    is_limited: bool,
    observes: bool,
}

impl CachedCall<'_> {
    async fn pass(&self, cache: &CacheSpec, round: &mut Option<Box<Round>>) -> Result<(), Skip> {
        let row = LookRow {
            call: self.call,
            ttl: cache.ttl,
            observes: self.observes,
            keep: self.keep(),
        };
        let began = Instant::now();
        let looked = self.worker.looking.look(row).await;
        let took = began.elapsed();
        let looked = looked.map_err(|error| {
            tracing::debug!(error = report(&error), "a kept answer was not looked for");
            Skip::StoreSilent
        })?;
        let Some(looked) = looked else {
            return Err(self.why_not().await);
        };
        reached(Checkpoint::Looked);
        let name = &self.tool.manifest.name;
        self.worker.cache.looked(name, &looked, took);
        match looked {
            Looked::Alone | Looked::Leads => Ok(()),
            Looked::Answered(answered) => Err(self.tell(*answered, round).await),
            Looked::Follows(leader) if !self.observes => {
                self.leave_place().await;
                // That one may have ended before this one was held: then nobody else lets it go before the next walk over all lines.
                ring(self.worker, Some(leader)).await;
                Err(Skip::Follows)
            }
            Looked::Hit | Looked::Follows(_) => {
                metrics().observed(name, Brake::Cache);
                Ok(())
            }
        }
    }

    /// Tells the caller that the call has ended with the answer of another one.
    async fn tell(&self, answered: Answered, round: &mut Option<Box<Round>>) -> Skip {
        let (worker, call) = (self.worker, self.call);
        let Answered {
            moved,
            secret,
            shown,
        } = answered;
        let known = Known {
            effect: self.tool.manifest.effect,
            language: self.tool.manifest.language,
            cancelled: false,
            earlier_unknown: false,
            applied_late: false,
        };
        let guard = Guard::Queued(moved.rev);
        let ending = Ending::by(&Fact::Answered, &known, call, guard, None, worker.actor());
        // Without the answer it can only ring the bell.
        let (ending, secret) = match shown {
            Some(shown) => (ending.with_result(shown), secret),
            None => (ending, None),
        };
        if let Some(round) = round {
            round.ended(EndedView::Answered);
        }
        worker.reply(call, moved, ending, secret).await;
        self.leave_place().await;
        Skip::Answered
    }

    /// A call of a tool with a limit takes no place and no start now: another one may be next.
    async fn leave_place(&self) {
        if self.is_limited {
            ring(self.worker, None).await;
        }
    }

    /// How long an answer may be needed beyond its time.
    fn keep(&self) -> Duration {
        let fallback = self.tool.manifest.fallback.as_ref();
        let stale = fallback.and_then(|fallback| fallback.stale);
        stale.map_or(Duration::ZERO, |stale| stale.max_age)
    }

    async fn queued(&self) -> Result<CallRow, Skip> {
        match read::find(&self.worker.pool, self.call).await {
            Ok(Some(row)) if row.state() == State::Queued => Ok(row),
            Ok(Some(row)) => Err(Skip::NotQueued(row.state())),
            Ok(None) => Err(Skip::Gone),
            Err(_silent) => Err(Skip::StoreSilent),
        }
    }

    /// Why nothing was found for it: its row says it.
    async fn why_not(&self) -> Skip {
        match self.queued().await {
            Ok(row) => match row.state {
                CallState::Queued { held: true, .. } => Skip::Held,
                // It waits for its next attempt, or another statement had its row.
                _waits => Skip::NotYet,
            },
            Err(skip) => skip,
        }
    }
}

/// Rings the dispatchers: a place is free, or the calls may go that follow this one, which has ended.
pub(crate) async fn ring(worker: &WorkerProcess, ended: Option<CallId>) {
    let lost = "that a call has ended was not told; a dispatcher finds out by itself";
    let body = ended.map_or_else(Bytes::new, |call| Bytes::from(call.to_string()));
    let subject = worker.bus.subjects.room();
    worker.bus.tell(subject, body, lost).await;
}

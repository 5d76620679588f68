//! The sweep: whatever Postgres says and nobody is doing, found and set going again.
//!
//! Any number of dispatchers run it at once; every pass is bounded and safe to repeat.
//!
//! | pass | finds | does |
//! |---|---|---|
//! | `due` | queued calls whose pause is over | publishes them, under a new number |
//! | `lost_pointer` | queued calls older than a pointer takes | publishes them again, under the same number: refused while the message is there |
//! | `expired` | queued calls whose deadline has passed | ends them |
//! | `dead_worker` | workers silent for a whole lease | declares them dead |
//! | `lost_attempt` | running calls without a worker, or overdue by far | again, in doubt or failed, by effect class |
//! | `topology` | a missing stream or consumer | makes it again |
//! | `upkeep` | dead rows, missing or old partitions | vacuums, creates ahead, drops |

use std::time::Duration;

use fleet::{
    bus::{connect::Bus, publish::Publisher, topology},
    call::{CallOutcome, Effect, EffectKnown, Source, State},
    ids::{CallId, QueueName},
    lease::Observations,
    outcome::{OutcomeWord, ToolFailure},
    registry::Registry,
    retry::{self, RetryDecision},
    store::{
        PgPool, StoreError,
        complete::{EndedAttempt, Ending, EndingKind, Guard},
        ledger::Completing,
        sweep::{self, Expired, Lost},
        workers,
    },
    telemetry::{metrics, report},
    wire::{code::Code, error::ErrorBody},
};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// What the passes need.
pub(crate) struct Sweep {
    pub(crate) bus: Bus,
    pub(crate) pool: PgPool,
    pub(crate) publisher: Publisher,
    pub(crate) completing: Completing,
    pub(crate) registry: Registry,
    /// Days of history to keep; `None` keeps all.
    pub(crate) history_days: Option<i32>,
}

/// How long an ending waits for the ledger; the next pass finds what was left.
const PATIENCE: Duration = Duration::from_secs(2);

impl Sweep {
    /// Sweeps until `stop` is cancelled.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let every = |period| {
            let mut ticks = interval(period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        };
        let (mut often, mut steady) = (
            every(Duration::from_millis(200)),
            every(Duration::from_secs(1)),
        );
        let (mut seldom, mut hourly) = (
            every(Duration::from_secs(5)),
            every(Duration::from_secs(3600)),
        );
        let (mut observations, mut cursor) = (Observations::default(), None);
        loop {
            let pass = tokio::select! {
                () = stop.cancelled() => return,
                _ = often.tick() => ("due", self.due().await),
                _ = steady.tick() => {
                    let dead = self.dead_workers(&mut observations).await;
                    if dead.is_err() {
                        observations.interrupted();
                    }
                    ("steady", dead.and(self.lost_attempts().await).and(self.walk(&mut cursor).await))
                }
                _ = seldom.tick() => {
                    self.topology().await;
                    ("vacuum", sweep::vacuum(&self.pool).await)
                }
                _ = hourly.tick() => ("partitions", self.partitions().await),
            };
            if let (name, Err(error)) = pass {
                tracing::warn!(
                    pass = name,
                    error = report(&error),
                    "a sweep was cut short; the next one goes on"
                );
            }
        }
    }

    async fn due(&self) -> Result<(), StoreError> {
        loop {
            let due = sweep::take_due(&self.pool).await?;
            if due.is_empty() {
                return Ok(());
            }
            metrics().swept("due", due.len() as u64);
            for call in due {
                self.publisher
                    .publish(&call.queue, call.n, &call.pointer)
                    .await;
            }
        }
    }

    async fn walk(&self, cursor: &mut Option<CallId>) -> Result<(), StoreError> {
        let step = sweep::walk(&self.pool, *cursor).await?;
        *cursor = step.cursor;
        metrics().swept("lost_pointer", step.waiting.len() as u64);
        for call in step.waiting {
            self.publisher
                .publish(&call.queue, call.n, &call.pointer)
                .await;
        }
        for call in step.expired {
            self.end(expired(call), "expired").await?;
        }
        Ok(())
    }

    async fn dead_workers(&self, observations: &mut Observations) -> Result<(), StoreError> {
        let beats = workers::heartbeats(&self.pool).await?;
        for (worker, beat) in observations.observe(Instant::now(), &beats) {
            if workers::declare_dead(&self.pool, worker, beat).await? {
                tracing::warn!(%worker, "worker has been silent for a whole lease and is declared dead");
                metrics().swept("dead_worker", 1);
            }
        }
        Ok(())
    }

    async fn lost_attempts(&self) -> Result<(), StoreError> {
        for lost in sweep::lost(&self.pool).await? {
            self.end(lost_attempt(&lost), "lost_attempt").await?;
        }
        Ok(())
    }

    async fn end(&self, ending: Ending, pass: &'static str) -> Result<(), StoreError> {
        let Some(ended) = self.completing.complete(&ending, PATIENCE).await? else {
            return Ok(());
        };
        metrics().swept(pass, 1);
        if ended.state.answers_waiters() {
            // Only the bell: the dispatcher that holds the waiter reads the row.
            let subject = self.bus.subjects.done(ended.dispatcher, ending.call_id);
            if let Err(error) = self.bus.client.publish(subject, bytes::Bytes::new()).await {
                tracing::debug!(%error, "waiters were not told; they find out by themselves");
            }
        }
        Ok(())
    }

    async fn topology(&self) {
        let mut queues: Vec<QueueName> = self
            .registry
            .all_current()
            .iter()
            .map(|tool| tool.manifest.queue.clone())
            .collect();
        queues.push(
            "default"
                .parse()
                .expect("the default queue has a valid name"),
        );
        queues.sort();
        queues.dedup();
        if let Err(error) = topology::ensure(&self.bus, &queues).await {
            tracing::warn!(
                error = report(&error),
                "the stream or a consumer could not be made; trying again"
            );
        }
    }

    async fn partitions(&self) -> Result<(), StoreError> {
        let (made, dropped) = sweep::keep_partitions(&self.pool, self.history_days).await?;
        if made > 0 || dropped > 0 {
            tracing::info!(made, dropped_days = dropped, "history partitions were kept");
        }
        Ok(())
    }
}

/// A queued call whose deadline has passed. If an attempt before left its effect unknown, so is the call's.
fn expired(call: Expired) -> Ending {
    let failure = ToolFailure::new(
        Code::DeadlineExceeded,
        "the call's deadline passed before it could run",
    );
    let kind = if call.unknown && !matches!(call.effect, Effect::Read) {
        EndingKind::Doubt {
            error: json(&ErrorBody::in_doubt(&failure)),
        }
    } else {
        let effect = untouched(call.effect);
        end(State::Expired, effect, &failure)
    };
    Ending {
        call_id: call.call_id,
        guard: Guard::Queued(call.rev),
        kind,
        attempt: None,
        actor: "sweep".to_owned(),
        reason: "deadline_exceeded".to_owned(),
    }
}

/// A running call that nobody runs.
fn lost_attempt(lost: &Lost) -> Ending {
    let why = if lost.overdue {
        "attempt_overdue"
    } else {
        "worker_lost"
    };
    let failure = ToolFailure::new(
        Code::ToolCrashed,
        "the worker that ran the tool died or fell silent",
    );
    let decision = retry::after_loss(lost.effect, lost.lost_attempts.saturating_add(1));
    let (kind, effect) = match decision {
        RetryDecision::Again(pause) => {
            let pause_ms = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
            (
                EndingKind::Again {
                    pause_ms,
                    lost: true,
                },
                EffectKnown::Unknown,
            )
        }
        RetryDecision::Doubt => (
            EndingKind::Doubt {
                error: json(&ErrorBody::in_doubt(&failure)),
            },
            EffectKnown::Unknown,
        ),
        RetryDecision::Fail
        | RetryDecision::Exhausted
        | RetryDecision::OutOfTime
        | RetryDecision::Succeed => (
            end(State::Failed, EffectKnown::None, &failure),
            EffectKnown::None,
        ),
    };
    Ending {
        call_id: lost.call_id,
        guard: Guard::Attempt(lost.attempt_id),
        kind,
        attempt: Some(EndedAttempt {
            outcome: OutcomeWord::Unknown,
            effect,
            error: Some(json(&failure)),
        }),
        actor: "sweep".to_owned(),
        reason: why.to_owned(),
    }
}

fn end(state: State, effect: EffectKnown, failure: &ToolFailure) -> EndingKind {
    EndingKind::End {
        state,
        outcome: CallOutcome::SystemError,
        source: Source::Error,
        effect,
        result: None,
        error: Some(json(&ErrorBody::failed(failure, effect))),
    }
}

/// What is known of the effect of a call that never ran.
const fn untouched(effect: Effect) -> EffectKnown {
    match effect {
        Effect::Read => EffectKnown::None,
        Effect::Idempotent | Effect::Once | Effect::Transaction => EffectKnown::NotApplied,
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("errors have only string keys")
}

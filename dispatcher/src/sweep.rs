//! The sweep: whatever Postgres says and nobody is doing, found and set going again.
//!
//! Any number of dispatchers run it at once; every pass is bounded and safe to repeat. What needs only Postgres, what needs
//! NATS, and what may take minutes run beside each other: without NATS, dead workers are found and calls expire all the same.
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
        complete::{AttemptCost, EndedAttempt, Ending, EndingKind, Guard},
        ledger::Completing,
        session::Postgres,
        sweep::{self, Expired, Lost, Publishable, Upkeep},
        workers,
    },
    telemetry::{metrics, report},
    wire::{code::Code, error::ErrorBody},
};
use futures_util::{FutureExt, future::join_all};
use tokio::{
    task::JoinSet,
    time::{Instant, Interval, MissedTickBehavior, interval, timeout},
};
use tokio_util::sync::CancellationToken;

/// What the passes need.
#[derive(Clone)]
pub(crate) struct Sweep {
    pub(crate) bus: Bus,
    pub(crate) postgres: Postgres,
    pub(crate) pool: PgPool,
    pub(crate) publisher: Publisher,
    pub(crate) completing: Completing,
    pub(crate) registry: Registry,
    /// Days of history to keep; `None` keeps all.
    pub(crate) history_days: Option<i32>,
}

/// How long an ending waits for the ledger; the next pass finds what was left.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one second's walk may take.
const WALK_MAX: Duration = Duration::from_millis(300);
/// How long a walk over everything takes at least, so that a small table is not published over and over.
const CIRCUIT_MIN: Duration = Duration::from_secs(3);
/// After an outage, attempts have this long to be recorded before one that is overdue counts as lost.
const SETTLED_AFTER: Duration = Duration::from_secs(30);

impl Sweep {
    /// Starts the passes on `tasks`; they end when `stop` is cancelled.
    pub(crate) fn start(self, tasks: &mut JoinSet<()>, stop: &CancellationToken) {
        let (due, ledger, topology, upkeep) = (self.clone(), self.clone(), self.clone(), self);
        let stopped = || stop.clone();
        tasks.spawn(
            stopped()
                .run_until_cancelled_owned(due.sweep_due())
                .map(drop),
        );
        tasks.spawn(
            stopped()
                .run_until_cancelled_owned(ledger.sweep_ledger())
                .map(drop),
        );
        tasks.spawn(
            stopped()
                .run_until_cancelled_owned(topology.keep_topology())
                .map(drop),
        );
        tasks.spawn(
            stopped()
                .run_until_cancelled_owned(upkeep.keep_up())
                .map(drop),
        );
    }

    /// Publishes what is due. Cancel-safe: what was taken and not published is found by its age.
    async fn sweep_due(self) {
        let mut ticks = every(Duration::from_millis(200));
        loop {
            ticks.tick().await;
            // What is taken while nothing can be published waits longer than what is left.
            if self.bus.is_connected() {
                warn("due", self.due().await);
            }
        }
    }

    async fn due(&self) -> Result<(), StoreError> {
        loop {
            let due = sweep::take_due(&self.pool).await?;
            metrics().swept("due", due.len() as u64);
            if due.is_empty() || !self.publish(due).await {
                return Ok(());
            }
        }
    }

    /// Everything that Postgres alone decides. Cancel-safe: each ending is one statement.
    async fn sweep_ledger(self) {
        let mut ticks = every(Duration::from_secs(1));
        let mut observations = Observations::default();
        let mut circuit = Circuit {
            cursor: None,
            began: Instant::now(),
        };
        loop {
            ticks.tick().await;
            let dead = self.dead_workers(&mut observations).await;
            if dead.is_err() {
                observations.interrupted();
            }
            warn("dead_worker", dead);
            let overdue_too = observations.unbroken_for(Instant::now()) >= SETTLED_AFTER;
            warn("lost_attempt", self.lost_attempts(overdue_too).await);
            warn("walk", self.walk(&mut circuit).await);
        }
    }

    async fn walk(&self, circuit: &mut Circuit) -> Result<(), StoreError> {
        let began = Instant::now();
        while began.elapsed() < WALK_MAX {
            if circuit.cursor.is_none() {
                if circuit.began.elapsed() < CIRCUIT_MIN {
                    return Ok(());
                }
                circuit.began = Instant::now();
            }
            let step = sweep::walk(&self.pool, circuit.cursor).await?;
            circuit.cursor = step.cursor;
            self.end_all(step.expired.into_iter().map(expired).collect(), "expired")
                .await;
            if self.bus.is_connected() {
                metrics().swept("lost_pointer", step.waiting.len() as u64);
                self.publish(step.waiting).await;
            }
            if circuit.cursor.is_none() {
                return Ok(());
            }
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

    async fn lost_attempts(&self, overdue_too: bool) -> Result<(), StoreError> {
        let lost = sweep::lost(&self.pool, overdue_too).await?;
        self.end_all(lost.iter().map(lost_attempt).collect(), "lost_attempt")
            .await;
        Ok(())
    }

    /// Ends calls side by side, so that they share commits; one that cannot be ended is left to the next pass.
    async fn end_all(&self, endings: Vec<Ending>, pass: &'static str) {
        join_all(endings.into_iter().map(|ending| self.end(ending, pass))).await;
    }

    async fn end(&self, ending: Ending, pass: &'static str) {
        match self.completing.complete(&ending, PATIENCE).await {
            Ok(Some(ended)) => {
                metrics().swept(pass, 1);
                if ended.state.answers_waiters() && self.bus.is_connected() {
                    // Only the bell: the dispatcher that holds the waiter reads the row.
                    let subject = self.bus.subjects.done(ended.dispatcher, ending.call_id);
                    let ringing = self.bus.client.publish(subject, bytes::Bytes::new());
                    if !matches!(timeout(Duration::from_secs(1), ringing).await, Ok(Ok(()))) {
                        tracing::debug!("waiters were not told; they find out by themselves");
                    }
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(pass, call = %ending.call_id, error = report(&error), "a call was not ended");
            }
        }
    }

    /// False when the connection took no more.
    async fn publish(&self, calls: Vec<Publishable>) -> bool {
        for call in calls {
            if !self
                .publisher
                .publish(&call.queue, call.n, &call.pointer)
                .await
            {
                return false;
            }
        }
        true
    }

    /// Makes the stream and the consumers again when they are gone. Cancel-safe.
    async fn keep_topology(self) {
        let mut ticks = every(Duration::from_secs(5));
        loop {
            ticks.tick().await;
            if !self.bus.is_connected() {
                continue;
            }
            let mut queues = self.registry.queues();
            queues.insert(
                "default"
                    .parse()
                    .expect("the default queue has a valid name"),
            );
            let queues: Vec<QueueName> = queues.into_iter().collect();
            if let Err(error) = topology::ensure(&self.bus, &queues).await {
                tracing::warn!(
                    error = report(&error),
                    "the stream or a consumer could not be made; trying again"
                );
            }
        }
    }

    /// Vacuums every few seconds, keeps partitions every hour. Cancel-safe: each is one statement.
    async fn keep_up(self) {
        let (mut seldom, mut hourly) = (
            every(Duration::from_secs(5)),
            every(Duration::from_secs(3600)),
        );
        loop {
            let kept = tokio::select! {
                _ = seldom.tick() => self.vacuum().await,
                _ = hourly.tick() => self.partitions().await,
            };
            warn("upkeep", kept);
        }
    }

    async fn vacuum(&self) -> Result<(), StoreError> {
        sweep::vacuum(&mut self.postgres.connect_for_upkeep().await?).await
    }

    async fn partitions(&self) -> Result<(), StoreError> {
        let mut connection = self.postgres.connect_for_upkeep().await?;
        let kept = sweep::keep_partitions(&mut connection, self.history_days).await?;
        if kept != Upkeep::default() {
            tracing::info!(
                made = kept.made,
                dropped_days = kept.dropped_days,
                "history partitions were kept"
            );
        }
        Ok(())
    }
}

/// One walk over all open calls.
struct Circuit {
    cursor: Option<CallId>,
    began: Instant,
}

fn every(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

fn warn(pass: &'static str, swept: Result<(), StoreError>) {
    if let Err(error) = swept {
        tracing::warn!(
            pass,
            error = report(&error),
            "a sweep was cut short; the next one goes on"
        );
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
    let mut reason = if lost.overdue {
        "attempt_overdue"
    } else {
        "worker_lost"
    };
    let failure = ToolFailure::new(
        Code::ToolCrashed,
        "the worker that ran the tool died or fell silent",
    );
    let lost_attempts = lost.lost_attempts.saturating_add(1);
    let decision = retry::after_loss(lost.effect, lost_attempts, lost.cancel_requested);
    let (kind, effect) = match decision {
        RetryDecision::Again(pause) => {
            let pause_ms = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
            (
                EndingKind::Again {
                    pause_ms,
                    cost: AttemptCost::Lost,
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
        RetryDecision::Cancelled => {
            reason = Code::Cancelled.as_str();
            let cancelled = retry::cancelled(&failure);
            (
                end(State::Cancelled, EffectKnown::None, &cancelled),
                EffectKnown::None,
            )
        }
        RetryDecision::Fail
        | RetryDecision::FailCancelled
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
            over: false,
        }),
        actor: "sweep".to_owned(),
        reason: reason.to_owned(),
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

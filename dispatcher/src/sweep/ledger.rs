//! Everything that Postgres alone decides: dead workers, lost attempts, and the walk over all open calls.

use std::time::Duration;

use fleet::{
    call::{CallOutcome, Effect, EffectKnown, Source, State},
    ids::CallId,
    lease::Observations,
    outcome::{OutcomeWord, ToolFailure},
    retry::{self, RetryDecision},
    store::{
        StoreError,
        complete::{AttemptCost, EndedAttempt, Ending, EndingKind, Guard},
        sweep::{self, Expired, Lost},
        workers,
    },
    telemetry::metrics,
    wire::{code::Code, error::ErrorBody},
};
use tokio::time::Instant;

use super::{Sweep, every, warn};

/// How long one second's walk may take.
const WALK_MAX: Duration = Duration::from_millis(300);
/// How long a walk over everything takes at least, so that a small table is not published over and over.
const CIRCUIT_MIN: Duration = Duration::from_secs(3);
/// After an outage, attempts have this long to be recorded before one that is overdue counts as lost.
const SETTLED_AFTER: Duration = Duration::from_secs(30);

impl Sweep {
    /// Everything that Postgres alone decides. Cancel-safe: each ending is one statement.
    pub(super) async fn sweep_ledger(self) {
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
}

/// One walk over all open calls.
struct Circuit {
    cursor: Option<CallId>,
    began: Instant,
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
            over: false,
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

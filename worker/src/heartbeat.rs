//! The heartbeat, and the look at our own rows that goes with it.
//!
//! One row says that this process lives, whatever it runs. When it cannot be renewed the worker starts nothing any more;
//! when somebody has declared it dead it finishes what runs, reports it late, and leaves.
//!
//! With every beat the worker also reads which calls the ledger thinks it runs. One that it does not know is a claim whose
//! answer never came and that it gave up on: nothing was started for it, so it is given back.

use std::sync::Arc;

use fleet::{
    call::EffectKnown,
    delay::Reconnect,
    lease::{BEAT, Lease},
    outcome::{OutcomeWord, ToolFailure},
    store::{
        StoreError,
        complete::{EndedAttempt, Ending, EndingKind, Guard},
        session::Postgres,
        workers,
    },
    telemetry::{metrics, report},
    wire::code::Code,
};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::worker::Worker;

/// Beats until `stop` is cancelled. Cancels `intake` when the worker has been declared gone.
pub(crate) async fn run(
    worker: Arc<Worker>,
    postgres: Postgres,
    intake: CancellationToken,
    stop: CancellationToken,
) {
    let mut reconnect = Reconnect::default();
    while !stop.is_cancelled() {
        let beaten = stop
            .run_until_cancelled(beat_until_broken(&worker, &postgres, &intake))
            .await;
        if let Some(Err(error)) = beaten {
            tracing::warn!(error = report(&error), "heartbeat failed");
            if !worker.may_start() {
                metrics().lost_lease();
            }
        }
        stop.run_until_cancelled(reconnect.pause()).await;
    }
}

/// Beats on one connection until it breaks. Cancel-safe: what it writes is one statement at a time.
async fn beat_until_broken(
    worker: &Worker,
    postgres: &Postgres,
    intake: &CancellationToken,
) -> Result<(), StoreError> {
    let mut connection = postgres.connect().await?;
    let mut ticks = interval(BEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let sent_at = Instant::now();
        if workers::beat(&mut connection, worker.id).await? {
            *worker
                .lease
                .lock()
                .expect("nobody panics while holding the lease") = Some(Lease::renewed(sent_at));
        } else if !intake.is_cancelled() {
            tracing::error!("this worker was declared gone; it finishes what it runs and leaves");
            metrics().lost_lease();
            *worker
                .lease
                .lock()
                .expect("nobody panics while holding the lease") = None;
            intake.cancel();
        }
        for (call_id, attempt) in workers::running(&mut connection, worker.id).await? {
            if !worker.is_in_flight(attempt) {
                give_back(worker, call_id, attempt).await;
            }
        }
    }
}

async fn give_back(worker: &Worker, call_id: fleet::ids::CallId, attempt: fleet::ids::AttemptId) {
    let failure = ToolFailure::new(
        Code::Unavailable,
        "the claim was given up before anything was started",
    );
    let ending = Ending {
        call_id,
        guard: Guard::Attempt(attempt),
        kind: EndingKind::Again {
            pause_ms: 0,
            lost: true,
        },
        attempt: Some(EndedAttempt {
            outcome: OutcomeWord::NotStarted,
            effect: EffectKnown::NotApplied,
            error: serde_json::to_string(&failure).ok(),
        }),
        actor: worker.actor(),
        reason: "claim_given_up".to_owned(),
    };
    match worker.end(&ending).await {
        Ok(ended) => {
            tracing::info!(call = %call_id, given_back = ended.is_some(), "a claim that was given up was found")
        }
        Err(error) => tracing::debug!(
            error = report(&error),
            "a claim was not given back; trying again with the next beat"
        ),
    }
}

//! The heartbeat, and the look for claims that were given up.
//!
//! One row says that this process lives, whatever it runs. When it cannot be renewed the worker starts nothing any more;
//! when somebody has declared it dead it finishes what runs, reports it late, and leaves.
//!
//! A claim whose answer never came was given up: nothing was started for it. If it was committed all the same, or is
//! committed a moment later, its call would run nowhere; so with every beat such claims are looked for and given back.

use std::{sync::Arc, time::Duration};

use fleet::{
    call::EffectKnown,
    delay::Reconnect,
    ids::{AttemptId, CallId},
    lease::{BEAT, Lease},
    outcome::{OutcomeWord, ToolFailure},
    store::{
        PgConnection, StoreError,
        complete::{AttemptCost, EndedAttempt, Ending, EndingKind, Guard},
        session::{Postgres, within},
        standing, workers,
    },
    telemetry::{metrics, report},
    wire::code::Code,
};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::worker::Worker;

/// How long a beat may take before its connection is given up.
const BEAT_MAX: Duration = Duration::from_secs(5);
/// How long a claim that was given up may still be committed: longer than a statement may run.
const GIVEN_UP_FOR: Duration = Duration::from_secs(60);

/// Beats until `stop` is cancelled. Cancels `intake` when the worker has been declared gone.
pub(crate) async fn run(
    worker: Arc<Worker>,
    postgres: Postgres,
    intake: CancellationToken,
    stop: CancellationToken,
) {
    // Short pauses: a lease is at stake.
    let mut reconnect = Reconnect::up_to(Duration::from_secs(1));
    while !stop.is_cancelled() {
        let beating = beat_until_broken(&worker, &postgres, &intake, &mut reconnect);
        if let Some(Err(error)) = stop.run_until_cancelled(beating).await {
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
    reconnect: &mut Reconnect,
) -> Result<(), StoreError> {
    let mut connection = postgres.connect().await?;
    let mut ticks = interval(BEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (sent_at, ground) = (Instant::now(), worker.postgres.quarantines());
        let beaten = within("beat", BEAT_MAX, workers::beat(&mut connection, worker.id)).await?;
        reconnect.reached();
        let lease = beaten.then(|| (Lease::renewed(sent_at), ground));
        *worker
            .lease
            .lock()
            .expect("nobody panics while holding the lease") = lease;
        if !beaten && !intake.is_cancelled() {
            tracing::error!("this worker was declared gone; it finishes what it runs and leaves");
            metrics().lost_lease();
            intake.cancel();
        }
        give_back(worker, &mut connection).await?;
        let looking = standing::mark(&mut connection);
        if let Some(mark) = within("read the ledger's mark", BEAT_MAX, looking).await? {
            worker.postgres.remember(mark);
        }
    }
}

async fn give_back(worker: &Worker, connection: &mut PgConnection) -> Result<(), StoreError> {
    let given_up: Vec<(CallId, AttemptId)> = {
        let mut given_up = worker
            .given_up
            .lock()
            .expect("nobody panics while holding the claims");
        given_up.retain(|_, (_, since)| since.elapsed() < GIVEN_UP_FOR);
        given_up
            .iter()
            .map(|(attempt, (call, _))| (*call, *attempt))
            .collect()
    };
    if given_up.is_empty() {
        return Ok(());
    }
    let looking = workers::still_claimed(connection, &given_up);
    for (call, attempt) in within("look for claims", BEAT_MAX, looking).await? {
        match worker.end(&returned(worker, call, attempt)).await {
            Ok(_moved) => {
                tracing::info!(%call, "a claim that was given up had been committed; the call is queued again");
                worker
                    .given_up
                    .lock()
                    .expect("nobody panics while holding the claims")
                    .remove(&attempt);
            }
            Err(error) => {
                tracing::debug!(
                    error = report(&error),
                    "a claim was not given back; trying again with the next beat"
                );
            }
        }
    }
    Ok(())
}

fn returned(worker: &Worker, call_id: CallId, attempt: AttemptId) -> Ending {
    let what = "the claim was given up before anything was started";
    let failure = ToolFailure::new(Code::Unavailable, what);
    Ending {
        call_id,
        guard: Guard::Attempt(attempt),
        kind: EndingKind::Again {
            pause_ms: 0,
            cost: AttemptCost::Unspent,
        },
        attempt: Some(EndedAttempt {
            outcome: OutcomeWord::NotStarted,
            effect: EffectKnown::NotApplied,
            error: serde_json::to_string(&failure).ok(),
            over: true,
        }),
        actor: worker.actor(),
        reason: "claim_given_up".to_owned(),
    }
}

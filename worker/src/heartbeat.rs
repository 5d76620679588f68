//! The heartbeat, and the look at the calls that this worker claimed.
//!
//! One row says that this process lives, whatever it runs. When the row cannot be renewed, the worker starts nothing any more.
//! When a dispatcher has declared the worker dead, it finishes what runs, reports it late, and leaves.
//!
//! A claim without an answer was given up: nothing was started for it. It may have been committed all the same, or be committed
//! a moment later; its call would then run nowhere. So every beat looks for such claims and gives them back. The same look
//! finds calls that are to stop, in case their bell was lost.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, MutexGuard},
    time::Duration,
};

use fleet::{
    delay::Reconnect,
    ending::{EndedAttempt, Ending, Fact, Guard, Known},
    ids::{AttemptId, CallId},
    lease::{BEAT, Lease},
    outcome::{OutcomeWord, ToolFailure},
    store::{
        PgConnection, StoreError,
        session::{Postgres, within},
        watermark,
        workers::{self, OwnRow},
    },
    taken_back::TakenBack,
    telemetry::{metrics, report},
    wire::{code::Code, message::Message},
};
use futures_util::future::join_all;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{cancel, worker::WorkerProcess};

/// How long a beat may take before its connection is given up.
const BEAT_MAX: Duration = Duration::from_secs(5);
/// How often the worker looks whether it has a lease again after it lost one.
const RENEWED_LOOK: Duration = Duration::from_millis(250);
/// How long a claim that was given up may still be committed: longer than a statement may run, and than the system keeps
/// sending what was written to a broken connection.
const GIVEN_UP_FOR: Duration = Duration::from_secs(300);

/// Beats until `stop` is cancelled. Cancels `intake` when the worker has been declared gone.
pub(crate) async fn run(
    worker: Arc<WorkerProcess>,
    postgres: Postgres,
    intake: CancellationToken,
    stop: CancellationToken,
) {
    // Short pauses: the lease is at stake.
    let mut reconnect = Reconnect::up_to(Duration::from_secs(1));
    let beats = async {
        while !stop.is_cancelled() {
            let beating = beat_until_broken(&worker, &postgres, &intake, &mut reconnect);
            if let Some(Err(error)) = stop.run_until_cancelled(beating).await {
                let error_text = report(&error);
                if error.is_unavailable() {
                    // The process says once that Postgres does not answer, and below that the lease is lost.
                    tracing::debug!(error = error_text, "heartbeat failed");
                } else {
                    tracing::warn!(error = error_text, "heartbeat failed");
                }
            }
            stop.run_until_cancelled(reconnect.pause()).await;
        }
    };
    tokio::select! {
        () = beats => {}
        never = count_lost_leases(&worker) => match never {},
    }
}

/// Counts each lease that ends before it is renewed, when it ends: a beat without an answer returns only when its connection is
/// given up. Cancel-safe.
async fn count_lost_leases(worker: &WorkerProcess) -> Infallible {
    let mut counted = None;
    loop {
        let ends_at = ends_at(worker).filter(|ends_at| counted != Some(*ends_at));
        let Some(ends_at) = ends_at else {
            sleep(RENEWED_LOOK).await;
            continue;
        };
        sleep_until(ends_at).await;
        if self::ends_at(worker) == Some(ends_at) {
            tracing::warn!("the lease was not renewed in time: nothing is started until it is");
            metrics().lost_lease();
            counted = Some(ends_at);
        }
    }
}

fn ends_at(worker: &WorkerProcess) -> Option<Instant> {
    let lease = worker
        .lease
        .lock()
        .expect("no thread panics while holding the lease");
    lease.map(|(lease, _quarantines)| lease.ends_at())
}

/// Beats on one connection until it breaks. Cancel-safe: what it writes is one statement at a time.
async fn beat_until_broken(
    worker: &WorkerProcess,
    postgres: &Postgres,
    intake: &CancellationToken,
    reconnect: &mut Reconnect,
) -> Result<(), StoreError> {
    let mut connection = postgres.connect().await?;
    let mut ticks = interval(BEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (sent_at, quarantines) = (Instant::now(), worker.postgres.quarantines());
        let beaten = within("beat", BEAT_MAX, workers::beat(&mut connection, worker.id)).await?;
        reconnect.reached();
        let had_ended = ends_at(worker).is_none_or(|ends_at| ends_at <= Instant::now());
        let lease = beaten.then(|| (Lease::renewed(sent_at), quarantines));
        *worker
            .lease
            .lock()
            .expect("no thread panics while holding the lease") = lease;
        if !beaten && !intake.is_cancelled() {
            tracing::error!("this worker was declared gone; it finishes what it runs and leaves");
            // A lease that ended before is counted already.
            if !had_ended {
                metrics().lost_lease();
            }
            intake.cancel();
        }
        look_after(worker, &mut connection).await?;
        let looking = watermark::read(&mut connection);
        if let Some(watermark) = within("read the ledger's watermark", BEAT_MAX, looking).await? {
            worker.postgres.remember(watermark);
        }
    }
}

/// Reads the rows of every call that was claimed here: those that run, and those that were given up.
pub(crate) async fn look_after(
    worker: &WorkerProcess,
    connection: &mut PgConnection,
) -> Result<(), StoreError> {
    let looked_at = Instant::now();
    let given_up: HashMap<AttemptId, CallId> = claims(worker)
        .iter()
        .map(|(attempt, (call, _))| (*attempt, *call))
        .collect();
    let mut claimed = worker.attempts.uncancelled(|_| true);
    claimed.extend(given_up.iter().map(|(attempt, call)| (*call, *attempt)));
    if claimed.is_empty() {
        return Ok(());
    }
    let looking = workers::own_rows(connection, &claimed);
    let rows = within("look after what runs here", BEAT_MAX, looking).await?;
    let (stray, running): (Vec<OwnRow>, Vec<OwnRow>) = rows
        .into_iter()
        .partition(|row| given_up.contains_key(&row.attempt_id));
    // Only a look can tell that no claim was committed and none will be: an outage may last longer than that.
    claims(worker).retain(|attempt, (_, since)| {
        looked_at.saturating_duration_since(*since) < GIVEN_UP_FOR
            || stray.iter().any(|row| row.attempt_id == *attempt)
    });
    cancel::heed(worker, &running);
    // Side by side: one after the other, a silent ledger would cost the lease.
    join_all(stray.iter().map(|row| give_back(worker, row))).await;
    Ok(())
}

fn claims(worker: &WorkerProcess) -> MutexGuard<'_, HashMap<AttemptId, (CallId, Instant)>> {
    worker
        .given_up
        .lock()
        .expect("no thread panics while holding the claims")
}

async fn give_back(worker: &WorkerProcess, row: &OwnRow) {
    let call = row.call_id;
    match worker.end(&returned(worker.actor(), row)).await {
        Ok(Some(ended)) => {
            tracing::info!(%call, state = %ended.state, "a claim that was given up had been committed; it was taken back");
            claims(worker).remove(&row.attempt_id);
        }
        // Its row is locked, or a cancellation came since it was read.
        Ok(None) => tracing::debug!(%call, "a claim was not given back; the next beat looks again"),
        Err(error) => tracing::debug!(
            error = report(&error),
            "a claim was not given back; the next beat looks again"
        ),
    }
}

fn returned(actor: String, row: &OwnRow) -> Ending {
    let what = Message::fixed(
        "the claim was given up before anything was started",
        "认领在开始任何操作之前就被放弃",
    );
    let failure = ToolFailure::new(Code::Unavailable, what);
    let known = Known {
        effect: row.effect,
        language: row.language,
        cancelled: row.cancel_requested,
        earlier_unknown: row.effect_unknown,
        applied_late: false,
    };
    let fact = Fact::TakenBack {
        why: TakenBack::ClaimGivenUp,
        failure: &failure,
        before: 0,
    };
    let (guard, word) = (Guard::Attempt(row.attempt_id), OutcomeWord::NotStarted);
    let attempt = EndedAttempt::of(row.effect, word, Some(&failure), true, row.language);
    Ending::by(&fact, &known, row.call_id, guard, Some(attempt), actor)
}

#[cfg(test)]
mod tests {
    use fleet::{
        call::{Effect, Language, State},
        ending::EndingKind,
        ids::{AttemptId, CallId},
    };

    use super::*;

    #[test]
    fn a_claim_given_up_goes_back_unless_its_call_was_taken_back() {
        let ending = |effect, effect_unknown, cancel_requested| {
            let row = OwnRow {
                call_id: CallId::generate(),
                attempt_id: AttemptId::generate(),
                effect,
                effect_unknown,
                cancel_requested,
                language: Language::En,
            };
            let ending = returned("worker".to_owned(), &row);
            let state = match ending.kind {
                EndingKind::Again { .. } => State::Queued,
                EndingKind::Doubt(decision) | EndingKind::End(decision) => decision.state,
            };
            (state, ending.reason)
        };
        for effect in Effect::ALL {
            let given_up = (State::Queued, "claim_given_up".to_owned());
            assert_eq!(ending(*effect, true, false), given_up, "{effect}");
        }
        for (effect, effect_unknown, state) in [
            (Effect::Read, true, State::Cancelled),
            (Effect::Idempotent, false, State::Cancelled),
            (Effect::Idempotent, true, State::InDoubt),
            (Effect::Transaction, false, State::Cancelled),
            (Effect::Once, false, State::Failed),
        ] {
            let expected = (state, "cancelled".to_owned());
            assert_eq!(ending(effect, effect_unknown, true), expected, "{effect}");
        }
    }
}

//! Complete and reply: the ledger records how the attempt ended, then the dispatcher that accepted the call is told.

use std::time::Duration;

use bytes::Bytes;
use fleet::{
    call::{Effect, State},
    checkpoint::{Checkpoint, reached},
    delay::{Reconnect, SOON},
    ending::{Ending, Known, Moved},
    ids::{AttemptId, CallId},
    outcome::{Outcome, OutcomeWord},
    store::{
        StoreError,
        read::{self, CallRow, CallState},
    },
    telemetry::{
        metrics, report,
        spans::{self, Step},
    },
};
use tokio::time::Instant;
use tracing::Instrument;

use crate::{
    brakes::is_suppressed,
    cache,
    conclude::{conclude, settling},
    cool_down,
    interceptor::EndedView,
    large_results, late,
    onion::Round,
    park,
    stage::{Attempt, Executed, Execution},
    worker::WorkerProcess,
};

/// How long a completion waits for the ledger: longer than the longest outage that a worker should survive.
const PATIENCE: Duration = Duration::from_secs(900);
/// The longest pause between two completions of a call whose row is locked.
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Records how an attempt ended and tells the dispatcher that accepted the call. Returns the interceptors that are to hear what
/// was recorded, if there are any; the attempt is over by then.
///
/// Without an answer of the ledger the call stays with this worker, and the sweep decides about it when it is overdue. It is
/// never given back, for the tool may have run.
pub(crate) async fn complete(worker: &WorkerProcess, mut executed: Executed) -> Option<Box<Round>> {
    let mut round = executed.round.take();
    park::bound(&mut executed);
    let ended = tell(worker, &executed).await;
    if let Some(round) = &mut round {
        round.ended(ended);
    }
    round
}

/// The same, and what was recorded.
async fn tell(worker: &WorkerProcess, executed: &Executed) -> EndedView {
    let Attempt { claimed, tool, .. } = &executed.attempt;
    let (call, name) = (claimed.call_id, &tool.manifest.name);
    if executed.wanted().is_some()
        && let Some(ended) = Box::pin(park::pass(worker, executed)).await
    {
        return ended;
    }
    if let Some(pause) = cool_down::asked(worker, executed) {
        Box::pin(cool_down::close(worker, executed, pause)).await;
    }
    let recording = record(worker, executed).instrument(spans::step(Step::Complete));
    match recording.await {
        Ok(Recorded::Moved(decided)) => {
            reached(Checkpoint::Completed);
            if executed.attempt.took_place {
                // Dispatchers then release the next call of the tool.
                Box::pin(cache::ring(worker, None)).await;
            }
            let (moved, ending) = *decided;
            if tool.manifest.cache.is_some() && moved.state.answers_waiters() {
                // They let go who follows this one.
                Box::pin(cache::ring(worker, Some(call))).await;
            }
            let Executed { execution, .. } = executed;
            let ended = EndedView::Recorded {
                outcome: execution.word(),
                state: moved.state,
            };
            count_ended(executed, execution.word());
            if claimed.effect == Effect::Transaction
                && executed.execution.word() == OutcomeWord::Unknown
            {
                metrics().lost_answer("transaction", false);
            }
            if !moved.state.answers_waiters() {
                metrics().retried(name);
            }
            worker
                .reply(call, moved, ending, claimed.done_secret)
                .instrument(spans::step(Step::Reply))
                .await;
            ended
        }
        Ok(Recorded::Before(row)) => {
            tracing::debug!("this attempt had ended the call already");
            // The executor did not know that its COMMIT, which was not answered, had succeeded.
            let committed =
                claimed.effect == Effect::Transaction && row.state() == State::Succeeded;
            let word = if committed {
                OutcomeWord::Applied
            } else {
                executed.execution.word()
            };
            count_ended(executed, word);
            metrics().lost_answer(if committed { "transaction" } else { "complete" }, true);
            // The dispatcher has not been told yet: the answer to the earlier write was lost.
            row.count();
            let event = || row.finished();
            worker.events.tell(claimed.followed(), event);
            worker
                .replies
                .tell(claimed.dispatcher, call, Bytes::new())
                .await;
            EndedView::Recorded {
                outcome: word,
                state: row.state(),
            }
        }
        Ok(Recorded::Late) => {
            Box::pin(late::record_late_outcome(worker, executed)).await;
            EndedView::Late
        }
        Err(error) => {
            tracing::error!(
                error = report(&error),
                "an outcome could not be recorded; the sweep decides without it"
            );
            EndedView::NotRecorded
        }
    }
}

/// Counts an attempt of the tool. One that was made to ask another tool is none of its own.
fn count_ended(executed: &Executed, word: OutcomeWord) {
    if !executed.is_shut() {
        let name = &executed.attempt.tool.manifest.name;
        metrics().ended(name, word, executed.execution.useless());
    }
}

/// What came of recording an attempt's ending.
enum Recorded {
    /// This write moved the call.
    Moved(Box<(Moved, Ending)>),
    /// An earlier write of this attempt had moved the call already; its answer was lost.
    Before(Box<CallRow>),
    /// The call belongs to this attempt no more.
    Late,
}

/// Completes; where that moves no row, reads the row and decides by what it says.
async fn record(worker: &WorkerProcess, executed: &Executed) -> Result<Recorded, StoreError> {
    let Executed {
        attempt, execution, ..
    } = executed;
    let (claimed, began) = (&attempt.claimed, Instant::now());
    let known = executed.known();
    let unbudgeted = conclude(executed, &known, false, worker.actor());
    // Asked once for an attempt, and only where there would be another one.
    let is_suppressed = match &executed.judged {
        Some(judged) => judged.is_suppressed,
        None => is_suppressed(worker, executed, &unbudgeted),
    };
    // Decided anew each time: while a row is locked, the call's time goes on.
    let told = |ending: Ending, known: &Known| {
        let (manifest, language) = (&attempt.tool.manifest, claimed.language);
        let ending = with_stand_in(ending, executed, known);
        large_results::shortened(worker, manifest, &claimed.tenant, ending, language)
    };
    let concluded = |known: &Known| {
        let ending = conclude(executed, known, is_suppressed, worker.actor());
        told(ending, known)
    };
    let mut ending = if is_suppressed {
        concluded(&known)
    } else {
        told(unbudgeted, &known)
    };
    if let Execution::Committed(_, moved) = execution {
        return Ok(Recorded::Moved(Box::new((Moved::clone(moved), ending))));
    }
    let mut reconnect = Reconnect::up_to(LOOK_PAUSE_MAX);
    loop {
        let patience = PATIENCE.saturating_sub(began.elapsed());
        if let Some(moved) = end(worker, &mut ending, executed, patience).await? {
            return Ok(Recorded::Moved(Box::new((moved, ending))));
        }
        let row = Box::pin(find_patiently(worker, claimed.call_id, patience)).await?;
        ending = match place(row, attempt.id, &worker.actor(), known) {
            // The row was locked, or a cancellation came, or lost writes made earlier attempts unknown.
            Place::Running(known) => concluded(&known),
            Place::InDoubt {
                quarantined,
                applied_late,
            } => {
                // After lost writes this attempt may not be the only one, and another one may have reported its effect: then
                // only success is proof.
                let proves =
                    !quarantined && !applied_late || execution.word() == OutcomeWord::Applied;
                match settling(&ending, execution, &known) {
                    Some(settling) if proves => settling,
                    Some(_) | None => return Ok(Recorded::Late),
                }
            }
            Place::Ended(row) => return Ok(Recorded::Before(row)),
            Place::Elsewhere => return Ok(Recorded::Late),
        };
        if patience.is_zero() {
            return Err(StoreError::Unreadable {
                doing: "complete an attempt",
                what: "its row stays locked".to_owned(),
            });
        }
        reconnect.pause().await;
    }
}

/// The same ending, with the answer that stands in where the call ends without its tool's.
fn with_stand_in(ending: Ending, executed: &Executed, known: &Known) -> Ending {
    let judged = executed.judged.as_ref();
    let Some(stand_in) = judged.and_then(|judged| judged.stand_in.as_ref()) else {
        return ending;
    };
    // A cancellation may have come while another tool was asked.
    match ending.cause_of_fallback(known.cancelled, false) {
        Some(cause) => ending.answered_by(stand_in, cause),
        None => ending,
    }
}

/// Where a call stands, read by an attempt whose ending moved nothing.
#[derive(Debug)]
enum Place {
    /// It runs under this attempt; this is known of it now.
    Running(Known),
    /// It is in doubt because of this attempt, which may still prove something.
    InDoubt {
        quarantined: bool,
        applied_late: bool,
    },
    /// This attempt has ended it.
    Ended(Box<CallRow>),
    /// Another attempt, or another process, has it.
    Elsewhere,
}

fn place(row: Option<CallRow>, attempt: AttemptId, actor: &str, known: Known) -> Place {
    let Some(row) = row.filter(|row| row.attempt_id() == Some(attempt)) else {
        return Place::Elsewhere;
    };
    match &row.state {
        CallState::Running {
            cancel_requested,
            effect_unknown,
            applied_late,
            ..
        } => Place::Running(Known {
            cancelled: *cancel_requested,
            earlier_unknown: *effect_unknown,
            applied_late: *applied_late,
            ..known
        }),
        CallState::InDoubt(doubtful) => Place::InDoubt {
            quarantined: doubtful.quarantined,
            applied_late: doubtful.applied_late,
        },
        // The sweep and operators end calls too; the row still names its last attempt then.
        CallState::Ended(ended) if ended.by == actor => Place::Ended(Box::new(row)),
        CallState::Ended(_) | CallState::Queued { .. } | CallState::Awaiting(_) => Place::Elsewhere,
    }
}

/// Completes. Where Postgres refuses the result, completes without it: the fact that the tool did it must not be lost.
async fn end(
    worker: &WorkerProcess,
    ending: &mut Ending,
    executed: &Executed,
    patience: Duration,
) -> Result<Option<Moved>, StoreError> {
    // The caller gets everything; the ledger keeps what the manifest allows.
    let manifest = &executed.attempt.tool.manifest;
    let large = manifest.large_result;
    let kept = ending.keeping(manifest.sensitive.as_ref());
    let stored = kept.as_ref().unwrap_or(ending);
    match worker.completing.complete(stored, patience).await {
        Err(StoreError::Refused { .. }) if ending.is_stood_in_for() => {
            tracing::warn!(
                "the ledger does not take the answer that stands in; recording the error alone"
            );
            *ending = ending.clone().without_stand_in();
            worker.completing.complete(ending, patience).await
        }
        Err(StoreError::Refused { .. })
            if matches!(executed.execution, Execution::Ran(Outcome::Applied { .. })) =>
        {
            tracing::warn!(
                "the ledger does not take the tool's answer; recording the outcome without it"
            );
            *ending = ending
                .clone()
                .without_result(large.as_ref(), executed.attempt.claimed.language);
            worker.completing.complete(ending, patience).await
        }
        recorded => recorded,
    }
}

async fn find_patiently(
    worker: &WorkerProcess,
    call: CallId,
    patience: Duration,
) -> Result<Option<CallRow>, StoreError> {
    let began = Instant::now();
    let mut reconnect = Reconnect::up_to(SOON);
    loop {
        match read::find(&worker.pool, call).await {
            Err(error) if began.elapsed() < patience => {
                tracing::debug!(error = report(&error), "looking again");
            }
            found => return found,
        }
        reconnect.pause().await;
    }
}

//! After an attempt: whether its call ends without its tool's answer, and what stands in.

use fleet::{
    checkpoint::{Checkpoint, reached},
    delay::{Reconnect, SOON},
    fallback::StandIn,
    manifest::FallbackSpec,
    modes::{Brake, InterceptMode},
    outcome::OutcomeWord,
    telemetry::{metrics, report},
};
use tokio::time::{Instant, timeout_at};

use super::{OVERTIME_MAX, kept, other};
use crate::{
    brakes::{self, is_suppressed},
    conclude::conclude,
    stage::{Attempt, Executed, JudgedAttempt},
    worker::WorkerProcess,
};

/// Looks for an answer that stands in, where the attempt ends its call and the tool could not answer. Where the tool has no fallback,
/// or has answered, this costs nothing.
///
/// The attempt goes on meanwhile, with its slot and its lease: another tool may be asked.
pub(crate) async fn pass(worker: &WorkerProcess, executed: &mut Executed) {
    let has_fallback = executed.attempt.tool.manifest.fallback.is_some();
    let has_failed = executed.execution.failure().is_some() && executed.wanted().is_none();
    if has_fallback && has_failed {
        Box::pin(judge(worker, executed)).await;
    }
}

async fn judge(worker: &WorkerProcess, executed: &mut Executed) {
    // From here on it is no reason to run the call again that the worker is told to leave: another tool may have answered by then.
    executed.judged = Some(Box::new(JudgedAttempt {
        taken_back: executed.why_taken_back(),
        is_suppressed: false,
        stand_in: None,
        has_stopped: true,
    }));
    let known = executed.known();
    let ending = conclude(executed, &known, false, worker.actor());
    let is_suppressed = is_suppressed(worker, executed, &ending);
    let ending = if is_suppressed {
        conclude(executed, &known, true, worker.actor())
    } else {
        ending
    };
    let is_probe = executed.attempt.claimed.is_probe;
    let may = ending
        .cause_of_fallback(known.cancelled, is_probe)
        .is_some();
    let (attempt, judged) = (&executed.attempt, executed.judged.as_mut());
    let judged = judged.expect("it was set above");
    judged.is_suppressed = is_suppressed;
    if let Some(spec) = attempt.tool.manifest.fallback.as_ref().filter(|_| may) {
        stand_in(worker, attempt, spec, judged).await;
    }
    if judged.stand_in.is_some() {
        reached(Checkpoint::FellBack);
    } else if executed.execution.word() == OutcomeWord::NotStarted {
        // Nothing was sent and nothing was found: where the worker has to leave by now, another one asks.
        let judged = executed.judged.take();
        let taken_back = executed.why_taken_back();
        executed.judged = judged.map(|judged| {
            Box::new(JudgedAttempt {
                taken_back,
                ..*judged
            })
        });
    }
}

/// Looks for the answer of the first layer that has one. Where operators only observe the fallback, it is counted, and no other tool
/// is asked.
async fn stand_in(
    worker: &WorkerProcess,
    attempt: &Attempt,
    spec: &FallbackSpec,
    judged: &mut JudgedAttempt,
) {
    let (tool, claimed) = (&attempt.tool.manifest.name, &attempt.claimed);
    let mode = brakes::mode_of(worker, Brake::Fallback, tool, Some(&claimed.tenant));
    if mode == InterceptMode::Off {
        return;
    }
    let (began, until) = (Instant::now(), attempt.own_until() + OVERTIME_MAX);
    if mode == InterceptMode::Observe {
        let has_other = spec.tool.as_ref();
        let has_other = has_other.is_some_and(|other| other::fit(worker, attempt, other).is_ok());
        if has_other || kept(worker, attempt, spec, until).await.is_some() {
            metrics().observed(tool, Brake::Fallback);
        }
        return;
    }
    let mut found = None;
    if let Some(other) = &spec.tool {
        let asking = Box::pin(other::ask(worker, attempt, other));
        // Where the time is over, something of it may still act.
        (found, judged.has_stopped) = timeout_at(until, asking).await.unwrap_or((None, false));
    }
    if found.is_none() {
        found = kept(worker, attempt, spec, until).await;
    }
    worker.fallbacks.looked(found.is_some(), began.elapsed());
    judged.stand_in = found;
}

/// The old answer, or else the constant. While the ledger is silent, it is asked again until this moment: nothing could be recorded
/// either.
async fn kept(
    worker: &WorkerProcess,
    attempt: &Attempt,
    spec: &FallbackSpec,
    until: Instant,
) -> Option<StandIn> {
    let (tool, claimed) = (&attempt.tool.manifest.name, &attempt.claimed);
    let asking = async {
        let mut reconnect = Reconnect::up_to(SOON);
        loop {
            match kept::stale(worker, spec, claimed.call_id, tool, &claimed.tenant).await {
                Ok(stale) => return stale,
                Err(error) => {
                    tracing::debug!(error = report(&error), "asking again what stands in");
                }
            }
            reconnect.pause().await;
        }
    };
    let stale = timeout_at(until, asking).await.unwrap_or_else(|_elapsed| {
        tracing::warn!("no old answer stands in: the ledger did not say whether there is one");
        None
    });
    stale.or_else(|| kept::stub(spec))
}

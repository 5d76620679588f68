//! After an attempt: whether its call ends without its tool's answer, and what stands in.

use fleet::{
    checkpoint::{Checkpoint, reached},
    fallback::StandIn,
    manifest::FallbackSpec,
};
use tokio::time::Instant;

use super::{kept, other};
use crate::{
    conclude::conclude,
    stage::{Executed, JudgedAttempt},
    suppression::is_suppressed,
    worker::WorkerProcess,
};

/// Looks for an answer that stands in, where the attempt ends its call and the tool could not answer. Where the tool has no fallback,
/// this costs nothing.
///
/// The attempt goes on meanwhile, with its slot and its lease: another tool may be asked.
pub(crate) async fn pass(worker: &WorkerProcess, executed: &mut Executed) {
    if executed.attempt.tool.manifest.fallback.is_some() {
        executed.judged = Some(Box::pin(judge(worker, executed)).await);
    }
}

async fn judge(worker: &WorkerProcess, executed: &Executed) -> Box<JudgedAttempt> {
    let known = executed.known();
    let ending = conclude(executed, &known, false, worker.actor());
    let is_suppressed = is_suppressed(worker, executed, &ending);
    let ending = if is_suppressed {
        conclude(executed, &known, true, worker.actor())
    } else {
        ending
    };
    let fallback = executed.attempt.tool.manifest.fallback.as_ref();
    // Whether it is a probe the ledger says.
    let may = ending.cause_of_fallback(known.cancelled, false).is_some();
    let stand_in = match fallback.filter(|_| may) {
        Some(spec) => stand_in(worker, executed, spec).await,
        None => None,
    };
    if stand_in.is_some() {
        reached(Checkpoint::FellBack);
    }
    Box::new(JudgedAttempt {
        is_suppressed,
        stand_in,
    })
}

/// The answer of the first layer that has one.
async fn stand_in(
    worker: &WorkerProcess,
    executed: &Executed,
    spec: &FallbackSpec,
) -> Option<StandIn> {
    let attempt = &executed.attempt;
    let (tool, claimed) = (&attempt.tool.manifest.name, &attempt.claimed);
    let tenant = Some(&claimed.tenant);
    if !kept::may_answer(worker, tool, tenant) {
        return None;
    }
    let began = Instant::now();
    let facts = kept::facts(worker, spec, claimed.call_id, tool, tenant).await?;
    if facts.is_probe {
        return None;
    }
    let asked = match (&spec.tool, &facts.args) {
        (Some(tool), Some(args)) => other::ask(worker, attempt, tool, args).await,
        (_, _) => None,
    };
    let found = asked.or_else(|| kept::standing(spec, facts.stale));
    worker.fallbacks.looked(found.is_some(), began.elapsed());
    found
}

//! Asks the interceptors of the program, at the gate, whether a call may go on. What follows from a no is the gate's.

use std::sync::Arc;

use fleet::{
    canonical,
    ids::InterceptorName,
    manifest::Manifest,
    obstacle::{Lack, Obstacle},
    outcome::ToolFailure,
    registry::Tool,
    said,
    store::{postpone::PostponedFor, read},
    wire::{code::Code, pointer::Pointer},
};

use crate::{
    arguments::CallArguments,
    dispose::Skip,
    onion::{self, Link, Round, Stopped, Subject},
    redact::RedactedFailures,
    worker::WorkerProcess,
};

/// What the interceptors said of a call.
#[derive(Debug)]
pub(crate) enum Consent {
    /// It may go on.
    Given(Box<Round>),
    /// It must not run, for this reason.
    Refused(Box<Round>, ToolFailure),
    /// It waits so long, for this reason.
    Waits(PostponedFor, Obstacle),
}

/// The most bytes of details that a refusal keeps.
const DETAILS_MAX: usize = 4 * 1024;

/// Asks them, in their order.
pub(crate) async fn ask(
    worker: &WorkerProcess,
    pointer: &Pointer,
    tool: &Arc<Tool>,
    stored: &str,
    args: &CallArguments,
) -> Result<Consent, Skip> {
    let tenant = match &pointer.tenant {
        Some(tenant) => tenant.clone(),
        // A message of an older release: its row says whose call it is.
        None => match read::find(&worker.pool, pointer.call_id).await {
            Ok(Some(row)) => row.tenant,
            Ok(None) => return Err(Skip::Gone),
            Err(_silent) => return Err(Skip::StoreSilent),
        },
    };
    let subject = Subject {
        call: pointer.call_id,
        tool: Arc::clone(tool),
        tenant,
        arguments: args.text(stored),
        args_hash: canonical::hash_text(stored),
        attempt: pointer.attempts.saturating_add(1),
        is_probe: pointer.is_probe,
    };
    // From here on the call keeps this list, whatever operators change meanwhile.
    let controls = worker.registry.controls();
    let (all, name) = (&worker.interceptors, &tool.manifest.name);
    let chain = onion::under(all, controls.modes(), name, &subject.tenant);
    let mut round = Box::new(Round::new(chain, subject, worker.hearing.clone()));
    match round.before().await {
        Ok(()) => Ok(Consent::Given(round)),
        Err(Stopped::Refused(failure)) => {
            let failure = refusal(tool, args, failure);
            Ok(Consent::Refused(round, failure))
        }
        // As many reasons as there are interceptors: each is a remark in the call's history, once.
        Err(Stopped::Waits {
            interceptor: name,
            pause,
        }) => {
            let why = said!(
                "its interceptor {name} lets it wait",
                "它的拦截器 {name} 要求这次调用等待"
            );
            let obstacle = Obstacle::new(Lack::Consent, &why, &worker.name);
            Ok(Consent::Waits(PostponedFor::Exactly(pause), obstacle))
        }
        Err(Stopped::Failed { interceptor: name }) => {
            let why = said!(
                "its interceptor {name} has failed",
                "它的拦截器 {name} 出错了"
            );
            let obstacle = Obstacle::new(Lack::Consent, &why, &worker.name);
            Ok(Consent::Waits(PostponedFor::Growing, obstacle))
        }
    }
}

/// Which of the interceptors this worker's program does not have that the call's version or the newest one of its tool demands: a
/// caller who chooses an older version gets round none.
pub(crate) fn lacking(
    manifest: &Manifest,
    newest: Option<&Manifest>,
    chain: &[Link],
    worker: &str,
) -> Result<(), Obstacle> {
    let has = |name: &InterceptorName| {
        chain
            .iter()
            .any(|own| own.active.about.name == name.as_str())
    };
    let newest = newest.into_iter().flat_map(|newest| &newest.interceptors);
    let newest = newest.filter(|name| !manifest.interceptors.contains(name));
    let demanded = manifest.interceptors.iter().chain(newest);
    let lacking = demanded.filter(|name| !has(name));
    let lacking: Vec<&str> = lacking.map(InterceptorName::as_str).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let names = lacking.join(", ");
    let why = match lacking.len() {
        1 => said!(
            "its program does not have the interceptor {names}",
            "它的程序没有拦截器 {names}"
        ),
        _more => said!(
            "its program does not have the interceptors {names}",
            "它的程序没有拦截器 {names}"
        ),
    };
    Err(Obstacle::new(Lack::Interceptor, &why, worker))
}

/// What the caller and the history are told: `forbidden`, with sensitive values masked, and bounded.
fn refusal(tool: &Tool, args: &CallArguments, said: ToolFailure) -> ToolFailure {
    let mut failure = said;
    failure.code = Code::Forbidden;
    let details = failure.details.as_ref();
    if details.is_some_and(|details| details.to_string().len() > DETAILS_MAX) {
        failure.details = None;
    }
    if let Some(sensitive) = &tool.manifest.sensitive {
        // Masked before it is cut: half a secret would not be found.
        failure = RedactedFailures::of(Some(sensitive), &args.value).redact_unsent(failure);
    }
    failure.bounded()
}

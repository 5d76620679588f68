//! A tool that the program of its caller runs: what its manifest may say.

use super::{
    policy::ExitCodes, problem::Problems, retry::RetryPolicy, timeout::Timeout, version::Manifest,
};
/// Checks the fields of a tool that its caller's program runs. Whatever a worker would do for a call, nobody does for these.
pub(super) fn check(manifest: &Manifest, problems: &mut Problems) {
    let of_workers = [
        ("queue", manifest.queue != Manifest::default_queue()),
        ("retry", manifest.retry != RetryPolicy::default()),
        ("concurrency", manifest.concurrency.is_some()),
        ("rate_limit", manifest.rate_limit.is_some()),
        ("breaker", manifest.breaker.is_some()),
        ("cache", manifest.cache.is_some()),
        ("fallback", manifest.fallback.is_some()),
        ("policy", manifest.policy.is_some()),
        ("interceptors", !manifest.interceptors.is_empty()),
        ("max_queue_wait", manifest.max_queue_wait.is_some()),
        ("losses", manifest.losses != Manifest::LOSSES),
        ("sandbox", manifest.sandbox.is_some()),
        ("exit_codes", manifest.exit_codes != ExitCodes::default()),
        ("baggage", manifest.baggage),
        ("redact_results", !manifest.redact_results),
    ];
    for (field, _) in of_workers.iter().filter(|(_, is_written)| *is_written) {
        problems.add(
            format!("/{field}"),
            format!(
                "the caller's program runs a client tool, once, and no worker does: {field} would change nothing; leave it out"
            ),
        );
    }
    if matches!(manifest.timeout, Timeout::Learned(_)) {
        problems.add(
            "/timeout",
            "the fleet does not run a client tool and learns nothing of how long it takes; write how long the caller's program has",
        );
    }
    if manifest.idempotency.is_some() {
        problems.add(
            "/idempotency",
            "a client tool is handed out once and never again, so there is no repetition that it could recognise; leave it out",
        );
    }
}

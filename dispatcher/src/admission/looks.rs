//! What admission looks at before it decides: the newest version of the call's tool, its breaker, its arguments. Where a tool has
//! none of what is looked for, a look costs one at its manifest.

use std::sync::Arc;

use fleet::{
    approval,
    breaker::{self, BreakerId, Passage},
    controls::LazyArguments,
    ids::Label,
    manifest::{Manifest, WhenOpen},
    modes::{Brake, InterceptMode},
    rate_key::RateKey,
};
use tokio::time::Instant;

use crate::{
    arguments::{SHORT, aside},
    check::{Checked, Submission},
    door::Door,
    refusal::Refusal,
};

/// Whether the call needs a person's yes, by the newest version of its tool, whatever version its caller asks for.
pub(super) async fn needs_approval(checked: &Checked) -> Result<bool, Refusal> {
    let Some(spec) = &checked.newest.manifest.approval else {
        return Ok(false);
    };
    if spec.when.is_empty() {
        return Ok(approval::is_needed(spec, &checked.arguments.seen()));
    }
    looked(checked, |newest, arguments| {
        let spec = newest.approval.as_ref();
        spec.is_some_and(|spec| approval::is_needed(spec, arguments))
    })
    .await
}

/// The key of the call's start times, where each value of an argument has its own, by the newest version of the tool.
pub(super) async fn rate_key(
    tenant: &Label,
    checked: &Checked,
) -> Result<Option<RateKey>, Refusal> {
    if checked.newest.manifest.rate_pointer().is_none() {
        return Ok(None);
    }
    let tenant = tenant.clone();
    looked(checked, move |newest, arguments| {
        let pointer = newest.rate_pointer();
        pointer.map(|pointer| RateKey::of(&tenant, pointer, arguments))
    })
    .await
}

/// What is found in the arguments by the newest version: at once where they are short or parsed, on a blocking thread otherwise.
async fn looked<T: Send + 'static>(
    checked: &Checked,
    look: impl FnOnce(&Manifest, &LazyArguments<'_>) -> T + Send + 'static,
) -> Result<T, Refusal> {
    let arguments = &checked.arguments;
    if arguments.text.len() <= SHORT || arguments.whole.is_some() {
        return Ok(look(&checked.newest.manifest, &arguments.seen()));
    }
    let (newest, text) = (Arc::clone(&checked.newest), arguments.text.clone());
    let looking = move || Ok(look(&newest.manifest, &LazyArguments::new(&text)));
    Box::pin(aside(looking)).await
}

/// Whether a worker's gate looks for a kept answer: the call's version of its tool has a cache, its caller does not say
/// `no-store`, and no operator has switched it off.
pub(super) fn may_be_answered(door: &Door, submission: &Submission, tool: &Manifest) -> bool {
    if tool.cache.is_none() || submission.headers.no_store {
        return false;
    }
    let controls = door.registry.controls();
    let tenant = Some(&submission.tenant);
    let modes = controls.modes();
    modes.of_brake(Brake::Cache, &tool.name, tenant, Instant::now()) != InterceptMode::Off
}

/// The breaker that is shut for a new call of a tool whose calls wait for it. The gate decides about calls that end instead, and
/// about the first one of a breaker that has no row. Its settings are those of the newest version, and its target is that of the
/// call's.
pub(super) fn shut_breaker(
    door: &Door,
    tenant: &Label,
    newest: &Manifest,
    tool: &Manifest,
) -> Option<BreakerId> {
    let spec = newest.breaker.as_ref()?;
    if newest.when_open() != WhenOpen::Wait {
        return None;
    }
    let (controls, now) = (door.registry.controls(), Instant::now());
    let breakers = door.registry.breakers();
    let known = breakers.of(&tool.name, &tool.executor.target())?;
    let forced = controls.forced_breaker(&tool.name);
    let is_shut = matches!(
        breaker::passage(forced, Some(known), spec.probes, now),
        Passage::Shut(_)
    );
    let mode = || {
        controls
            .modes()
            .of_brake(Brake::Breaker, &tool.name, Some(tenant), now)
    };
    (is_shut && mode() == InterceptMode::Enforce).then_some(known.id)
}

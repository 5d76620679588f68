//! Whether an equal call may have the answer for a new one, as a fact of its admission.

use fleet::{
    manifest::Manifest,
    modes::{Brake, InterceptMode},
};
use tokio::time::Instant;

use crate::{check::Submission, door::Door};

/// Whether a worker's gate looks for a kept answer: the call's version of its tool has a cache, its caller does not say `no-store`, and
/// no operator has switched it off. Where the tool has no cache this costs a look at its manifest.
pub(super) fn may_be(door: &Door, submission: &Submission, tool: &Manifest) -> bool {
    if tool.cache.is_none() || submission.headers.no_store {
        return false;
    }
    let controls = door.registry.controls();
    let tenant = Some(&submission.tenant);
    let modes = controls.modes();
    modes.of_brake(Brake::Cache, &tool.name, tenant, Instant::now()) != InterceptMode::Off
}

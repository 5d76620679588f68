//! Whether callers get a part of an answer, by the manifest and by what operators say of that.

use fleet::{
    call::Language,
    ending::Ending,
    ids::Label,
    manifest::Manifest,
    modes::{Brake, InterceptMode},
    telemetry::metrics,
};
use tokio::time::Instant;

use crate::{brakes, worker::WorkerProcess};

/// The ending with what callers get of its answer. Of a tool without `large_result` that is all of it, and this costs nothing.
pub(crate) fn shortened(
    worker: &WorkerProcess,
    manifest: &Manifest,
    tenant: &Label,
    ending: Ending,
    language: Language,
) -> Ending {
    if manifest.large_result.is_none() || !ending.has_result() {
        return ending;
    }
    let name = &manifest.name;
    let mode = brakes::mode_of(worker, Brake::LargeResult, name, Some(tenant));
    if mode == InterceptMode::Off {
        return ending;
    }
    let began = Instant::now();
    let ending = ending.shortened(manifest.large_result.as_ref(), language);
    let is_large = ending.is_shortened();
    let enforces = mode == InterceptMode::Enforce;
    worker
        .large_results
        .looked(is_large && enforces, began.elapsed());
    match (is_large, enforces) {
        (true, true) => {
            metrics().shortened(name);
            ending
        }
        (true, false) => {
            metrics().observed(name, Brake::LargeResult);
            ending.whole()
        }
        (false, _) => ending,
    }
}

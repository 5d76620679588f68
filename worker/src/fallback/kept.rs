//! What stands in for a tool's answer without another tool: an old answer to an equal call, or a constant.

use fleet::{
    fallback::{StandIn, StandInKind},
    ids::{CallId, Label, ToolName},
    manifest::FallbackSpec,
    modes::{Brake, InterceptMode},
    store::{StoreError, stand_ins},
    telemetry::report,
};

use crate::{brakes, worker::WorkerProcess};

/// The last good answer to an equal call, where one may stand in and is there. What the ledger refuses is logged, and no reason to
/// keep back the constant.
///
/// # Errors
///
/// The ledger does not say whether there is one.
pub(crate) async fn stale(
    worker: &WorkerProcess,
    spec: &FallbackSpec,
    call: CallId,
    tool: &ToolName,
    tenant: &Label,
) -> Result<Option<StandIn>, StoreError> {
    let Some(stale) = spec.stale else {
        return Ok(None);
    };
    // While operators let the cache answer nothing, its answers are in doubt.
    if brakes::mode_of(worker, Brake::Cache, tool, Some(tenant)) == InterceptMode::Off {
        return Ok(None);
    }
    match stand_ins::stale(&worker.pool, call, stale.max_age).await {
        Err(error) if !error.may_pass() => {
            let error = report(&error);
            tracing::warn!(error, "no old answer stands in: the ledger refuses to look");
            Ok(None)
        }
        answer => answer,
    }
}

/// The constant.
pub(crate) fn stub(spec: &FallbackSpec) -> Option<StandIn> {
    let stub = spec.stub.as_ref()?;
    Some(StandIn {
        kind: StandInKind::Stub,
        result: stub.to_string(),
        age_ms: None,
        tool: None,
    })
}

//! What kind of trouble ended a process, as its exit code. An error is sorted by its whole chain, so the kind decides, not its place.

use std::{error::Error, iter};

use async_nats::{ConnectError, ConnectErrorKind};

use crate::{bus::BusError, config::ConfigError, store::StoreError, telemetry::TelemetryError};

/// It failed.
pub const FAILED: u8 = 1;
/// Its settings are wrong, or a server is not one to work with.
pub const CONFIGURATION: u8 = 64;
/// A server does not answer.
pub const UNREACHABLE: u8 = 69;

/// What a process ends with after this error.
pub fn exit_code(problem: &(dyn Error + 'static)) -> u8 {
    let chain = || iter::successors(Some(problem), |&cause| cause.source());
    if chain().any(is_configuration) {
        CONFIGURATION
    } else if chain().any(is_unreachable) {
        UNREACHABLE
    } else {
        FAILED
    }
}

/// Whether this cause is one that an operator must put right.
pub fn is_configuration(cause: &(dyn Error + 'static)) -> bool {
    if cause.is::<ConfigError>() {
        return true;
    }
    if let Some(problem) = cause.downcast_ref::<TelemetryError>() {
        return matches!(
            problem,
            TelemetryError::Filter(_) | TelemetryError::Endpoint
        );
    }
    if let Some(problem) = cause.downcast_ref::<ConnectError>() {
        return matches!(
            problem.kind(),
            ConnectErrorKind::ServerParse
                | ConnectErrorKind::Authentication
                | ConnectErrorKind::AuthorizationViolation
        );
    }
    if let Some(problem) = cause.downcast_ref::<BusError>() {
        return matches!(
            problem,
            BusError::UnfitServer(_) | BusError::BadUrl | BusError::ForeignLedger(_)
        );
    }
    match cause.downcast_ref::<StoreError>() {
        Some(StoreError::UnknownSchema(_) | StoreError::UnsafeGround(_)) => true,
        Some(StoreError::Refused { source, .. }) => is_turned_away(source),
        Some(
            StoreError::Unavailable { .. }
            | StoreError::NotSent { .. }
            | StoreError::Unreadable { .. },
        )
        | None => false,
    }
}

/// Whether this cause is a server that does not answer.
pub fn is_unreachable(cause: &(dyn Error + 'static)) -> bool {
    let ledger = cause.downcast_ref();
    matches!(
        ledger,
        Some(StoreError::Unavailable { .. } | StoreError::NotSent { .. })
    ) || matches!(cause.downcast_ref(), Some(BusError::Unavailable { .. }))
}

/// A wrong user or password (class 28), or a database that does not exist (3D000).
fn is_turned_away(source: &sqlx::Error) -> bool {
    let code = source.as_database_error().and_then(|answer| answer.code());
    code.is_some_and(|code| code.starts_with("28") || code.starts_with("3D"))
}

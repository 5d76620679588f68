//! The exit code of a process, by its error. The whole chain of causes is searched, so the kind of a cause decides, not its
//! place.

use std::{borrow::Cow, error::Error, io, iter};

use async_nats::{ConnectError, ConnectErrorKind};

use super::start_error::StartError;
use crate::{bus::BusError, config::ConfigError, store::StoreError, telemetry::TelemetryError};

/// It failed.
pub const FAILED: u8 = 1;
/// Its settings are wrong, or a server is unfit to work with.
pub const CONFIGURATION: u8 = 64;
/// A server does not answer.
pub const UNREACHABLE: u8 = 69;

/// The exit code for this error.
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

/// Whether an operator must fix this cause.
pub fn is_configuration(cause: &(dyn Error + 'static)) -> bool {
    if cause.is::<ConfigError>() {
        return true;
    }
    if let Some(StartError::Bind { source, .. }) = cause.downcast_ref() {
        // A port that is taken may be free a moment later.
        let kinds = [
            io::ErrorKind::AddrNotAvailable,
            io::ErrorKind::PermissionDenied,
        ];
        return kinds.contains(&source.kind());
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
        return match problem {
            BusError::UnfitServer(_)
            | BusError::BadUrl
            | BusError::BadLogin(_)
            | BusError::Denied { .. }
            | BusError::ForeignLedger(_)
            | BusError::UnreadableWatermark { .. } => true,
            BusError::Unavailable { .. } => false,
        };
    }
    match cause.downcast_ref::<StoreError>() {
        Some(StoreError::UnknownSchema(_) | StoreError::UnsafeServer(_) | StoreError::BadUrl) => {
            true
        }
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
    if let Some(StoreError::Refused { source, .. }) = cause.downcast_ref() {
        return code(source).is_some_and(|code| code == "53300");
    }
    let ledger = cause.downcast_ref();
    matches!(
        ledger,
        Some(StoreError::Unavailable { .. } | StoreError::NotSent { .. })
    ) || matches!(cause.downcast_ref(), Some(BusError::Unavailable { .. }))
}

/// A wrong user or password (class 28), a database that does not exist (3D000), or a role without the right (42501).
fn is_turned_away(source: &sqlx::Error) -> bool {
    code(source)
        .is_some_and(|code| code.starts_with("28") || code.starts_with("3D") || code == "42501")
}

fn code(source: &sqlx::Error) -> Option<Cow<'_, str>> {
    source.as_database_error().and_then(|answer| answer.code())
}

//! The word for what became of a manifest.

use fleet::store::tools::Applied;

/// The word for what became of a manifest.
pub(super) const fn word(applied: Applied) -> &'static str {
    match applied {
        Applied::Created => "created",
        Applied::Unchanged => "unchanged",
        Applied::Conflict
        | Applied::ProbeUnfit
        | Applied::PreviewUnfit(_)
        | Applied::LimitNamedTwice
        | Applied::BreakerForced
        | Applied::FallbackUnfit(_) => "refused",
    }
}

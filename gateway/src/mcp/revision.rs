//! The revisions of the protocol that are served.

/// The revision without a handshake.
pub(super) const MODERN: &str = "2026-07-28";
/// Those with one; the newest first.
pub(super) const LEGACY: [&str; 2] = ["2025-11-25", "2025-06-18"];
/// All that are served.
pub(super) const SERVED: [&str; 3] = [MODERN, LEGACY[0], LEGACY[1]];

/// The revision that a request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Revision {
    /// 2026-07-28: each request says everything about itself.
    Modern,
    /// 2025-11-25, or 2025-06-18, which has the same shapes.
    Legacy,
}

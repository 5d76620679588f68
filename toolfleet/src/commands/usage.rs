//! A command line that clap takes and that makes no sense all the same.

/// Arguments that do not make sense together, or in themselves.
#[derive(Debug, thiserror::Error)]
#[error("{0} (--help has the reference)")]
pub(super) struct UsageError(pub(super) String);

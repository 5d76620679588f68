//! A command line that clap accepts and that makes no sense.

/// Arguments that do not make sense together, or in themselves.
#[derive(Debug, thiserror::Error)]
#[error("{0} (--help has the reference)")]
pub(super) struct UsageError(pub(super) String);

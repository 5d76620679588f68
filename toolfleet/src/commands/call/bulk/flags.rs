//! The flags of `toolfleet call --bulk` beside those of a call.

use std::path::PathBuf;

use fleet::ids::IdempotencyKey;

/// The flags that only `--bulk` knows.
#[derive(Debug, clap::Args)]
pub(crate) struct BulkFlags {
    /// Send a file of calls in batches, an object {"tool", "args", …} on each line; - is standard input. TOOL is for
    /// lines that name none. Running it again doubles nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pairs", "args", "key", "detach", "wait", "paths"])]
    pub(super) bulk: Option<PathBuf>,
    /// With --bulk: how the keys begin that lines without one get; another one makes new calls of the same lines
    #[arg(long, value_name = "NAME", requires = "bulk", default_value = "bulk")]
    pub(super) key_prefix: IdempotencyKey,
    /// With --bulk: where the answers go, a line of JSON each; standard output without it
    #[arg(long, value_name = "FILE", requires = "bulk")]
    pub(super) out: Option<PathBuf>,
    /// With --bulk: after everything is sent, wait this long until all of it is over, and count what came of it
    #[arg(long, value_name = "SECONDS", requires = "bulk", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(super) wait_all: Option<u64>,
}

impl BulkFlags {
    /// Whether `--bulk` was given.
    pub(crate) const fn is_asked(&self) -> bool {
        self.bulk.is_some()
    }
}

//! What a call needs between its request and its answer, whatever carries the request: HTTP, or a pipe.

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{ask::Dispatchers, mcp::catalogue::Catalogue};

/// Where calls are made and waited for. None of it decides anything.
#[derive(Debug)]
pub(crate) struct CallDesk {
    /// Whom everything is asked that changes something.
    pub(crate) dispatchers: Dispatchers,
    /// What is known of tools when they are called over MCP.
    pub(crate) catalogue: Catalogue,
    /// Cancelled when waiting requests are to be answered with where their calls stand.
    pub(crate) stopping: CancellationToken,
    /// What outlives its request: calls that are cancelled when their caller goes away.
    pub(crate) tasks: TaskTracker,
}

impl CallDesk {
    /// With these dispatchers, until `stopping` is cancelled.
    pub(crate) fn new(
        dispatchers: Dispatchers,
        stopping: CancellationToken,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            dispatchers,
            catalogue: Catalogue::default(),
            stopping,
            tasks,
        }
    }
}

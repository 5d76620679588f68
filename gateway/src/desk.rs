//! What a call needs between its request and its answer, whatever carries the request: HTTP, or a pipe.

use fleet::store::file_keys::KnownFileKeys;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    ask::Dispatchers,
    events::places::StreamPlaces,
    mcp::{McpContent, catalogue::Catalogue, question_names::QuestionNames, state_keys::StateKeys},
};

/// Files that are read at a time over MCP, each of at most 1 MiB, and those of one tenant.
const FILES_MAX: usize = 16;
const FILES_OF_EACH_MAX: usize = 4;

/// Where calls are made and waited for. None of it decides anything.
#[derive(Debug)]
pub(crate) struct CallDesk {
    /// Whom everything is asked that changes something.
    pub(crate) dispatchers: Dispatchers,
    /// What is known of tools when they are called over MCP.
    pub(crate) catalogue: Catalogue,
    /// What a folder has beside the tools.
    pub(crate) content: McpContent,
    /// How many files may be read at a time, each whole in one answer.
    pub(crate) file_places: StreamPlaces,
    /// Under which names tasks ask.
    pub(crate) question_names: QuestionNames,
    /// With what it is signed what clients send back with their answers over MCP.
    pub(crate) state_keys: StateKeys,
    /// Whether clients can hear of changes.
    pub(crate) serves_streams: bool,
    /// Cancelled when waiting requests are to be answered with where their calls stand.
    pub(crate) stopping: CancellationToken,
    /// What outlives its request: calls that are cancelled when their caller goes away.
    pub(crate) tasks: TaskTracker,
}

impl CallDesk {
    /// With these dispatchers, until `stopping` is cancelled.
    pub(crate) fn new(
        dispatchers: Dispatchers,
        content: McpContent,
        stopping: CancellationToken,
        tasks: TaskTracker,
    ) -> Self {
        Self {
            dispatchers,
            catalogue: Catalogue::default(),
            content,
            // All of one tenant.
            file_places: StreamPlaces::new(FILES_MAX, FILES_MAX, |_all| {}),
            question_names: QuestionNames::default(),
            state_keys: StateKeys::own(),
            serves_streams: false,
            stopping,
            tasks,
        }
    }

    /// The same of a gateway, whose signatures any other reads.
    #[must_use]
    pub(crate) fn over_http(self, keys: KnownFileKeys) -> Self {
        Self {
            file_places: StreamPlaces::new(FILES_MAX, FILES_OF_EACH_MAX, |_all| {}),
            state_keys: StateKeys::Ledger(keys),
            serves_streams: true,
            ..self
        }
    }
}

//! What `dev` leaves to the rest of the program.

use std::path::{Path, PathBuf};

use fleet::ids::{ToolName, WorkerId};
use futures_util::future::BoxFuture;

/// Lines for the person, when it is done.
type HookLines = BoxFuture<'static, anyhow::Result<Vec<String>>>;

/// What `dev` leaves to the rest of the program. The first argument is always the database's URL.
#[derive(Clone, Copy)]
pub struct DevHooks {
    /// Brings the schema up to date.
    pub migrate: fn(String) -> BoxFuture<'static, anyhow::Result<()>>,
    /// Applies one manifest file, as the next version if its content is new and its version is not;
    /// answers with lines for the person. Its error is shown once and the file tried again.
    /// With the URL of a NATS server, its fleet is told, and offers the version when the answer comes, or the lines say that
    /// it does not yet.
    pub apply_tools: fn(String, Option<String>, PathBuf) -> HookLines,
    /// The name of the tool in a manifest file; none when the file is no manifest.
    pub tool_of: fn(&Path) -> Option<ToolName>,
    /// Takes note that the worker process with this pid on this machine is gone, and answers with those of its workers
    /// that are not fenced yet. Repeated only after an error.
    pub worker_died: fn(String, u32) -> BoxFuture<'static, anyhow::Result<Vec<WorkerId>>>,
    /// Takes note that this worker is gone with everything it started: its lock was taken, and is held meanwhile.
    pub fence: fn(String, WorkerId) -> BoxFuture<'static, anyhow::Result<()>>,
}

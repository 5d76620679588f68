//! The functions of the rest of the program that `dev` calls.

use std::path::{Path, PathBuf};

use fleet::ids::{ToolName, WorkerId};
use futures_util::future::BoxFuture;

/// Lines for the person, when it is done.
type HookLines = BoxFuture<'static, anyhow::Result<Vec<String>>>;

/// The functions of the rest of the program that `dev` calls. The first argument is always the database's URL.
#[derive(Clone, Copy)]
pub struct DevHooks {
    /// Brings the schema up to date.
    pub migrate: fn(String) -> BoxFuture<'static, anyhow::Result<()>>,
    /// Applies one manifest file, as the next version if its content is new and its version is not. Returns lines for the
    /// person. An error is shown once, and the file is tried again. With the URL of a NATS server, rings the fleet's bell, and
    /// returns when the version is offered, or with lines that say that it is not offered yet.
    pub apply_tools: fn(String, Option<String>, PathBuf) -> HookLines,
    /// The token that a gateway is asked with: the one that is kept, where it holds, else a new one.
    pub token: fn(String, Option<String>) -> BoxFuture<'static, anyhow::Result<String>>,
    /// The name of the tool in a manifest file; `None` when the file is no manifest.
    pub tool_of: fn(&Path) -> Option<ToolName>,
    /// Records that the worker process with this pid on this machine is gone, and returns those of its workers that are not
    /// fenced yet. Repeated only after an error.
    pub worker_died: fn(String, u32) -> BoxFuture<'static, anyhow::Result<Vec<WorkerId>>>,
    /// Records that this worker is gone with everything it started: its lock was taken, and is held meanwhile.
    pub fence: fn(String, WorkerId) -> BoxFuture<'static, anyhow::Result<()>>,
}

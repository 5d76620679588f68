//! Tools that are a handler in the worker's own program.

use fleet::{manifest::Manifest, outcome::ToolFailure, secrets::Secrets, wire::code::Code};
use serde_json::Value;

use super::{Executor, Prepared};

/// Runs native tools.
#[derive(Debug, Default)]
pub struct NativeExecutor {}

impl Executor for NativeExecutor {
    fn prepare(
        &self,
        _manifest: &Manifest,
        _arguments: &Value,
        _secrets: &Secrets,
    ) -> Result<Box<dyn Prepared>, ToolFailure> {
        Err(ToolFailure::new(
            Code::Unavailable,
            "this worker has no native tools",
        ))
    }
}

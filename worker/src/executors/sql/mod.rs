//! Tools that are a statement on a PostgreSQL database.

use fleet::{manifest::Manifest, outcome::ToolFailure, secrets::Secrets, wire::code::Code};
use serde_json::Value;

use super::{Executor, Prepared};

/// Runs sql tools.
#[derive(Debug, Default)]
pub struct SqlExecutor {}

impl Executor for SqlExecutor {
    fn prepare(
        &self,
        _manifest: &Manifest,
        _arguments: &Value,
        _secrets: &Secrets,
    ) -> Result<Box<dyn Prepared>, ToolFailure> {
        Err(ToolFailure::new(
            Code::Unavailable,
            "this worker has no sql tools",
        ))
    }
}

//! Tools that are a request to a NATS service.

use fleet::{manifest::Manifest, outcome::ToolFailure, secrets::Secrets, wire::code::Code};
use serde_json::Value;

use super::{Executor, Prepared};

/// Runs nats tools.
#[derive(Debug, Default)]
pub struct NatsExecutor {}

impl Executor for NatsExecutor {
    fn prepare(
        &self,
        _manifest: &Manifest,
        _arguments: &Value,
        _secrets: &Secrets,
    ) -> Result<Box<dyn Prepared>, ToolFailure> {
        Err(ToolFailure::new(
            Code::Unavailable,
            "this worker has no nats tools",
        ))
    }
}

//! Observe: an attempt's span and metrics.

use std::sync::Arc;

use fleet::{
    registry::Tool,
    telemetry::{metrics, spans},
};
use tokio::time::Instant;
use tracing::Span;

use super::interceptor::Interceptor;
use crate::stage::Execution;

/// Counts one attempt and times it.
pub(crate) struct Observe {
    pub(crate) tool: Arc<Tool>,
    /// The span of the tool's execution.
    pub(crate) span: Span,
    /// When the worker turned to the attempt, after its claim.
    pub(crate) started: Instant,
}

impl Interceptor for Observe {
    fn name(&self) -> &'static str {
        "observe"
    }

    fn over(&mut self, execution: &Execution) {
        if let Some(failure) = execution.failure() {
            spans::failed(&self.span, failure.code);
        }
        let tool = &self.tool.manifest.name;
        metrics().executed(tool, execution.word(), self.started.elapsed());
    }
}

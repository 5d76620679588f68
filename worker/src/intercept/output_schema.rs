//! Output schema: checks the tool's answer against its manifest.

use std::sync::Arc;

use fleet::{
    outcome::{Outcome, ToolFailure},
    registry::Tool,
};
use serde_json::value::RawValue;

use super::interceptor::{After, Interceptor};
use crate::{answer::Promise, stage::Execution};

/// Checks the answer against the tool's `output_schema`.
pub(crate) struct OutputSchema {
    pub(crate) tool: Arc<Tool>,
}

impl Interceptor for OutputSchema {
    fn name(&self) -> &'static str {
        "output_schema"
    }

    /// An answer that was committed was checked before.
    fn after(&mut self, execution: Execution) -> After<'_> {
        let Execution::Ran(Outcome::Applied { result, flaw }) = execution else {
            return After::Now(execution);
        };
        let tool = &*self.tool;
        if tool.output.is_none() || flaw.as_ref().is_some_and(|flaw| !flaw.is_mended()) {
            return After::Now(judged(result, flaw, tool));
        }
        let promise = Promise::of(&self.tool);
        match promise.kept_now(result) {
            Ok((result, broken)) => After::Now(judged(result, broken.or(flaw), tool)),
            Err(result) => After::Later(Box::pin(async move {
                let (result, broken) = promise.kept(result).await;
                judged(result, broken.or(flaw), tool)
            })),
        }
    }
}

/// The outcome of a tool that succeeded, with the flaw of its answer. The success stands.
///
/// A write's answer is kept beside its flaw, for it may be the only trace of what was done. It is not kept where it may hold
/// sensitive values: in an answer of another shape their places are not known.
fn judged(result: Box<RawValue>, flaw: Option<ToolFailure>, tool: &Tool) -> Execution {
    let useless = flaw.as_ref().is_some_and(|flaw| !flaw.is_mended());
    let result = if useless && tool.manifest.sensitive.is_some() {
        RawValue::NULL.to_owned()
    } else {
        result
    };
    Execution::Ran(Outcome::Applied { result, flaw })
}

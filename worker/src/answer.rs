//! Whether the tool's answer is what its manifest promises.

use std::sync::Arc;

use fleet::{
    outcome::{Outcome, ToolFailure},
    registry::Tool,
    wire::{code::Code, message::Message},
};
use serde_json::value::RawValue;

/// Above so many bytes an answer is checked where nobody waits.
const SHORT: usize = 64 * 1024;

/// What a tool's manifest promises of its answers. Clones are cheap.
#[derive(Debug, Clone, Default)]
pub struct Promise(Option<Arc<Tool>>);

impl Promise {
    pub(crate) fn of(tool: &Arc<Tool>) -> Self {
        Self(tool.output.is_some().then(|| Arc::clone(tool)))
    }

    /// The answer, and why it is not what was promised, if it is not. No value of it is quoted.
    pub async fn kept(&self, answer: Box<RawValue>) -> (Box<RawValue>, Option<ToolFailure>) {
        match &self.0 {
            Some(tool) => check(answer, Arc::clone(tool)).await,
            None => (answer, None),
        }
    }
}

/// The outcome, with a flaw if the answer does not fit the tool's `output_schema`. That the tool did it stands all the same.
///
/// A write's answer is kept beside its flaw, for it may be the only trace of what was done; not where it may hold
/// sensitive values, for nobody knows where they stand in an answer of another shape.
pub(crate) async fn checked(outcome: Outcome, tool: &Arc<Tool>) -> Outcome {
    let Outcome::Applied { result, flaw } = outcome else {
        return outcome;
    };
    let (result, flaw) = if flaw.as_ref().is_none_or(ToolFailure::is_mended) {
        let (result, broken) = Promise::of(tool).kept(result).await;
        (result, broken.or(flaw))
    } else {
        (result, flaw)
    };
    let useless = flaw.as_ref().is_some_and(|flaw| !flaw.is_mended());
    let result = if useless && tool.manifest.sensitive.is_some() {
        RawValue::NULL.to_owned()
    } else {
        result
    };
    Outcome::Applied { result, flaw }
}

async fn check(result: Box<RawValue>, tool: Arc<Tool>) -> (Box<RawValue>, Option<ToolFailure>) {
    let short = result.get().len() <= SHORT;
    let check = move || {
        let problem = tool.answer_problem(&result);
        (result, problem)
    };
    if short {
        return check();
    }
    let checking = tokio::task::spawn_blocking(check).await;
    checking.unwrap_or_else(|_panic| {
        let what = Message::fixed(
            "the tool's answer could not be held against its output_schema",
            "无法用 output_schema 检查工具返回的结果",
        );
        let flaw = ToolFailure::new(Code::OutputInvalid, what);
        (RawValue::NULL.to_owned(), Some(flaw))
    })
}

//! Whether the tool's answer is what its manifest promises.

use std::sync::Arc;

use fleet::{
    outcome::{Outcome, ToolFailure},
    registry::Tool,
    wire::code::Code,
};
use serde_json::value::RawValue;

/// Above so many bytes an answer is checked where nobody waits.
const SHORT: usize = 64 * 1024;

/// The outcome, with a flaw if the answer does not fit the tool's `output_schema`. That the tool did it stands all the same.
///
/// A write's answer is kept beside its flaw, for it may be the only trace of what was done; not where it may hold
/// sensitive values, for nobody knows where they stand in an answer of another shape.
pub(crate) async fn checked(outcome: Outcome, tool: &Arc<Tool>) -> Outcome {
    match outcome {
        Outcome::Applied { result, flaw: None } if tool.output.is_some() => {
            let (result, flaw) = check(result, Arc::clone(tool)).await;
            let hidden = flaw.is_some() && tool.manifest.sensitive.is_some();
            let result = if hidden {
                RawValue::NULL.to_owned()
            } else {
                result
            };
            Outcome::Applied { result, flaw }
        }
        other => other,
    }
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
        let what = "the tool's answer could not be held against its output_schema";
        let flaw = ToolFailure::new(Code::OutputInvalid, what);
        (RawValue::NULL.to_owned(), Some(flaw))
    })
}

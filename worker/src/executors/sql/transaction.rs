//! How a `transaction` ends: its answer is held against everything that could refuse it, then its call is ended in the very
//! transaction that had its effect. After COMMIT nothing is left to go wrong.

use fleet::{outcome::Outcome, said};

use super::{not_committed::NotCommitted, verdict::Cut};
use crate::executors::{AttemptContext, output};

/// The answer as it is kept, once nothing can refuse it any more.
pub(super) async fn kept(answer: &str, context: &AttemptContext) -> Result<String, NotCommitted> {
    let (answer, _mended) = output::json(answer.as_bytes()).map_err(|problem| {
        NotCommitted::Unusable(said!(
            "the answer cannot be used: {problem}",
            "结果无法使用：{problem}",
            problem
        ))
    })?;
    let (answer, broken) = context.promise.kept(answer).await;
    match broken {
        Some(failure) => Err(NotCommitted::Unusable(failure.message)),
        None => Ok(answer.get().to_owned()),
    }
}

/// What an attempt came to that was told to stop, for one that can be rolled back.
///
/// The tool has not said no: it was taken back. Whether that came in time is for the row to say.
pub(super) fn stopped(outcome: Outcome, cut: Cut) -> Outcome {
    match (outcome, cut) {
        (Outcome::DefiniteFailure(failure), Cut::Stop(reason)) if failure.code == reason.code() => {
            Outcome::Unknown(failure)
        }
        (outcome, _) => outcome,
    }
}

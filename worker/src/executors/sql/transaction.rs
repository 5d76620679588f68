//! How a `transaction` ends: its answer is held against everything that could refuse it, then its call is ended in the very
//! transaction that had its effect. After COMMIT nothing is left to go wrong.

use fleet::{
    outcome::Outcome,
    said,
    store::{
        complete,
        transaction::{BAD_RESULT, NOT_OURS, succeed},
    },
    wire::message::Message,
};

use super::{
    session::{Ended, Session},
    verdict::Cut,
};
use crate::executors::{AttemptContext, output};

/// Ends the call, once the transaction commits. Returns the answer as it is kept.
pub(super) async fn end(
    session: &mut Session,
    answer: &str,
    context: &AttemptContext,
) -> Result<(String, complete::Moved), Ended> {
    let (answer, _mended) = output::json(answer.as_bytes()).map_err(|problem| {
        Ended::Unusable(said!(
            "the answer cannot be used: {problem}",
            "结果无法使用：{problem}",
            problem
        ))
    })?;
    let (answer, broken) = context.promise.kept(answer).await;
    if let Some(failure) = broken {
        return Err(Ended::Unusable(failure.message));
    }
    session.step()?;
    let (call, attempt) = (context.call_id, context.attempt_id);
    let ended = succeed(session.connection(), call, attempt, answer.get())
        .await
        .map_err(refused)?;
    Ok((answer.get().to_owned(), ended))
}

fn refused(error: sqlx::Error) -> Ended {
    match Ended::from(error) {
        Ended::Refused(refusal) if refusal.sqlstate == NOT_OURS => Ended::Taken,
        Ended::Refused(refusal) if refusal.sqlstate == BAD_RESULT => {
            let message = refusal.message;
            let chinese = format!("账本不接受这个结果：{message}");
            Ended::Unusable(Message::new(message, chinese))
        }
        other => other,
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

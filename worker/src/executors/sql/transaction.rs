//! How a `transaction` ends: its answer is checked against every limit, then its call is ended in the transaction that has the
//! effect. After COMMIT nothing can fail any more.

use fleet::{
    outcome::Outcome,
    said,
    store::{
        complete,
        transaction::{BAD_RESULT, NOT_OURS, succeed},
    },
    wire::message::Message,
};

use super::{not_committed::NotCommitted, session::Session, verdict::Cut};
use crate::executors::{AttemptContext, output};

/// Ends the call when the transaction commits. Returns the answer as the ledger keeps it.
pub(super) async fn end(
    session: &mut Session,
    answer: &str,
    context: &AttemptContext,
) -> Result<(String, complete::Moved), NotCommitted> {
    let (answer, _mended) = output::json(answer.as_bytes()).map_err(|problem| {
        NotCommitted::Unusable(said!(
            "the answer cannot be used: {problem}",
            "结果无法使用：{problem}",
            problem
        ))
    })?;
    let (answer, broken) = context.promise.kept(answer).await;
    if let Some(failure) = broken {
        return Err(NotCommitted::Unusable(failure.message));
    }
    session.step()?;
    let (call, attempt) = (context.call_id, context.attempt_id);
    let ended = succeed(session.connection(), call, attempt, answer.get())
        .await
        .map_err(refused)?;
    Ok((answer.get().to_owned(), ended))
}

fn refused(error: sqlx::Error) -> NotCommitted {
    match NotCommitted::from(error) {
        NotCommitted::Refused(refusal) if refusal.sqlstate == NOT_OURS => NotCommitted::Taken,
        NotCommitted::Refused(refusal) if refusal.sqlstate == BAD_RESULT => {
            let message = refusal.message;
            let chinese = format!("账本不接受这个结果：{message}");
            NotCommitted::Unusable(Message::new(message, chinese))
        }
        other => other,
    }
}

/// The outcome of an attempt that was told to stop and that can be rolled back.
///
/// The tool has not said no: the caller cancelled, or the worker left. Whether that came in time, the row says.
pub(super) fn stopped(outcome: Outcome, cut: Cut) -> Outcome {
    match (outcome, cut) {
        (Outcome::DefiniteFailure(failure), Cut::Stop(reason)) if failure.code == reason.code() => {
            Outcome::Unknown(failure)
        }
        (outcome, _) => outcome,
    }
}

//! `call`: accept → validate → commit → publish, and the answer to the caller.
//!
//! The order of the door: names, headers, the body itself, then tool and arguments, then the commit. A known key is answered with
//! its call, whatever has become of the tool since, so it is looked for where a call is refused. A call that passes everything is
//! committed at once, without a look; only when its key turns out to be taken is the key read. That needs a new statement, because
//! the one that waited for a rival's commit does not see the rival's row.

use fleet::telemetry::{
    spans::{self, Step},
    trace,
};
use tracing::Instrument;

use crate::{
    admission::{self, Facts},
    answer::Answer,
    check::{self, Submission, TurnedAway},
    commit,
    door::Door,
    refusal::Refusal,
    repetition, replay,
    request::Request,
};

/// Answers one submission.
///
/// # Errors
///
/// It is refused: nothing was stored, or the refusal says that this is unknown.
pub(crate) async fn accept(door: &Door, request: &Request<'_>) -> Result<Answer, Refusal> {
    let span = spans::step(Step::Accept);
    let answered = async {
        let submission = read(door, request).await?;
        trace::set_parent(&tracing::Span::current(), &submission.headers.trace);
        answer(door, submission).await
    };
    let answered = answered.instrument(span.clone()).await;
    match &answered {
        Ok(answer) => {
            if let Some(call) = answer.call {
                spans::identify(&span, call);
            }
        }
        Err(refusal) => spans::failed(&span, refusal.code),
    }
    answered
}

async fn read(door: &Door, request: &Request<'_>) -> Result<Submission, Refusal> {
    let tenant = request.tenant()?;
    let tool = request.tool()?;
    let headers = request.headers()?;
    Submission::of(&door.registry, tenant, tool, headers, request.body).await
}

async fn answer(door: &Door, mut submission: Submission) -> Result<Answer, Refusal> {
    // Before anything that costs the ledger work, the look for the key included.
    admission::comes_in(&Facts {
        is_behind: door.accepting.is_behind(submission.sent.len()),
        ..Facts::default()
    })?;
    let checking = check::check(&door.registry, &door.pool, &mut submission);
    let checked = checking.instrument(spans::step(Step::Validate)).await;
    match checked {
        Ok(checked) => commit::commit(door, submission, checked).await,
        Err(TurnedAway { refusal, key }) => {
            match Box::pin(replay::known_or(door, &submission, key, refusal)).await {
                Err(refusal) => {
                    Err(Box::pin(repetition::refused(door, &submission, refusal)).await)
                }
                known => known,
            }
        }
    }
}

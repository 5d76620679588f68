//! What is handed in about a call that is over: the same again is told what it came to, anything else that it is too late. That a write
//! was done is kept as late evidence all the same.

use fleet::{
    call::{Effect, Source},
    ids::{AttemptId, ToolName},
    said,
    store::{
        answer_files, awaiting,
        late::{self, LateOutcome},
        read::CallRow,
    },
    telemetry::metrics,
    wire::{code::Code, error::ErrorBody, message::Message},
};
use serde_json::json;

use super::{CLIENT, LaterAnswer, TOOL, tool_of};
use crate::{answer::Answer, door::Door, refusal::Refusal, replay};

/// The answer of a call that is over: the same one again is told what it came to, any other that it is too late.
///
/// # Errors
///
/// It is another answer, or the call ended without one; or Postgres does not answer.
pub(super) async fn over(
    door: &Door,
    row: &CallRow,
    attempt: AttemptId,
    answer: &LaterAnswer,
) -> Result<Answer, Refusal> {
    let stored = awaiting::stored(&door.pool, row.call_id).await;
    let stored = stored.map_err(|error| Refusal::unreadable(&error))?;
    let Some(stored) = stored else {
        return Err(Refusal::not_found());
    };
    let state = row.state();
    let is_handed_in = stored.by == CLIENT || stored.by == TOOL;
    let is_by_answer = is_handed_in && stored.source != Source::Settled;
    if is_by_answer && is_same(door, row, &stored, answer) {
        return replay::as_it_stands(door, row.call_id, &row.tenant, false).await;
    }
    keep(door, row, attempt, answer).await?;
    if !is_by_answer {
        let what = said!(
            "the call is over, and not by an answer of yours: it is {state}",
            "这次调用已经结束，但不是由你的结果决定的：状态是 {state}"
        );
        let details = json!({ "state": state });
        return Err(Refusal::new(Code::AlreadyTerminal, what).with_details(|_| details.clone()));
    }
    let what = Message::fixed(
        "this call has another answer already",
        "这次调用已有另一个结果",
    );
    let details = json!({ "state": state });
    Err(Refusal::new(Code::Conflict, what).with_details(|_| details.clone()))
}

/// Keeps that it was done: the call does not change, and whoever looks at it sees what its record may have got wrong.
async fn keep(
    door: &Door,
    row: &CallRow,
    attempt: AttemptId,
    answer: &LaterAnswer,
) -> Result<(), Refusal> {
    let did = matches!(answer, LaterAnswer::Did(_));
    if !did || !tool_of(door, row)?.manifest.effect.may_doubt() {
        return Ok(());
    }
    let call = row.call_id;
    let kept = late::keep_answer(&door.pool, call, attempt).await;
    if let LateOutcome::Kept { contradicts } = kept.map_err(|error| Refusal::unreadable(&error))? {
        tracing::info!(%call, "an answer came after the call was over, and says that it was done");
        if contradicts {
            metrics().integrity_alarm();
            tracing::error!(%call, "a call that ended as not applied had its effect after all");
        }
    }
    Ok(())
}

/// Whether the stored answer is this one, as far as it was stored.
fn is_same(door: &Door, row: &CallRow, stored: &awaiting::Stored, answer: &LaterAnswer) -> bool {
    let tool = row.tool.parse().ok();
    let tool = tool.and_then(|name: ToolName| door.registry.version(&name, row.tool_version));
    match (answer, &stored.result, &stored.error) {
        (LaterAnswer::Did(result), Some(had), None) => {
            let sensitive = tool
                .as_ref()
                .and_then(|tool| tool.manifest.sensitive.as_ref());
            let is_had = |result: &str| {
                let kept = sensitive.and_then(|sensitive| sensitive.kept(result));
                kept.as_deref().unwrap_or(result) == had
            };
            let linked = || {
                let manifest = &tool.as_ref()?.manifest;
                answer_files::linked(row.call_id, manifest, result)
            };
            is_had(result) || linked().is_some_and(|linked| is_had(linked.get()))
        }
        (LaterAnswer::Failed { failure, .. }, None, Some(had)) => {
            let Ok(had) = serde_json::from_str::<ErrorBody>(had) else {
                return false;
            };
            let effect = tool.map_or(Effect::Once, |tool| tool.manifest.effect);
            let effect = fleet::outcome::effect_after(effect, answer.word());
            let body = ErrorBody::failed(failure, effect, row.language);
            had.message == body.message && had.details == body.details
        }
        (_, _, _) => false,
    }
}

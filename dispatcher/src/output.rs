//! `output`: whoever was given a call hands in what came of it, or what its tool has asked for.
//!
//! Who has the token was given the call; without it the call does not exist (`holder`). The answer is checked as one of a tool is,
//! and recorded once: the same answer again gets the stored envelope, another one is a conflict. It settles a doubt that its lateness
//! has left. `body` reads the request, `over` answers when the call is over, and `told` gives a tool what it has asked for.

mod body;
mod holder;
mod over;
mod told;

use std::{sync::Arc, time::Duration};

use fleet::{
    call::{Awaiting, Effect, Language, State},
    checkpoint::{Checkpoint, reached},
    ending::{EndedAttempt, Ending, Fact, Guard, Known, LaterAnswer},
    ids::{AttemptId, CallId, Label, ToolName},
    manifest::Sensitive,
    registry::Tool,
    said,
    store::{
        self, StoreError, answer_files,
        complete::Moved,
        read::{CallRow, CallState},
    },
    wire::{code::Code, message::Message},
};
use serde_json::{Value, json, value::RawValue};

use self::{
    body::{FORM, HandedIn},
    holder::{TokenHolder, holder},
};
use crate::{
    answer::Answer,
    arguments::aside,
    door::Door,
    form, news,
    question::{self, About},
    refusal::Refusal,
    replay,
    request::Request,
};

/// The author in the history: the program of a caller.
const CLIENT: &str = "client";
/// The author in the history: a tool that answers later.
const TOOL: &str = "tool";
/// How long the ledger may take to record an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// When a tool may send again what came while another attempt of it is under way, in milliseconds.
const NEXT_ATTEMPT_MS: u64 = 1_000;

/// Records what was handed in, and returns the call as it stands then.
pub(crate) async fn output(door: &Door, request: &Request<'_>) -> Result<Answer, Refusal> {
    let tenant = request.tenant()?;
    let body = request.body.to_vec();
    let (call, token, handed_in) = aside(move || body::read(&body)).await?;
    let mut answer = match handed_in {
        HandedIn::Answer(answer) => Arc::new(answer),
        HandedIn::Input(input) => return told::take(door, call, &token, &input, &tenant).await,
    };
    // Once more if it moved meanwhile.
    for _ in 0..2 {
        let row = replay::find(door, call, &tenant).await?;
        let has = holder(door, &row, &token).await?;
        let (TokenHolder::Of(_, attempt) | TokenHolder::Earlier(attempt)) = has else {
            return Err(told::not_answered());
        };
        if let Some(masked) = masked(door, &row, &answer).await? {
            answer = Arc::new(masked);
        }
        let state = row.state();
        if state.is_terminal() {
            return over::over(door, &row, attempt, &answer).await;
        }
        let from = match has {
            TokenHolder::Of(whom, attempt) => HandedOut {
                whom,
                attempt,
                state,
            },
            TokenHolder::Earlier(_) | TokenHolder::Asked(_) => {
                of_later_attempt(door, &row, &answer)?
            }
        };
        if let Some(envelope) = record(door, &row, from, &answer, &tenant).await? {
            return Ok(envelope);
        }
    }
    let what = Message::fixed(
        "the call is being decided by somebody else at this moment",
        "这次调用此刻正由别人决定",
    );
    Err(Refusal::too_early(Code::Conflict, what, 100))
}

/// What an answer is about: the attempt as which the call was handed out, and where the call stands.
#[derive(Debug, Clone, Copy)]
struct HandedOut {
    whom: Awaiting,
    attempt: AttemptId,
    state: State,
}

/// The answer without the sensitive values of the call in its failure, as one of a tool is kept; `None`: there are none.
async fn masked(
    door: &Door,
    row: &CallRow,
    answer: &LaterAnswer,
) -> Result<Option<LaterAnswer>, Refusal> {
    let LaterAnswer::Failed { failure, not_done } = answer else {
        return Ok(None);
    };
    let tool = tool_of(door, row)?;
    let Some(sensitive) = &tool.manifest.sensitive else {
        return Ok(None);
    };
    let args = store::arguments::of_any(&door.pool, row.call_id).await;
    let args = args.map_err(|error| Refusal::unreadable(&error))?;
    let args = args.as_deref().unwrap_or("null");
    let about = About {
        call_id: row.call_id,
        tool: &tool.manifest.name,
        tool_version: row.tool_version,
        tenant: &row.tenant,
        args,
    };
    let subject = question::subject(&door.pool, &about).await;
    let subject = subject.map_err(|error| Refusal::unreadable(&error))?;
    let resolved = subject.as_ref().ok().map(|(subject, _turn)| &subject.args);
    let texts = sensitive_texts(sensitive, resolved, args);
    let mask = |text: &str| fleet::sensitive::masked(text, &texts);
    Ok(Some(LaterAnswer::Failed {
        failure: failure.clone().reworded(mask),
        not_done: *not_done,
    }))
}

/// The sensitive texts of a call's arguments. `resolved`: with the answers that they refer to; where one of these is gone, those that
/// stand in the arguments themselves are still there.
fn sensitive_texts(sensitive: &Sensitive, resolved: Option<&Value>, args: &str) -> Vec<String> {
    match resolved {
        Some(resolved) => sensitive.texts(resolved),
        None => {
            serde_json::from_str(args).map_or_else(|_| Vec::new(), |args| sensitive.texts(&args))
        }
    }
}

/// An answer to an earlier attempt of a tool that recognises its key: what it did then, it did for the later attempt as well. That it
/// did not then says nothing of the later one.
fn of_later_attempt(
    door: &Door,
    row: &CallRow,
    answer: &LaterAnswer,
) -> Result<HandedOut, Refusal> {
    let tool = tool_of(door, row)?;
    let counts = match tool.manifest.effect {
        Effect::Read | Effect::Idempotent => matches!(answer, LaterAnswer::Did(_)),
        Effect::Once | Effect::Transaction => false,
    };
    if !counts {
        return Err(Refusal::not_found());
    }
    let state = row.state();
    match &row.state {
        CallState::Ended(_) => Err(Refusal::not_found()),
        CallState::Awaiting(_) | CallState::InDoubt(_) => {
            let attempt = row.attempt_id().ok_or_else(Refusal::not_found)?;
            Ok(HandedOut {
                whom: Awaiting::Completion,
                attempt,
                state,
            })
        }
        CallState::Queued { .. } | CallState::Running { .. } => {
            let what = Message::fixed(
                "another attempt of this call is under way; send the answer again until it is taken",
                "这次调用正在进行另一次尝试；请重新发送这个结果，直到被接受为止",
            );
            Err(Refusal::too_early(Code::Conflict, what, NEXT_ATTEMPT_MS))
        }
    }
}

/// The version of its tool that the call was accepted with.
fn tool_of(door: &Door, row: &CallRow) -> Result<Arc<Tool>, Refusal> {
    let tool = row.tool.parse().ok();
    let tool = tool.and_then(|name: ToolName| door.registry.version(&name, row.tool_version));
    tool.ok_or_else(|| {
        let what = Message::fixed(
            "this dispatcher has not read the version of its tool yet",
            "这个 dispatcher 还没有读到它的工具的版本",
        );
        Refusal::new(Code::StoreUnavailable, what)
    })
}

/// Records it; `None`: the call has moved.
async fn record(
    door: &Door,
    row: &CallRow,
    from: HandedOut,
    answer: &Arc<LaterAnswer>,
    tenant: &Label,
) -> Result<Option<Answer>, Refusal> {
    let tool = tool_of(door, row)?;
    // Seldom more than a look at its length.
    let linking = with_links(door, (row.call_id, from.attempt), &tool, answer);
    let answer = &Box::pin(linking).await?;
    if proves_nothing(row, answer, tool.manifest.effect) {
        let details = json!({ "state": from.state });
        return Err(Refusal::new(Code::Conflict, STILL_IN_DOUBT).with_details(|_| details.clone()));
    }
    let is_limited = tool.manifest.concurrency.is_some();
    let (call, language, answer) = (row.call_id, row.language, Arc::clone(answer));
    // Megabytes may have to be held against a schema and shortened.
    let deciding = move || {
        fits(&tool, &answer)?;
        let ending = ending((call, language), &tool, from, &answer);
        let kept = ending.keeping(tool.manifest.sensitive.as_ref());
        Ok((ending, kept))
    };
    let (ending, kept) = aside(deciding).await?;
    let stored = kept.as_ref().unwrap_or(&ending);
    match door.completing.complete(stored, PATIENCE).await {
        Ok(Some(moved)) => {
            reached(Checkpoint::OutputTaken);
            ended(door, row.call_id, &ending, &moved).await;
            if is_limited {
                // Its place is free.
                news::ring(&door.bus, door.bus.subjects.room(), bytes::Bytes::new()).await;
            }
            replay::as_it_stands(door, row.call_id, tenant, false)
                .await
                .map(Some)
        }
        Ok(None) => Ok(None),
        Err(error @ StoreError::Refused { .. }) => {
            tracing::warn!(
                error = fleet::telemetry::report(&error),
                "the ledger does not take an answer that was handed in"
            );
            let what = Message::fixed(
                "the answer cannot be stored; send a smaller one",
                "这个结果无法保存；请发送较小的结果",
            );
            Err(Refusal::of_output(Code::PayloadTooLarge, what).at("/result"))
        }
        Err(error) => Err(Refusal::unreadable(&error)),
    }
}

const STILL_IN_DOUBT: Message = Message::fixed(
    "the call is in doubt, and this does not say whether it was done; send its result, or not_done with the error if it is certain that nothing was done, or let a person settle it",
    "这次调用处于存疑状态，而这并不能说明操作是否已经生效；请发送它的结果，或者在能确定什么都没有做时随错误一并发送 not_done，否则请交由人工处理",
);

/// Whether an answer about a doubt leaves it a doubt. After lost writes another attempt may be forgotten, so only success is evidence.
const fn proves_nothing(row: &CallRow, answer: &LaterAnswer, effect: Effect) -> bool {
    let CallState::InDoubt(doubtful) = &row.state else {
        return false;
    };
    match answer {
        LaterAnswer::Did(_) => false,
        LaterAnswer::Failed { not_done, .. } => {
            doubtful.quarantined || (effect.may_doubt() && !*not_done)
        }
    }
}

/// The answer with links in the place of its large blocks, which are kept as files.
async fn with_links(
    door: &Door,
    of: (CallId, AttemptId),
    tool: &Arc<Tool>,
    answer: &Arc<LaterAnswer>,
) -> Result<Arc<LaterAnswer>, Refusal> {
    let LaterAnswer::Did(result) = &**answer else {
        return Ok(Arc::clone(answer));
    };
    if !answer_files::may_link(&tool.manifest, result) {
        return Ok(Arc::clone(answer));
    }
    let (checked, by) = (Arc::clone(answer), Arc::clone(tool));
    aside(move || fits(&by, &checked)).await?;
    let result = RawValue::from_string(result.clone());
    let result = result.map_err(|_not_json| form::mismatch(&FORM))?;
    let (manifest, quota) = (&tool.manifest, door.file_quota);
    let linked = answer_files::with_links(&door.pool, of, manifest, quota, result).await;
    Ok(Arc::new(LaterAnswer::Did(linked.get().to_owned())))
}

/// Whether the answer is one that the tool may give. One that does not fit is refused, and the call waits on.
fn fits(tool: &Tool, answer: &LaterAnswer) -> Result<(), Refusal> {
    let LaterAnswer::Did(result) = answer else {
        return Ok(());
    };
    let limit = tool.manifest.output_limit;
    if result.len() > limit {
        let bytes = result.len();
        let what = said!(
            "the result has {bytes} bytes and the tool allows {limit}",
            "结果有 {bytes} 字节，而该工具最多允许 {limit} 字节"
        );
        return Err(Refusal::of_output(Code::PayloadTooLarge, what).at("/result"));
    }
    let raw = RawValue::from_string(result.clone());
    let raw = raw.map_err(|_not_json| form::mismatch(&FORM))?;
    match tool.answer_problem(&raw) {
        Some(problem) => {
            Err(Refusal::of_output(Code::InvalidArguments, problem.message).at("/result"))
        }
        None => Ok(()),
    }
}

fn ending(
    (call, language): (CallId, Language),
    tool: &Tool,
    HandedOut {
        whom,
        attempt,
        state,
    }: HandedOut,
    answer: &LaterAnswer,
) -> Ending {
    let effect = tool.manifest.effect;
    let known = Known {
        effect,
        language,
        cancelled: false,
        earlier_unknown: false,
        applied_late: false,
    };
    let (word, failure) = (answer.word(), answer.failure());
    let ended = EndedAttempt::of(effect, word, failure, true, language);
    let fact = Fact::Submitted {
        from: state,
        by: whom,
        answer,
    };
    let guard = Guard::Attempt(attempt);
    let actor = match whom {
        Awaiting::Completion => TOOL,
        Awaiting::Client | Awaiting::Approval | Awaiting::Input => CLIENT,
    };
    let actor = actor.to_owned();
    let ending = Ending::by(&fact, &known, call, guard, Some(ended), actor);
    ending.shortened(tool.manifest.large_result.as_ref(), language)
}

/// Tells everybody who waits.
async fn ended(door: &Door, call: CallId, ending: &Ending, moved: &Moved) {
    moved.count(&ending.kind);
    let event = || moved.event(ending);
    door.events.tell(moved.followed(), event);
    let subject = door.bus.subjects.done(moved.dispatcher, call);
    news::ring(&door.bus, subject, bytes::Bytes::new()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensitive_texts_are_found_where_an_answer_that_is_referred_to_is_gone() {
        let sensitive = json!({"pointers": ["/card", "/file"]});
        let sensitive: Sensitive = serde_json::from_value(sensitive).unwrap();
        let args = r#"{"card":"4111-1111","file":{"$result":"gone"}}"#;
        let found = sensitive_texts(&sensitive, None, args);
        assert!(found.contains(&"4111-1111".to_owned()), "{found:?}");
        let resolved = json!({"card": "4111-1111", "file": "what it says"});
        let found = sensitive_texts(&sensitive, Some(&resolved), args);
        assert_eq!(found, ["what it says", "4111-1111"]);
    }
}

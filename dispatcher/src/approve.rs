//! `approve` and `admin.approve`: somebody decides about a call that waits for a yes. The ledger decides whether that counts; this
//! file reads the request and words the answer.
//!
//! Operators decide by their rights on NATS. The program of a caller decides with the token of the call, and only where the tool
//! says that callers may; without it the call does not exist.

use fleet::{
    call::{Awaiting, State},
    canonical,
    checkpoint::{Checkpoint, reached},
    controls::{LazyArguments, Pause, PausedBy},
    ids::{CallId, Label, ToolName},
    invisible::first_invisible,
    manifest::ApprovedBy,
    said,
    store::{
        approvals::{self, Approval, Ruling, RulingVerdict},
        read::{CallRow, CallState},
    },
    telemetry::metrics,
    wire::{
        code::Code,
        message::Message,
        token::{Handed, HandedAs},
    },
};
use serde::Deserialize;
use serde_json::json;
use time::format_description::well_known::Rfc3339;
use tokio::time::Instant;

use crate::{
    answer::Answer,
    door::Door,
    form, hand_over, news,
    question::{self, About},
    refusal::Refusal,
    replay,
    request::Request,
};

/// When to decide again about a call whose tool is paused without an end, in milliseconds.
const COME_AGAIN_MS: u64 = 60_000;
/// How often a call may have moved since its token was made.
const MOVES_MAX: i32 = 64;

static FORM: Message = Message::fixed(
    "call_id, decision: approve or deny, args_hash, actor, note",
    "call_id, decision: approve 或 deny, args_hash, actor, note",
);
static CALLERS_FORM: Message = Message::fixed(
    "call_id, token, decision: approve or deny, args_hash, actor, note",
    "call_id, token, decision: approve 或 deny, args_hash, actor, note",
);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApproveRequest {
    call_id: String,
    decision: Ruling,
    args_hash: String,
    actor: String,
    note: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallersRequest {
    call_id: String,
    token: String,
    decision: Ruling,
    args_hash: String,
    actor: String,
    note: String,
}

/// Who decides.
#[derive(Debug, Clone, Copy)]
enum Decider {
    Operator,
    Caller,
}

/// An operator decides.
pub(crate) async fn by_operator(door: &Door, request: &Request<'_>) -> Result<Answer, Refusal> {
    let tenant = request.tenant()?;
    let asked: ApproveRequest = form::long(request.body, &FORM)?;
    let call = form::call_id(&asked.call_id)?;
    let actor = request.author(&asked.actor);
    let row = decide(door, &tenant, call, &asked, (&actor, Decider::Operator)).await?;
    if row.state() == State::AwaitingClient {
        return Ok(hand_over::shown_to_operator(door, &row));
    }
    replay::as_it_stands(door, call, &tenant, false).await
}

/// The program of the caller decides.
pub(crate) async fn by_caller(door: &Door, request: &Request<'_>) -> Result<Answer, Refusal> {
    let tenant = request.tenant()?;
    let CallersRequest {
        call_id,
        token,
        decision,
        args_hash,
        actor,
        note,
    } = form::long(request.body, &CALLERS_FORM)?;
    let call = form::call_id(&call_id)?;
    let row = replay::find(door, call, &tenant).await?;
    if !is_its_token(door, &row, &token) {
        return Err(Refusal::not_found());
    }
    let asked = ApproveRequest {
        call_id,
        decision,
        args_hash,
        actor,
        note,
    };
    // By its own word, so the history says whose word it is.
    let actor = match asked.actor.trim() {
        "" => String::new(),
        said => format!("{said} (caller)"),
    };
    decide(door, &tenant, call, &asked, (&actor, Decider::Caller)).await?;
    replay::as_it_stands(door, call, &tenant, false).await
}

/// Whether it is the token with which the call waited, or waits, for the yes of its caller.
fn is_its_token(door: &Door, row: &CallRow, token: &str) -> bool {
    let is_of = |rev| {
        let handed = Handed {
            call: row.call_id,
            awaiting: Awaiting::Approval,
            turn: HandedAs::Revision(rev),
        };
        door.tokens.is_of(token, &handed)
    };
    match &row.state {
        CallState::Awaiting(awaiting) if awaiting.handed.awaiting == Awaiting::Approval => {
            let wanted = awaiting.approval.as_ref();
            let by = wanted.map(|approval| approval.wanted.by);
            by == Some(ApprovedBy::Caller) && door.tokens.is_of(token, &awaiting.handed)
        }
        // It has moved since: whoever had its token learns how.
        CallState::Awaiting(_)
        | CallState::Queued { .. }
        | CallState::Running { .. }
        | CallState::InDoubt(_)
        | CallState::Ended(_) => (0..row.rev.min(MOVES_MAX)).any(is_of),
    }
}

/// Records the decision, tells everybody, and returns the call as it stood right after it.
async fn decide(
    door: &Door,
    tenant: &Label,
    call: CallId,
    asked: &ApproveRequest,
    (actor, decider): (&str, Decider),
) -> Result<CallRow, Refusal> {
    has_words(actor, &asked.note)?;
    let approval = Approval {
        call,
        tenant: Some(tenant),
        ruling: asked.decision,
        args_hash: &asked.args_hash,
        actor,
        note: &asked.note,
    };
    if asked.decision == Ruling::Approve {
        may_be_handed_out(door, tenant, call, decider).await?;
    }
    let verdict = approvals::rule(&door.pool, &approval)
        .await
        .map_err(Refusal::undecided)?;
    let RulingVerdict::Decided {
        state, at, tell, ..
    } = verdict
    else {
        return Err(refused(&verdict));
    };
    reached(Checkpoint::Ruled);
    let row = replay::find(door, call, tenant).await?;
    metrics().ruled(&row.tool, asked.decision);
    match state {
        // Its line has a call more: whoever releases calls looks at once.
        State::Queued => news::ring(&door.bus, door.bus.subjects.room(), bytes::Bytes::new()).await,
        State::AwaitingClient => hand_over::tell_standing(door, &row, at),
        State::Running
        | State::InDoubt
        | State::Succeeded
        | State::Failed
        | State::Cancelled
        | State::Expired => {}
    }
    if let Some(dispatcher) = tell {
        news::tell_waiters(door, dispatcher, call).await;
    }
    Ok(row)
}

/// The most characters of a name and of a note.
const ACTOR_MAX: usize = 200;
const NOTE_MAX: usize = 2_000;

/// Whether it is said who decides and why. The ledger asks the same, and writes an error into its log where that is not so: an agent could
/// fill it.
fn has_words(actor: &str, note: &str) -> Result<(), Refusal> {
    let is_within = |text: &str, most| !text.trim().is_empty() && text.chars().count() <= most;
    let is_seen = first_invisible(actor).is_none() && !actor.contains(char::is_control);
    let what = if !(is_within(actor, ACTOR_MAX) && is_seen) {
        Message::fixed(
            "actor must say who decides, in 1 to 200 characters that can be seen",
            "actor 必须说明由谁决定，长度为 1 到 200 个可见字符",
        )
    } else if !is_within(note, NOTE_MAX) {
        Message::fixed(
            "note must say why, in 1 to 2000 characters",
            "note 必须说明原因，长度为 1 到 2000 个字符",
        )
    } else {
        return Ok(());
    };
    Err(Refusal::new(Code::InvalidArguments, what))
}

/// Whether a yes may hand the call to the program of its caller, where that runs it.
///
/// A paused tool starts nothing, and what was handed out cannot be kept waiting; nor would its newest version's policy be judged. What
/// workers run waits for the end of the pause after its yes, and is judged then.
async fn may_be_handed_out(
    door: &Door,
    tenant: &Label,
    call: CallId,
    decider: Decider,
) -> Result<(), Refusal> {
    let controls = door.registry.controls();
    if controls.are_none() && !door.registry.has_policies() {
        return Ok(());
    }
    let waiting = approvals::waiting_for_yes(&door.pool, tenant, call).await;
    let Some(waiting) = waiting.map_err(|error| Refusal::unreadable(&error))? else {
        return Ok(());
    };
    let tool = door.registry.version(&waiting.tool, waiting.tool_version);
    let Some(tool) = tool.filter(|tool| tool.manifest.is_run_by_client()) else {
        return Ok(());
    };
    let newest = door.registry.current(&waiting.tool);
    if newest.is_some_and(|newest| newest.manifest.policy.is_some()) {
        let (name, version) = (&waiting.tool, waiting.tool_version);
        let what = said!(
            "a yes would hand the call of version {version} of {name} to its caller's program, where the policy of the newest version cannot \
             be judged; say no",
            "同意会把工具 {name} 版本 {version} 的这次调用交给调用方的程序，而在那里无法判断最新版本的 policy；请拒绝"
        );
        return Err(Refusal::new(Code::Forbidden, what));
    }
    if controls.are_none() {
        return Ok(());
    }
    let about = About {
        call_id: call,
        tool: &waiting.tool,
        tool_version: waiting.tool_version,
        tenant,
        args: &waiting.args,
    };
    let subject = question::subject(&door.pool, &about).await;
    let args = match subject.map_err(|error| Refusal::unreadable(&error))? {
        Ok((subject, _turn)) => canonical::to_text(&subject.args),
        // An answer that they refer to is gone.
        Err(_why) => waiting.args,
    };
    let paused = PausedBy {
        tool: &waiting.tool,
        queue: &tool.manifest.queue,
        tenant,
        arguments: &LazyArguments::new(&args),
    };
    let now = Instant::now();
    match controls.pause_of_accepted(&paused, now) {
        None => Ok(()),
        Some(pause) => Err(paused_by(&waiting.tool, pause, decider, now)),
    }
}

/// Why there can be no yes during a pause. Only operators are told of the control, and how it ends.
fn paused_by(tool: &ToolName, pause: &Pause, decider: Decider, now: Instant) -> Refusal {
    let id = pause.id.0;
    let what = match decider {
        Decider::Operator => said!(
            "the tool {tool} is paused (control {id}), and a yes would hand the call to its caller's program at once; `toolfleet control list` says who paused it, why and until when, `toolfleet control resume {id} --note WHY` ends the pause; say yes then, or no now",
            "工具 {tool} 已暂停（控制 {id}），而同意会立即把这次调用交给调用方的程序；`toolfleet control list` 说明是谁、为何暂停以及到何时为止，`toolfleet control resume {id} --note WHY` 可结束暂停；请在暂停结束后再同意，或现在拒绝"
        ),
        Decider::Caller => said!(
            "the tool {tool} is paused, and a yes would hand the call to its caller's program at once; say yes when the pause is over, or no now",
            "工具 {tool} 已暂停，而同意会立即把这次调用交给调用方的程序；请在暂停结束后再同意，或现在拒绝"
        ),
    };
    let left = pause
        .until
        .map(|until| until.saturating_duration_since(now));
    let wait_ms = left.map_or(COME_AGAIN_MS, |left| {
        u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
    });
    Refusal::not_yet(Code::ToolPaused, what, wait_ms.max(1))
}

/// Why the decision does not count, for whoever made it.
fn refused(verdict: &RulingVerdict) -> Refusal {
    let conflict = |what| Refusal::new(Code::Conflict, what);
    match verdict {
        RulingVerdict::Decided { .. } | RulingVerdict::NotFound => Refusal::not_found(),
        RulingVerdict::OtherArguments => conflict(Message::fixed(
            "args_hash is not the one that was shown with the call's arguments: look at the call again, and decide about what it says",
            "args_hash 与这次调用的参数一同显示的值不符：请重新查看这次调用，再就其内容作出决定",
        )),
        RulingVerdict::SamePerson => conflict(Message::fixed(
            "this person has said yes already, and another one has to",
            "此人已经同意，还需要另一个人同意",
        )),
        RulingVerdict::Submitter => conflict(Message::fixed(
            "who submitted the call cannot be one of the two who decide about it",
            "提交这次调用的人不能是决定它的两个人之一",
        )),
        RulingVerdict::Over { since } => conflict(Message::fixed(
            "the time for a decision is over; the call expires, and nothing of it was done",
            "作出决定的时间已过；这次调用即将过期，没有执行任何操作",
        ))
        .with_details(|_| json!({ "until": instant(*since) })),
        RulingVerdict::NotWaiting {
            state,
            decided_by,
            decided_at,
        } => {
            let what = said!(
                "the call does not wait for a decision any more: it is {state}",
                "这次调用已不再等待决定：状态是 {state}"
            );
            conflict(what).with_details(|_| {
                json!({
                    "state": state,
                    "decided_by": decided_by,
                    "decided_at": decided_at.and_then(instant),
                })
            })
        }
    }
}

fn instant(at: time::OffsetDateTime) -> Option<String> {
    at.format(&Rfc3339).ok()
}

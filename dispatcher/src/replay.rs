//! A call that exists already: whether a key belongs to it, its state, and waiting for it.

use std::time::Duration;

use fleet::{
    ids::{CallId, Label},
    store::{
        PgPool,
        accept::NewCall,
        keys::{self, KeyRow},
        policies,
        read::{self, CallRow},
    },
    telemetry::metrics,
    wire::{code::Code, envelope::Envelope, headers::Prefer, message::Message},
};
use tokio::time::Instant;

use crate::{
    answer::{Answer, bytes_max},
    check::Submission,
    door::Door,
    hand_over, news,
    refusal::Refusal,
    waiters::WaitFor,
};

const UNKNOWN_VERSION: Message = Message::fixed(
    "this idempotency key names a call of a version of the tool that this dispatcher has not read yet",
    "这个幂等键属于该工具某个版本的调用，而这个 dispatcher 还没有读到那个版本",
);

fn reused() -> Refusal {
    let what = Message::fixed(
        "this idempotency key already names a call with another tool, other arguments or other files",
        "这个幂等键已经用于另一个工具、另一组参数或另一组文件的调用",
    );
    Refusal::new(Code::IdempotencyKeyReused, what)
}

/// Whether a submission asks for the very call that its key names: the same bytes, or the same arguments as the version of the
/// tool that took the call gets them.
pub(crate) async fn is_call_of(
    door: &Door,
    submission: &Submission,
    key: &KeyRow,
) -> Result<(), Refusal> {
    // A key that was derived from arguments belongs to them alone, whatever the call's own version would make of the arguments
    // as sent.
    if submission.headers.key.is_none() {
        return Ok(());
    }
    if key.tool != submission.tool.as_str() {
        return Err(reused());
    }
    if key.original_hash == submission.original_hash {
        return Ok(());
    }
    let tool = door.registry.version(&submission.tool, key.tool_version);
    let is_known = tool.is_some();
    match submission.hash_for(tool.as_ref()).await {
        Some(hash) if key.args_hash == hash => Ok(()),
        Some(_) | None if is_known => Err(reused()),
        Some(_) | None => Err(Refusal::new(Code::StoreUnavailable, UNKNOWN_VERSION)),
    }
}

/// A known key is answered with its call, even where a new call is refused.
pub(crate) async fn known_or(
    door: &Door,
    submission: &Submission,
    key: Option<[u8; 32]>,
    refusal: Refusal,
) -> Result<Answer, Refusal> {
    known(door, submission, key).await?.ok_or(refusal)
}

/// The answer of the call that a key names, where there is one.
pub(crate) async fn known(
    door: &Door,
    submission: &Submission,
    key: Option<[u8; 32]>,
) -> Result<Option<Answer>, Refusal> {
    let Some(key) = key else {
        return Ok(None);
    };
    match find_key(&door.pool, &submission.tenant, &key).await? {
        Some(found) if !found.lapsed => replay(door, submission, &found).await.map(Some),
        Some(_) | None => Ok(None),
    }
}

/// Answers with the call that a key names.
pub(crate) async fn replay(
    door: &Door,
    submission: &Submission,
    found: &KeyRow,
) -> Result<Answer, Refusal> {
    is_call_of(door, submission, found).await?;
    note(door, submission, found).await?;
    count(submission);
    let (call, tenant) = (found.call_id, &submission.tenant);
    match submission.headers.prefer {
        Prefer::RespondAsync => as_it_stands(door, call, tenant, true).await,
        Prefer::Wait(wait) => wait_for(door, call, tenant, wait, Asker::Caller).await,
    }
}

/// Notes for the policies that the run and session of this submission are answered with a call, before they are: what it has done
/// counts there too, though it is of another run.
pub(crate) async fn note(
    door: &Door,
    submission: &Submission,
    found: &KeyRow,
) -> Result<(), Refusal> {
    let (run, session) = (
        submission.headers.run.as_ref(),
        submission.headers.session.as_ref(),
    );
    if !found.is_watched || (run.is_none() && session.is_none()) {
        return Ok(());
    }
    let noting = policies::note_asked(&door.pool, found.call_id, run, session);
    let is_noted = Box::pin(noting).await;
    if is_noted.map_err(|error| Refusal::unreadable(&error))? {
        return Ok(());
    }
    let what = Message::fixed(
        "too many other runs and sessions wait for the call of this key; send it again when that call is over",
        "等待这个幂等键所对应调用的 run 和 session 太多；请在那次调用结束后再发送",
    );
    Err(Refusal::new(Code::Overloaded, what))
}

/// Counts a repetition that does not run.
pub(crate) fn count(submission: &Submission) {
    metrics().replayed(&submission.tool, submission.headers.key.is_some());
}

/// Who waits for a call that was made before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    /// Who submits it once more.
    Caller,
    /// Who only looks, and tells its caller what it is asked.
    Asked,
    /// Who only looks.
    Other,
}

/// Waits for a call that another submission made, perhaps at another dispatcher: subscribe, flush, read, then wait.
pub(crate) async fn wait_for(
    door: &Door,
    call: CallId,
    tenant: &Label,
    wait: Duration,
    asker: Asker,
) -> Result<Answer, Refusal> {
    let replayed = asker == Asker::Caller;
    let until = Instant::now() + wait;
    let mut waiting = door.waiters.register(call, None);
    // Before the row is read. Without the subscription the poll finds the end within a second.
    let elsewhere = news::of_call(&door.bus, call).await;
    let row = find(door, call, tenant).await?;
    waiting.may_be_told_with(row.done_secret);
    // Who submits it is the one who has to do it.
    if asker != Asker::Other && hand_over::is_for_caller(&row) {
        return Ok(hand_over::standing(door, &row, replayed));
    }
    let wait_for = match asker {
        Asker::Caller | Asker::Asked => WaitFor::QuestionAfter(row.rev),
        Asker::Other => WaitFor::Decision,
    };
    let wait = until.saturating_duration_since(Instant::now());
    if !row.state().answers_waiters()
        && let Some(envelope) = waiting.decided(wait_for, wait, row.left(), elsewhere).await
        && let Ok(envelope) = envelope.decode()
    {
        let envelope = Envelope {
            replayed,
            ..envelope
        };
        return Ok(Answer::result(envelope, bytes_max(&door.bus), row.language));
    }
    as_it_stands(door, call, tenant, replayed).await
}

/// The result envelope of a decided call, the accepted envelope of any other.
pub(crate) async fn as_it_stands(
    door: &Door,
    call: CallId,
    tenant: &Label,
    replayed: bool,
) -> Result<Answer, Refusal> {
    let row = find(door, call, tenant).await?;
    match row
        .envelope(replayed)
        .map_err(|error| Refusal::unreadable(&error))?
    {
        Some(envelope) => Ok(Answer::result(envelope, bytes_max(&door.bus), row.language)),
        None => Ok(hand_over::standing(door, &row, replayed)),
    }
}

/// The call, if it is this tenant's. Another tenant's call is answered exactly like one that does not exist.
pub(crate) async fn find(door: &Door, call: CallId, tenant: &Label) -> Result<CallRow, Refusal> {
    let row = read::find_of(&door.pool, tenant, call)
        .await
        .map_err(|error| Refusal::unreadable(&error))?;
    row.ok_or_else(Refusal::not_found)
}

pub(crate) async fn find_key(
    pool: &PgPool,
    tenant: &Label,
    key_hash: &[u8; 32],
) -> Result<Option<KeyRow>, Refusal> {
    let found = keys::find_key(pool, tenant, key_hash).await;
    found.map_err(|error| Refusal::unreadable(&error))
}

pub(crate) async fn find_taken_key(
    pool: &PgPool,
    call: &NewCall,
) -> Result<Option<KeyRow>, Refusal> {
    match &call.key {
        Some(key) => find_key(pool, &call.tenant, &key.hash).await,
        None => Ok(None),
    }
}

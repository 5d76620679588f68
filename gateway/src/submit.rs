//! Submits a call and waits for it.
//!
//! The first question waits only a moment: a call that is over by then costs one message each way, as over NATS. One that takes
//! longer is known by its id from then on, and is looked at by that. So a gateway that stops can say of every call where it stands, and a
//! caller that goes away can have its own cancelled.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use fleet::ids::{CallId, Label, ToolName};
use fleet_client::{Answer, Question, calls::Cancelling, options::SLACK};
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, sleep},
};

use crate::{
    answer::Glimpse,
    desk::CallDesk,
    forward::Preference,
    headers::{IDEMPOTENCY_KEY, PREFER},
    refusal::{Refused, Repeatable},
    wait::{WaitUntil, wait},
    when_left::WhenLeft,
};

/// How long the first question waits.
const FIRST: Duration = Duration::from_secs(2);
/// How long a gateway that stops waits for the answer to a first question.
const STOP_MAX: Duration = Duration::from_secs(3);
/// The reason of a cancellation in the history.
pub(crate) const GONE: &str = "its caller went away";

/// A call on its way to the door.
#[derive(Debug)]
pub(crate) struct Submitted {
    pub(crate) tenant: Label,
    pub(crate) tool: ToolName,
    /// Without `Prefer`.
    pub(crate) headers: async_nats::HeaderMap,
    /// The arguments, byte for byte.
    pub(crate) body: Bytes,
    pub(crate) preference: Preference,
    /// Who asks, by name.
    pub(crate) principal: Option<String>,
    /// Who wants to know the call by its id as soon as it is accepted.
    pub(crate) known: Option<watch::Sender<Option<CallId>>>,
}

impl Submitted {
    fn has_key(&self) -> bool {
        self.headers.get(IDEMPOTENCY_KEY.as_str()).is_some()
    }

    fn question(&self, desk: &CallDesk, prefer: Option<&str>, patience: Duration) -> Question {
        let mut headers = self.headers.clone();
        if let Some(prefer) = prefer {
            headers.insert(PREFER.as_str(), prefer);
        }
        let subjects = desk.dispatchers.subjects();
        Question {
            subject: subjects.call(&self.tenant, self.tool.as_str()),
            headers,
            body: self.body.clone(),
            patience,
        }
    }

    const fn repeatable(has_key: bool) -> Repeatable {
        if has_key {
            Repeatable::ByKey
        } else {
            Repeatable::Never
        }
    }
}

/// Submits a call, and waits as long as its caller wants. Dropping the future leaves the call alone.
///
/// # Errors
///
/// No dispatcher answers.
pub(crate) async fn submit(desk: &CallDesk, call: &Submitted) -> Result<Answer, Refused> {
    let until = call.preference.wait().map(|wait| Instant::now() + wait);
    let answer = first(desk, call).await?;
    match until {
        Some(until) => rest(desk, call, answer, until).await,
        None => Ok(answer),
    }
}

/// The same for a caller whose call is cancelled when it goes away. Runs in a task of its own, which outlives the request.
pub(crate) async fn submit_for(
    desk: &CallDesk,
    call: &Submitted,
    mut caller: oneshot::Sender<Result<Answer, Refused>>,
) {
    let answered = submit_while(desk, call, &mut caller).await;
    if let Err(answered) = caller.send(answered)
        && let Some(id) = undecided(&answered)
    {
        let principal = call.principal.as_deref();
        cancel(desk, &call.tenant, id, GONE, principal).await;
    }
}

/// Submits a call, and waits as long as its caller wants and is there: then the answer says where it stands.
///
/// # Errors
///
/// No dispatcher answers.
pub(crate) async fn submit_while<T>(
    desk: &CallDesk,
    call: &Submitted,
    caller: &mut oneshot::Sender<T>,
) -> Result<Answer, Refused> {
    let until = call.preference.wait().map(|wait| Instant::now() + wait);
    // Its id is known only by the answer, so that is waited for, whoever is there.
    let answered = first(desk, call).await;
    if let (Some(_), Some(until), Ok(answer)) = (undecided(&answered), until, &answered) {
        tokio::select! {
            () = caller.closed() => {}
            rest = rest(desk, call, answer.clone(), until) => return rest,
        }
    }
    answered
}

/// The call that an answer leaves open.
pub(crate) fn undecided(answered: &Result<Answer, Refused>) -> Option<CallId> {
    let glimpse = Glimpse::of(answered.as_ref().ok()?.bytes());
    glimpse.call_id.filter(|_| glimpse.is_open())
}

async fn first(desk: &CallDesk, call: &Submitted) -> Result<Answer, Refused> {
    let wait = call.preference.wait();
    let said = match wait {
        Some(_) if call.known.is_some() => Some("respond-async".to_owned()),
        Some(wait) if wait > FIRST => Some(format!("wait={}", FIRST.as_secs())),
        Some(_) | None => call.preference.said().map(ToOwned::to_owned),
    };
    let patience = wait.unwrap_or_default().min(FIRST) + SLACK;
    let question = call.question(desk, said.as_deref(), patience);
    let repeatable = Submitted::repeatable(call.has_key());
    let stopped = async {
        desk.stopping.cancelled().await;
        sleep(STOP_MAX).await;
    };
    let answered = tokio::select! {
        answered = desk.dispatchers.ask(question, repeatable) => answered,
        () = stopped => Err(Refused::no_answer(repeatable)),
    };
    if let (Some(known), Ok(answer)) = (&call.known, &answered) {
        known.send_replace(Glimpse::of(answer.bytes()).call_id);
    }
    answered
}

/// Waits on for a call that was not decided in the first moment.
async fn rest(
    desk: &CallDesk,
    call: &Submitted,
    answer: Answer,
    until: Instant,
) -> Result<Answer, Refused> {
    let glimpse = Glimpse::of(answer.bytes());
    let left = until.saturating_duration_since(Instant::now());
    let Some(id) = glimpse.call_id.filter(|_| glimpse.is_open()) else {
        return Ok(answer);
    };
    if glimpse.awaits() || left.is_zero() {
        return Ok(answer);
    }
    if glimpse.replayed && call.has_key() {
        return attached(desk, call, answer, left).await;
    }
    let waited = wait(desk, &call.tenant, id, until, WaitUntil::DecidedOrAwaiting).await;
    // It was accepted, whatever becomes of the looks.
    Ok(waited
        .ok()
        .filter(|last| !Glimpse::of(last.bytes()).is_refused())
        .unwrap_or(answer))
}

/// Waits on for a call that an earlier submission made: only another submission is answered with `"replayed":true`.
async fn attached(
    desk: &CallDesk,
    call: &Submitted,
    answer: Answer,
    left: Duration,
) -> Result<Answer, Refused> {
    let seconds = left.as_secs();
    if seconds == 0 {
        return Ok(answer);
    }
    let prefer = format!("wait={seconds}");
    let question = call.question(desk, Some(&prefer), left + SLACK);
    tokio::select! {
        answered = desk.dispatchers.ask(question, Repeatable::ByKey) => answered.or(Ok(answer)),
        () = desk.stopping.cancelled() => Ok(answer),
    }
}

/// A call that was made before, whose caller is asked about it.
#[derive(Debug)]
pub(crate) struct Attended {
    pub(crate) tenant: Label,
    pub(crate) call: CallId,
    /// Who asks, by name.
    pub(crate) principal: Option<String>,
    pub(crate) when_left: WhenLeft,
}

/// Waits so long for a call. Dropping the future leaves it as `when_left` says; it is never cancelled because the program itself stops.
///
/// # Errors
///
/// No dispatcher answers.
pub(crate) async fn attend(
    desk: Arc<CallDesk>,
    attended: Attended,
    longest: Duration,
) -> Result<Answer, Refused> {
    let (mut caller, hears) = oneshot::channel();
    let task = Arc::clone(&desk);
    desk.tasks.spawn(async move {
        let Attended {
            tenant,
            call,
            principal,
            when_left,
        } = attended;
        let until = Instant::now() + longest;
        let what = WaitUntil::DecidedOrAwaiting;
        let is_open = |answer: &Answer| Glimpse::of(answer.bytes()).is_open();
        let (may_be_open, is_gone) = tokio::select! {
            answered = wait(&task, &tenant, call, until, what) => {
                let may_be_open = answered.as_ref().map_or(true, is_open);
                (may_be_open, caller.send(answered).is_err())
            }
            () = caller.closed() => (true, true),
        };
        if may_be_open && when_left.unwanted(&tenant, call, is_gone) {
            cancel(&task, &tenant, call, GONE, principal.as_deref()).await;
        }
    });
    let answered = hears.await;
    answered.unwrap_or_else(|_ended| Err(Refused::no_answer(Repeatable::Always)))
}

/// Cancels a call; its state then, where that is known. Never because the gateway itself stops.
pub(crate) async fn cancel(
    desk: &CallDesk,
    tenant: &Label,
    id: CallId,
    reason: &'static str,
    principal: Option<&str>,
) -> Option<String> {
    if desk.stopping.is_cancelled() {
        return None;
    }
    let cancelling = Cancelling {
        call_id: id,
        reason: Some(reason),
        actor: principal,
    };
    let body = serde_json::to_vec(&cancelling).expect("a question has only string keys");
    let question = Question::new(desk.dispatchers.subjects().cancel(tenant), body);
    let answered = desk.dispatchers.ask(question, Repeatable::Always).await;
    match answered {
        Ok(answer) => Some(Glimpse::of(answer.bytes()).state),
        Err(_no_answer) => {
            tracing::warn!(call = %id, "a call that nobody waits for could not be cancelled");
            None
        }
    }
}

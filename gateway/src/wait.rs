//! Waits for a call whose id is known: in glances of a few seconds, so that a dispatcher that dies in between costs no more than one of
//! them, and so that a gateway that stops can say where the call stands.

use std::time::Duration;

use fleet::{
    delay::Reconnect,
    ids::{CallId, Label},
    wire::headers::{QUESTION, WAIT_FOR},
};
use fleet_client::{Answer, Question, question::DECISION_MAX};
use tokio::time::{Instant, timeout};

use crate::{
    answer::Glimpse,
    desk::CallDesk,
    refusal::{Refused, Repeatable},
};

/// How long one glance waits.
const GLANCE: Duration = Duration::from_secs(5);
/// How long a gateway that stops asks where a call stands.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// What ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitUntil {
    /// The call is over, or in doubt.
    Decided,
    /// Or it waits for somebody outside the fleet: who makes a call is told so at once.
    DecidedOrAwaiting,
}

/// The call as it stands when it is decided, or when the time is over, or when this gateway stops. A gateway whose dispatchers do not
/// answer meanwhile asks again until then.
///
/// # Errors
///
/// The last look had no answer.
pub(crate) async fn wait(
    desk: &CallDesk,
    tenant: &Label,
    call: CallId,
    until: Instant,
    what: WaitUntil,
) -> Result<Answer, Refused> {
    let mut pauses = Reconnect::default();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let looked = tokio::select! {
            biased;
            () = desk.stopping.cancelled() => return last_look(desk, tenant, call, what).await,
            looked = look(desk, tenant, call, left.min(GLANCE), what) => looked,
        };
        if left.is_zero() {
            return looked;
        }
        match looked {
            Ok(answer) => {
                let glimpse = Glimpse::of(answer.bytes());
                if glimpse.is_open() {
                    if what == WaitUntil::DecidedOrAwaiting && glimpse.awaits() {
                        return Ok(answer);
                    }
                    continue;
                }
                if !glimpse.may_pass() {
                    return Ok(answer);
                }
            }
            Err(refused) if !refused.may_pass() => return Err(refused),
            Err(_no_answer) => {}
        }
        // A refusal comes at once, without a wait.
        let pause = pauses.pause();
        tokio::select! {
            () = desk.stopping.cancelled() => {}
            () = tokio::time::sleep_until(until) => {}
            () = pause => {}
        }
    }
}

/// Where a call stands, or how it ended, if that is known within this wait.
async fn look(
    desk: &CallDesk,
    tenant: &Label,
    call: CallId,
    wait: Duration,
    what: WaitUntil,
) -> Result<Answer, Refused> {
    let wait_ms = wait.as_millis();
    let body = format!("{{\"call_id\":\"{call}\",\"wait_ms\":{wait_ms}}}");
    let question = Question::new(desk.dispatchers.subjects().get(tenant), body);
    let mut question = Question {
        patience: wait + DECISION_MAX,
        ..question
    };
    // Else it would say so only when this glance is over.
    if what == WaitUntil::DecidedOrAwaiting && !wait.is_zero() {
        question.headers.insert(WAIT_FOR, QUESTION);
    }
    desk.dispatchers.ask(question, Repeatable::Always).await
}

async fn last_look(
    desk: &CallDesk,
    tenant: &Label,
    call: CallId,
    what: WaitUntil,
) -> Result<Answer, Refused> {
    let looking = look(desk, tenant, call, Duration::ZERO, what);
    let looked = timeout(LAST_LOOK, looking).await;
    looked.unwrap_or_else(|_elapsed| Err(Refused::no_answer(Repeatable::Always)))
}

//! Park: a call whose tool answers later, or asks for something, waits in the ledger and not in this worker.

use std::time::Duration;

use bytes::Bytes;
use fleet::{
    checkpoint::{Checkpoint, reached},
    delay::{Reconnect, SOON},
    input::{Asked, InputWanted, ToolWish, UnfitInput},
    outcome::{Outcome, ToolFailure},
    said,
    store::{
        DecisionError,
        park::{self, Parked, Parking},
    },
    telemetry::{metrics, report},
    wire::{
        code::Code,
        event::{Event, Happening},
        message::Message,
    },
};
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::{
    cache,
    interceptor::EndedView,
    stage::{Executed, Execution},
    worker::WorkerProcess,
};

/// How long it waits for the ledger, as a completion does.
const PATIENCE: Duration = Duration::from_secs(900);

/// Makes a failure of a question that cannot be put to the caller. It has begun nothing, and would ask the same again.
pub(crate) fn bound(executed: &mut Executed) {
    let Some(ToolWish::Input(wanted)) = executed.wanted() else {
        return;
    };
    let claimed = &executed.attempt.claimed;
    let rounds = claimed.asked.as_ref().map_or(0, |asked| asked.round);
    let unfit = match wanted.check(rounds) {
        Ok(()) if claimed.is_probe => Message::fixed(
            "a tool that is asked about a doubt has nobody whom it could ask",
            "被询问存疑调用的工具没有可以询问的对象",
        ),
        Ok(()) => return,
        Err(unfit) => why(unfit),
    };
    let failure = ToolFailure::new(Code::ToolError, unfit);
    executed.execution = Execution::Ran(Outcome::DefiniteFailure(failure));
}

fn why(unfit: UnfitInput) -> Message {
    let (requests, state, rounds) = (
        InputWanted::REQUESTS_MAX,
        InputWanted::STATE_MAX,
        InputWanted::ROUNDS_MAX,
    );
    match unfit {
        UnfitInput::NoObject => Message::fixed(
            "what the tool asks its caller is no JSON object",
            "工具向调用方询问的内容不是 JSON 对象",
        ),
        UnfitInput::RequestsTooLarge => said!(
            "what the tool asks its caller is larger than {requests} bytes",
            "工具向调用方询问的内容超过 {requests} 字节"
        ),
        UnfitInput::StateTooLarge => said!(
            "what the tool keeps while it asks is larger than {state} bytes",
            "工具在询问期间保留的内容超过 {state} 字节"
        ),
        UnfitInput::TooManyRounds => said!(
            "the tool asks again, and may ask {rounds} times in a call",
            "工具再次询问，而在一次调用中最多只能询问 {rounds} 次"
        ),
    }
}

/// Lets the call wait for what its tool wants. `None`: it cannot wait, and its attempt ends as it stands.
pub(crate) async fn pass(worker: &WorkerProcess, executed: &Executed) -> Option<EndedView> {
    let wanted = executed.wanted()?;
    let attempt = &executed.attempt;
    let (claimed, tool) = (&attempt.claimed, &attempt.tool.manifest);
    let asked = match wanted {
        ToolWish::Completion => None,
        ToolWish::Input(wanted) => Some(asked(
            wanted,
            claimed.asked.as_ref().map_or(0, |a| a.round),
        )?),
    };
    let parking = match &asked {
        Some(asked) => Parking::Input(asked),
        None => {
            let wait = tool.completion.as_ref()?.wait;
            let wait_ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
            Parking::Completion { wait_ms }
        }
    };
    let (rev, at, until) = match recorded(worker, executed, parking).await {
        Some(Parked::Waits { rev, at, until }) => (rev, at, until),
        Some(Parked::Over) => return Some(EndedView::Late),
        Some(Parked::NotNow) => return None,
        None => return Some(EndedView::NotRecorded),
    };
    reached(Checkpoint::Parked);
    metrics().parked(&tool.name, parking.whom());
    let event = || Event {
        call_id: claimed.call_id,
        sequence: Event::sequence(rev, 0),
        at,
        what: Happening::Awaiting {
            whom: parking.whom(),
            until,
            // Whoever may have it gets it of a dispatcher.
            token: None,
        },
    };
    worker.events.tell(claimed.followed(), event);
    if let Parking::Input(_) = parking {
        // Who waits for the call is the one who knows.
        worker
            .replies
            .tell(claimed.dispatcher, claimed.call_id, Bytes::new())
            .await;
        if attempt.took_place {
            // Its place is free: dispatchers release the next call of the tool.
            Box::pin(cache::ring(worker, None)).await;
        }
    }
    Some(EndedView::Recorded {
        outcome: executed.execution.word(),
        state: fleet::call::State::AwaitingClient,
    })
}

/// What is asked, as the row has it; `None`: it is no JSON.
fn asked(wanted: &InputWanted, rounds: u32) -> Option<Asked> {
    let json = |text: &str| RawValue::from_string(text.to_owned()).ok();
    Some(Asked {
        round: rounds.saturating_add(1),
        requests: json(&wanted.requests)?,
        state: match &wanted.state {
            Some(state) => Some(json(state)?),
            None => None,
        },
        input: None,
    })
}

/// Asks the ledger until it answers. `None`: it does not in time; the sweep decides about the attempt when it is overdue.
async fn recorded(
    worker: &WorkerProcess,
    executed: &Executed,
    parking: Parking<'_>,
) -> Option<Parked> {
    let (call, attempt) = (executed.attempt.claimed.call_id, executed.attempt.id);
    let (began, actor) = (Instant::now(), worker.actor());
    let mut reconnect = Reconnect::up_to(SOON);
    loop {
        match park::park(&worker.pool, (call, attempt), parking, &actor).await {
            Ok(parked) => return Some(parked),
            Err(DecisionError::Invalid(why)) => {
                tracing::warn!(why, "the ledger does not take what a tool asks");
                return Some(Parked::NotNow);
            }
            Err(DecisionError::Store(error)) if began.elapsed() < PATIENCE => {
                tracing::debug!(
                    error = report(&error),
                    "a call does not wait yet; asking again"
                );
            }
            Err(DecisionError::Store(error)) => {
                tracing::error!(
                    error = report(&error),
                    "that a call waits could not be recorded; the sweep decides without it"
                );
                return None;
            }
        }
        reconnect.pause().await;
    }
}

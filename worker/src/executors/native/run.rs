//! Runs a handler as a task of its own, so that its panic or a blocked thread ends no other attempt, and ends it in time.

use std::{sync::Arc, time::Duration};

use fleet::{
    fencing::WorkerLock,
    outcome::{Outcome, ToolFailure},
    said,
    wire::{code::Code, message::Message},
};
use serde_json::Value;
use tokio::{
    task::JoinError,
    time::{sleep_until, timeout},
};
use tokio_util::{
    sync::CancellationToken,
    task::{AbortOnDropHandle, TaskTracker},
};
use tracing::Instrument;

use super::handler::Handler;
use crate::{
    executors::{AttemptContext, Returned, StopReason},
    tool::ToolContext,
};

/// How long a tool may take to end before its future is dropped.
const GRACE: Duration = Duration::from_secs(2);
/// How long the dropped future may take to be gone. In sum less than [`LINGER_MAX`](crate::executors::LINGER_MAX).
const DROP_MAX: Duration = Duration::from_millis(400);

/// Why a tool has to end.
#[derive(Debug, Clone, Copy)]
enum CutReason {
    /// Its time is over.
    Deadline,
    /// The attempt was told to stop.
    Stop(StopReason),
}

/// Runs the handler once.
pub(super) async fn run(
    handler: Arc<dyn Handler>,
    arguments: Value,
    output_limit: usize,
    context: AttemptContext,
    share: Option<Arc<WorkerLock>>,
) -> Returned {
    let (cancelled, blocking) = (CancellationToken::new(), TaskTracker::new());
    let (stop, until) = (context.stop.clone(), context.until);
    let told = ToolContext::new(context, cancelled.clone(), blocking.clone(), share.clone());
    let called = async move {
        // Held until the task is gone. A task that blocks its thread never is.
        let _share = share;
        handler.call(arguments, output_limit, told).await
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "awaited below, and ended with its handle"
    )]
    let mut task = AbortOnDropHandle::new(tokio::spawn(called.in_current_span()));
    let reason = tokio::select! {
        biased;
        ended = &mut task => {
            let outcome = ended.unwrap_or_else(|error| died(&error));
            // An answer with a certain outcome is not delayed by what the tool left behind.
            let has_stopped = if matches!(outcome, Outcome::Unknown(_)) {
                over(&blocking).await
            } else {
                blocking.is_empty()
            };
            return Returned {
                left_behind: !has_stopped,
                ..outcome.into()
            };
        }
        why = stop.told() => CutReason::Stop(why),
        () = sleep_until(until) => CutReason::Deadline,
    };
    cancelled.cancel();
    let mut ended = timeout(GRACE, &mut task).await.ok();
    if ended.is_none() {
        task.abort();
        ended = timeout(DROP_MAX, &mut task).await.ok();
    }
    // A task that still blocks its thread cannot be ended.
    let left_behind = ended.is_none() || !over(&blocking).await;
    let outcome = match ended {
        Some(Ok(Outcome::Unknown(failure))) => late(reason, Some(failure.message)),
        Some(Ok(outcome)) => outcome,
        Some(Err(error)) if error.is_panic() => died(&error),
        Some(Err(_)) | None => late(reason, None),
    };
    Returned {
        left_behind,
        ..outcome.into()
    }
}

/// Whether no thread is blocked any more.
async fn over(blocking: &TaskTracker) -> bool {
    blocking.close();
    timeout(DROP_MAX, blocking.wait()).await.is_ok()
}

/// The panic's own message is on stderr; it may quote anything, so it is not repeated here.
fn died(error: &JoinError) -> Outcome {
    let what = if error.is_panic() {
        Message::fixed("the tool panicked", "工具崩溃了")
    } else {
        Message::fixed(
            "the tool was dropped before it answered",
            "工具还没有响应就被放弃",
        )
    };
    Outcome::Unknown(ToolFailure::new(Code::ToolCrashed, what))
}

fn late(reason: CutReason, own: Option<Message>) -> Outcome {
    let (code, what) = match reason {
        CutReason::Deadline => {
            let what = Message::fixed("the tool did not answer in time", "工具没有按时响应");
            (Code::Timeout, what)
        }
        CutReason::Stop(why) => {
            let word = why.word();
            let what = said!("{word} before it answered", "在响应之前{word}", word);
            (why.code(), what)
        }
    };
    let what = match own {
        Some(own) => said!("{what}: {own}", "{what}：{own}", what, own),
        None => what,
    };
    let failure = ToolFailure::new(code, what);
    Outcome::Unknown(match reason {
        CutReason::Deadline => failure,
        CutReason::Stop(_) => failure.with_details(serde_json::json!({ "stopped": true })),
    })
}

//! Puts calls back that found no program slot: many in one statement, for a full machine puts back hundreds.

use std::time::Duration;

use fleet::{
    ids::CallId,
    obstacle::Obstacle,
    store::{PgPool, postpone},
    telemetry::report,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};

/// The most calls in one statement.
const TOGETHER_MAX: usize = 500;

/// Takes calls to be put back.
#[derive(Debug)]
pub(crate) struct PuttingBack(mpsc::Sender<Postponement>);

#[derive(Debug)]
struct Postponement {
    call: CallId,
    pause: Duration,
    answer: oneshot::Sender<bool>,
}

impl PuttingBack {
    /// Starts the task that writes. It ends when this is dropped and everything is written.
    pub(crate) fn start(pool: PgPool, obstacle: Obstacle, lanes: &mut JoinSet<()>) -> Self {
        let (sender, mut waiting) = mpsc::channel::<Postponement>(TOGETHER_MAX);
        lanes.spawn(async move {
            let mut batch = Vec::new();
            // Calls that come while a statement runs go with the next one.
            while waiting.recv_many(&mut batch, TOGETHER_MAX).await > 0 {
                let calls: Vec<_> = batch.iter().map(|one| (one.call, one.pause)).collect();
                let put_back = postpone::put_back(&pool, &calls, &obstacle).await;
                if let Err(error) = &put_back {
                    tracing::debug!(error = report(error), "calls were not put back");
                }
                for one in batch.drain(..) {
                    // A caller that no longer waits leaves its message to NATS, which delivers it again.
                    one.answer.send(put_back.is_ok()).unwrap_or(());
                }
            }
        });
        Self(sender)
    }

    /// Postpones the call by this pause, if it is still queued. False: Postgres does not answer.
    pub(crate) async fn put_back(&self, call: CallId, pause: Duration) -> bool {
        let (answer, told) = oneshot::channel();
        let handed_in = self
            .0
            .send(Postponement {
                call,
                pause,
                answer,
            })
            .await;
        handed_in.is_ok() && told.await.unwrap_or(false)
    }
}

//! Puts calls back that find no slot for a program: many in one statement, for when machines are full they come by the hundred.

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

/// Calls in one statement at most.
const TOGETHER_MAX: usize = 500;

/// Where calls are handed in to be put back.
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
            // What comes while a statement runs goes with the next one.
            while waiting.recv_many(&mut batch, TOGETHER_MAX).await > 0 {
                let calls: Vec<_> = batch.iter().map(|one| (one.call, one.pause)).collect();
                let put_back = postpone::put_back(&pool, &calls, &obstacle).await;
                if let Err(error) = &put_back {
                    tracing::debug!(error = report(error), "calls were not put back");
                }
                for one in batch.drain(..) {
                    // Who does not wait any more leaves its message to NATS, which delivers it again.
                    one.answer.send(put_back.is_ok()).unwrap_or(());
                }
            }
        });
        Self(sender)
    }

    /// Has the call come again after this pause, if it still waits. False: Postgres does not answer.
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

//! The slots of a worker: as many tools at a time as it has, whatever the queues hold. Each queue has its share of them and no
//! more, so that hanging tools of one do not take those of another.

use std::{sync::Arc, time::Duration};

use fleet::{
    bus::pull::{Delivered, Puller},
    telemetry::report,
};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{attempt, config::Config, worker::WorkerProcess};

/// Pulls messages and runs an attempt for each until `intake` is cancelled and all of them have ended.
pub(crate) async fn run(worker: Arc<WorkerProcess>, config: &Config, intake: CancellationToken) {
    let (slots, queues) = (config.concurrency, config.queues.len());
    let (sender, mut delivered) = mpsc::channel::<Delivered>(config.concurrency);
    let mut pullers = JoinSet::new();
    for (n, queue) in config.queues.iter().enumerate() {
        // The first ones have one more where it does not come out even; `toolfleet calls explain` counts them so.
        let share = slots / queues + usize::from(n < slots % queues);
        let puller = Puller::new(&worker.bus, queue, share);
        let (bus, sender, intake) = (worker.bus.clone(), sender.clone(), intake.clone());
        pullers.spawn(async move {
            if let Err(error) = puller.run(&bus, sender, intake).await {
                tracing::error!(
                    error = report(&error),
                    "a queue is not pulled from any more"
                );
            }
        });
    }
    drop(sender);
    let mut attempts = JoinSet::new();
    loop {
        tokio::select! {
            message = delivered.recv() => match message {
                Some(message) if intake.is_cancelled() => message.acker.again_after(Duration::ZERO).await,
                Some(message) => drop(attempts.spawn(attempt::run(Arc::clone(&worker), message))),
                None => break,
            },
            Some(ended) = attempts.join_next(), if !attempts.is_empty() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "an attempt's task ended abnormally; the sweep decides about its call");
                }
            }
        }
    }
    while pullers.join_next().await.is_some() {}
    while attempts.join_next().await.is_some() {}
}

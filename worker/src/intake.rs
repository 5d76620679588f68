//! The slots of a worker: it runs as many tools at a time as it has slots. Each queue has a fixed share of them, so that
//! hanging tools of one queue do not take the slots of another.

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
        // The first queues have one more where the division leaves a rest; `toolfleet calls explain` counts the same way.
        let share = slots / queues + usize::from(n < slots % queues);
        let puller = Puller::new(&worker.bus, queue, share);
        let (bus, sender, intake) = (worker.bus.clone(), sender.clone(), intake.clone());
        pullers.spawn(async move { puller.run(&bus, sender, intake).await });
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
            Some(ended) = pullers.join_next(), if !pullers.is_empty() && !intake.is_cancelled() => {
                // They end when they are told to, even while this waits; that is nothing to speak of.
                if intake.is_cancelled() {
                    continue;
                }
                let why = match &ended {
                    Ok(Ok(())) => "its subscription ended".to_owned(),
                    Ok(Err(error)) => report(error),
                    Err(error) => error.to_string(),
                };
                tracing::error!(why, "a queue is not pulled from any more; this worker finishes what it runs and ends");
                // A worker that beats and does not pull would look healthy while its queue waits: its supervisor starts another process.
                intake.cancel();
            }
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

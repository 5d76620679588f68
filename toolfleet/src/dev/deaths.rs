//! Reporting dead workers, so that what they ran need not wait for a human to believe it.
//!
//! A report may fail because Postgres is being started again at that moment; it is repeated, and nothing waits for it.

use std::time::Duration;

use anyhow::anyhow;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{DevHooks, Screen};

/// The way to report; every clone must be gone before [`Reporter::finish`] ends.
#[derive(Clone)]
pub(crate) struct Deaths(mpsc::Sender<u32>);

impl Deaths {
    /// Reports that the worker with this pid is gone.
    pub(crate) fn report(&self, pid: u32) {
        if self.0.try_send(pid).is_err() {
            tracing::error!(
                pid,
                "too many dead workers to report: its calls wait for `toolfleet workers fence`"
            );
        }
    }
}

/// The one who passes the reports on.
pub(crate) struct Reporter(JoinSet<()>);

const WAITING_MAX: usize = 256;
const TRIES_MAX: u32 = 30;
const RECORD_MAX: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(1);

impl Reporter {
    pub(crate) fn start(database_url: String, hooks: DevHooks, screen: Screen) -> (Self, Deaths) {
        let (sender, mut pids) = mpsc::channel(WAITING_MAX);
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Some(pid) = pids.recv().await {
                report(&database_url, pid, hooks, &screen).await;
            }
        });
        (Self(task), Deaths(sender))
    }

    /// Waits until everything is reported, at most this long.
    pub(crate) async fn finish(mut self, at_most: Duration) {
        if timeout(at_most, self.0.join_next()).await.is_err() {
            tracing::warn!(
                "not every dead worker could be reported: `toolfleet workers list` shows them"
            );
        }
    }
}

async fn report(database_url: &str, pid: u32, hooks: DevHooks, screen: &Screen) {
    for tries in 1..=TRIES_MAX {
        let recorded = timeout(
            RECORD_MAX,
            (hooks.worker_died)(database_url.to_owned(), pid),
        )
        .await;
        match recorded.unwrap_or_else(|_| Err(anyhow!("no answer within {RECORD_MAX:?}"))) {
            Ok(()) => return,
            Err(problem) if tries == TRIES_MAX => {
                let advice = "see `toolfleet workers list` and `toolfleet workers fence`";
                screen.line(&format!(
                    "the death of worker pid {pid} cannot be recorded ({advice}): {problem:#}"
                ));
            }
            Err(problem) => {
                tracing::debug!(
                    pid,
                    tries,
                    problem = format!("{problem:#}"),
                    "cannot record a worker's death yet"
                );
                sleep(PAUSE).await;
            }
        }
    }
}

//! Dead workers: reported at once, and fenced as soon as their locks prove that none of their processes lives.
//!
//! A report may fail because Postgres is being restarted at that moment. It is repeated, and nothing waits for it.

use std::time::Duration;

use anyhow::{Context, anyhow};
use fleet::{
    fencing::{FencingError, StateDir},
    ids::WorkerId,
};
use futures_util::future::BoxFuture;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};

use super::{hooks::DevHooks, screen::Screen};

/// Takes reports; every clone must be dropped before [`Reporter::finish`] ends.
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

/// Passes the reports on.
pub(crate) struct Reporter(JoinSet<()>);

const WAITING_MAX: usize = 256;
const TRIES_MAX: u32 = 30;
const RECORD_MAX: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_secs(1);
/// How often a lock is tried.
const LOOK: Duration = Duration::from_millis(200);
/// When a person is told that a process of a dead worker lives on: its guards end a tool in far less.
const FENCED_SOON: Duration = Duration::from_secs(10);
/// When it stops trying the locks.
const FENCED_EVER: Duration = Duration::from_secs(600);

impl Reporter {
    /// `state_dir`: the folder with the workers' locks.
    pub(crate) fn start(
        database_url: String,
        state_dir: StateDir,
        hooks: DevHooks,
        screen: Screen,
    ) -> (Self, Deaths) {
        let (sender, pids) = mpsc::channel(WAITING_MAX);
        let undertaker = Undertaker {
            database_url,
            state_dir,
            hooks,
            screen,
            unproven: Vec::new(),
        };
        let mut task = JoinSet::new();
        task.spawn(undertaker.run(pids));
        (Self(task), Deaths(sender))
    }

    /// Waits until everything is reported and fenced, at most this long.
    pub(crate) async fn finish(mut self, at_most: Duration) {
        if timeout(at_most, self.0.join_next()).await.is_err() {
            tracing::warn!(
                "not every dead worker could be reported and fenced: `toolfleet workers list` shows them"
            );
        }
    }
}

/// A worker whose death is reported, and of which a process may still live.
struct Unproven {
    worker: WorkerId,
    pid: u32,
    since: Instant,
    told: bool,
}

struct Undertaker {
    database_url: String,
    state_dir: StateDir,
    hooks: DevHooks,
    screen: Screen,
    unproven: Vec<Unproven>,
}

impl Undertaker {
    /// Until no report can come any more and every dead worker is fenced.
    async fn run(mut self, mut pids: mpsc::Receiver<u32>) {
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut more = true;
        while more || !self.unproven.is_empty() {
            tokio::select! {
                pid = pids.recv(), if more => match pid {
                    Some(pid) => self.report(pid).await,
                    None => more = false,
                },
                _ = ticks.tick(), if !self.unproven.is_empty() => {}
            }
            self.fence().await;
        }
    }

    async fn report(&mut self, pid: u32) {
        for tries in 1..=TRIES_MAX {
            let report = (self.hooks.worker_died)(self.database_url.clone(), pid);
            match in_time(report).await {
                Ok(dead) => {
                    let since = Instant::now();
                    let unproven = dead.into_iter().map(|worker| Unproven {
                        worker,
                        pid,
                        since,
                        told: false,
                    });
                    self.unproven.extend(unproven);
                    return;
                }
                Err(problem) if tries == TRIES_MAX => {
                    let advice = "see `toolfleet workers list` and `toolfleet workers fence`";
                    self.screen.line(&format!(
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

    /// Tries every lock once.
    async fn fence(&mut self) {
        for mut dead in std::mem::take(&mut self.unproven) {
            let pid = dead.pid;
            match self.prove(dead.worker).await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(problem) => {
                    let problem = format!("{problem:#}");
                    tracing::debug!(pid, problem, "cannot fence a worker yet");
                }
            }
            let waited = dead.since.elapsed();
            if waited >= FENCED_SOON && !dead.told {
                dead.told = true;
                let id = dead.worker;
                self.screen.line(&format!(
                    "worker pid {pid} is dead and not fenced: something that it started lives, or cannot be looked at \
                     (when it is gone: `toolfleet workers fence {id} --note ...`)"
                ));
            }
            if waited < FENCED_EVER {
                self.unproven.push(dead);
            }
        }
    }

    /// True when nothing is left to do: it is fenced, or there is no lock that could prove anything.
    async fn prove(&self, worker: WorkerId) -> anyhow::Result<bool> {
        let Some(proof) = self.state_dir.prove_gone(worker)? else {
            let there: Result<Vec<WorkerId>, FencingError> = self.state_dir.workers();
            return Ok(!there?.contains(&worker) && !self.state_dir.is_withdrawn(worker));
        };
        in_time((self.hooks.fence)(self.database_url.clone(), worker)).await?;
        proof.remove()?;
        Ok(true)
    }
}

async fn in_time<T>(record: BoxFuture<'static, anyhow::Result<T>>) -> anyhow::Result<T> {
    let recorded = timeout(RECORD_MAX, record).await;
    recorded
        .map_err(|_elapsed| anyhow!("no answer within {RECORD_MAX:?}"))?
        .context("record it in Postgres")
}

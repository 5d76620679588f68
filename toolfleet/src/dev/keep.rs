//! Keeps one process alive: when it dies, that is recorded, and it is started again a little later.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

use super::{
    deaths::Deaths,
    screen::Screen,
    state::{Board, Role},
};
use crate::servers::process::{Process, Stopped, describe};

/// Starts the process again, in the same way and on the same port.
pub(crate) type Start = Box<dyn Fn() -> BoxFuture<'static, anyhow::Result<Process>> + Send + Sync>;

/// Processes that stop together.
pub(crate) struct Tier {
    stop: CancellationToken,
    keepers: JoinSet<()>,
}

impl Tier {
    pub(crate) fn new() -> Self {
        Self {
            stop: CancellationToken::new(),
            keepers: JoinSet::new(),
        }
    }

    /// Keeps this process alive until the tier stops.
    pub(crate) fn keep(&mut self, first: Process, role: Role, start: Start, around: Around) {
        let keeper = Keeper {
            role,
            start,
            around,
            stop: self.stop.clone(),
        };
        keeper.note(keeper.around.board.up(role, first.pid()));
        self.keepers.spawn(keeper.run(first));
    }

    /// Stops all of them and waits until they are gone; bounded by the grace of each.
    pub(crate) async fn stop(&mut self) {
        self.stop.cancel();
        while let Some(ended) = self.keepers.join_next().await {
            if let Err(panic) = ended {
                tracing::error!(%panic, "a keeper of processes panicked");
            }
        }
    }
}

/// What a keeper reports to, and the signal to hurry.
#[derive(Clone)]
pub(crate) struct Around {
    pub(crate) board: Arc<Board>,
    pub(crate) screen: Screen,
    /// Takes reports of deaths; only workers hold calls.
    pub(crate) deaths: Option<Deaths>,
    pub(crate) hurry: CancellationToken,
}

struct Keeper {
    role: Role,
    start: Start,
    around: Around,
    stop: CancellationToken,
}

impl Keeper {
    /// Runs until `stop`, and then until the process is gone.
    async fn run(self, mut process: Process) {
        let mut pause = Pause::new();
        let mut short_lives = 0;
        loop {
            let (pid, born) = (process.pid(), Instant::now());
            let ended = tokio::select! {
                ended = process.wait() => ended,
                () = self.stop.cancelled() => {
                    let stopped = process.stop(&self.around.hurry).await;
                    let clean = matches!(stopped, Stopped::Ended(status) if status.success());
                    self.gone(pid, !clean);
                    return;
                }
            };
            self.gone(pid, true);
            let how = ended.map_or_else(|reason| reason.to_string(), describe);
            let lived = born.elapsed();
            let wait = pause.next(lived);
            short_lives = if lived < Pause::HEALTHY {
                short_lives + 1
            } else {
                0
            };
            let role = self.role;
            self.around.screen.line(&format!(
                "{role} (pid {pid}) ended: {how}; it is started again in {wait:?}"
            ));
            // Until everything is up, the start itself reports a death and fails.
            if self.around.board.is_published() && is_said(short_lives) {
                self.around.screen.line(&format!(
                    "{role} has ended {short_lives} times right after its start; its log {} says:\n{}",
                    process.log().display(),
                    process.log_tail()
                ));
            }
            let Some(next) = self.start_again(wait, &mut pause).await else {
                return;
            };
            process = next;
            self.note(self.around.board.up(self.role, process.pid()));
        }
    }

    async fn start_again(&self, mut wait: Duration, pause: &mut Pause) -> Option<Process> {
        loop {
            tokio::select! {
                () = sleep(wait) => {}
                () = self.stop.cancelled() => return None,
            }
            let started = tokio::select! {
                started = (self.start)() => started,
                () = self.stop.cancelled() => return None,
            };
            match started {
                Ok(process) => return Some(process),
                Err(problem) => {
                    wait = pause.next(Duration::ZERO);
                    let role = self.role;
                    self.around.screen.line(&format!(
                        "{role} does not start, again in {wait:?}: {problem:#}"
                    ));
                }
            }
        }
    }

    fn gone(&self, pid: u32, died: bool) {
        self.note(self.around.board.down(self.role));
        if let Some(deaths) = self.around.deaths.as_ref().filter(|_| died) {
            deaths.report(pid);
        }
    }

    fn note(&self, written: std::io::Result<()>) {
        if let Err(reason) = written {
            self.around.screen.line(&format!(
                "dev.json cannot be replaced and is out of date: {reason}"
            ));
        }
    }
}

/// Which deaths in a row are reported with their reason: the third, and then one in a while.
const fn is_said(short_lives: u32) -> bool {
    short_lives == 3 || (short_lives > 3 && short_lives.is_multiple_of(20))
}

/// The pause before the next start: it doubles, and is short again after a longer life.
struct Pause {
    next: Duration,
}

impl Pause {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(5);
    const HEALTHY: Duration = Duration::from_secs(10);

    const fn new() -> Self {
        Self { next: Self::FIRST }
    }

    fn next(&mut self, lived: Duration) -> Duration {
        if lived >= Self::HEALTHY {
            self.next = Self::FIRST;
        }
        let wait = self.next;
        self.next = (wait * 2).min(Self::LONGEST);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_to_its_limit_and_a_long_life_makes_it_short_again() {
        let mut pause = Pause::new();
        let waits: Vec<u128> = (0..8)
            .map(|_| pause.next(Duration::from_secs(1)).as_millis())
            .collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert_eq!(pause.next(Pause::HEALTHY), Pause::FIRST);
        assert_eq!(pause.next(Duration::ZERO), Pause::FIRST * 2);
    }
}
